"""contributing/rpc.md: its steps, in a copy of the repository, add an RPC with a command."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.spec.recipe import Copy, blocks

CHECK = """
import asyncio

import grpc
import mvprune_migrations
from mvprune import Client
from mvprune.cli import main
from mvprune.v1 import job_pb2, job_pb2_grpc
from mvprune_service.api.access.calls import Calls
from mvprune_service.api.access.handlers import Handlers
from mvprune_service.api.jobs import JobServicer
from mvprune_service.db import lifecycle, records
from mvprune_service.db.engine.database import Database
from mvprune_service.ids import JobName


def rename(address):
    with Client(address) as client:
        assert client.rename("j", "four methods").display_name == "four methods"
    assert main(["rename", "j", "five methods", "--address", address]) == 0


async def serve():
    db, calls = Database("sqlite:///jobs.sqlite"), Calls()
    mvprune_migrations.upgrade(db.engine)
    spec = job_pb2.CompressionSpec(model="m", task="sst2", movement={})
    new = lifecycle.NewJob("default", "j", spec, job_pb2.ExecutionPolicy(max_attempts=1), "me")
    job = await db.write(lifecycle.create, new, actor="me")
    job_pb2_grpc.add_JobServiceServicer_to_server(JobServicer(db, None, None, None, None), calls)
    server = grpc.aio.server(handlers=(Handlers(calls),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    await asyncio.to_thread(rename, f"127.0.0.1:{port}")
    await server.stop(None)
    row = await db.read(records.job_named, JobName("default", "j"))
    events = await db.read(records.events_of, job.uid, 0, 10)
    assert row.display_name == "five methods"
    assert [event.type for event in events] == ["JOB_CREATED", "RENAMED", "RENAMED"]
    db.close()


asyncio.run(serve())
"""


@pytest.mark.slow
def test_the_steps_of_the_page_add_an_rpc_and_a_command(tmp_path: Path) -> None:
    copy = Copy.make(tmp_path)
    method, request = blocks("rpc.md", "proto")
    rule, change, servicer, call, command, function = blocks("rpc.md", "python")
    copy.insert("proto/mvprune/v1/job.proto", "\nservice JobService {", method)
    copy.add("proto/mvprune/v1/job.proto", 'import "mvprune/v1/parameter.proto";\n', f"\n{request}")
    copy.add("service/mvprune_service/api/access/rules.py", '        "RetryJob":', rule)
    copy.add("service/mvprune_service/db/lifecycle.py", "    return JobRow._make(", f"\n\n{change}")
    copy.add("service/mvprune_service/api/jobs.py", "        self._logs = logs\n", f"\n{servicer}")
    copy.add(
        "client/mvprune/client/core.py", "        return await self._job(self._transport.jobs.RetryJob", f"\n{call}"
    )
    copy.add("client/mvprune/cli/shared/commands.py", '    "retry": Command(', command)
    copy.add("client/mvprune/cli/jobs.py", "    return Done(job.id, job_with_result(job, None)", f"\n\n{function}")
    copy.make_proto()
    assert "five methods" in copy.run(CHECK)
