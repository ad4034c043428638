"""What gRPC itself costs: a bare grpc.aio server that answers JobService's calls with one prepared message."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import grpc

from mvprune.v1 import job_pb2, job_pb2_grpc


class Floor(job_pb2_grpc.JobServiceServicer):
    """CreateJob and GetJob answer; CancelJob tells all watchers."""

    def __init__(self, job: job_pb2.Job) -> None:
        self._job = job
        self._sequence = 0
        self._told = asyncio.Event()

    async def CreateJob(self, request: job_pb2.CreateJobRequest, context: grpc.aio.ServicerContext) -> job_pb2.Job:
        return self._job

    async def GetJob(self, request: job_pb2.GetJobRequest, context: grpc.aio.ServicerContext) -> job_pb2.Job:
        return self._job

    async def CancelJob(self, request: job_pb2.CancelJobRequest, context: grpc.aio.ServicerContext) -> job_pb2.Job:
        self._sequence += 1
        self._told.set()
        self._told = asyncio.Event()
        return self._job

    async def WatchJob(
        self, request: job_pb2.WatchJobRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[job_pb2.WatchJobResponse]:
        while True:
            yield job_pb2.WatchJobResponse(sequence=self._sequence, job=self._job)
            await self._told.wait()


async def serve(job: job_pb2.Job) -> None:
    """Prints its port and serves until it is killed."""
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    job_pb2_grpc.add_JobServiceServicer_to_server(Floor(job), server)
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve(job_pb2.Job.FromString(sys.stdin.buffer.read())))
