"""Users: they submit jobs, sweeps and uploads, change their minds, and repeat what they got no answer to."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import grpc
from google.protobuf.json_format import ParseDict

from mvprune.v1 import job_pb2, sweep_pb2, upload_pb2, webhook_pb2
from mvprune_service.domain.machine import Command, JobState

from .servers import Channel, Refused, Unreachable
from .snapshot import Snapshot
from .webhooks import URL
from .wire import CURRENT

_JOBS, _SWEEPS, _UPLOADS = "/mvprune.v1.JobService/", "/mvprune.v1.SweepService/", "/mvprune.v1.UploadService/"
_WEBHOOKS = "/mvprune.v1.WebhookService/"
_TRIES = 12
_REFUSALS = ("NOT_FOUND", "FAILED_PRECONDITION", "INVALID_ARGUMENT", "ALREADY_EXISTS", "ABORTED")
_ROW = b'{"sentence": "good", "label": 1}\n{"sentence": "bad", "label": 0}\n'


class Users:
    """What users do, what they were promised, and what must have come of it.

    Args:
        look: the rows as they are now.
    """

    def __init__(self, channel: Channel, look: Callable[[], Snapshot]) -> None:
        self._channel = channel
        self._look = look
        self._requests: list[job_pb2.CreateJobRequest] = []
        self._accepted: dict[str, str] = {}  # request id to uid
        self._deleted: set[str] = set()  # uids whose deletion was asked for
        self._cancelled: dict[str, int] = {}  # uid to events known when the cancellation was accepted

    async def create(self, number: int, teacher: str | None, policy: Mapping[str, Any]) -> None:
        """Submits a job."""
        spec = job_pb2.CompressionSpec(model="bert-base-uncased", task="sst2", target_density=0.1, movement={})
        spec.training.batch_size = 4
        if teacher == "train":
            spec.teacher.train = True
        elif teacher == "job":
            spec.teacher.job = "job-0"
        await self._submit(number, spec, policy)

    async def _submit(self, number: int, spec: job_pb2.CompressionSpec, policy: Mapping[str, Any]) -> None:
        request = job_pb2.CreateJobRequest(
            parent="projects/p",
            job_id=f"job-{number}",
            job=job_pb2.Job(spec=spec, policy=job_pb2.ExecutionPolicy(**policy)),
            request_id=f"request-{len(self._requests)}",
        )
        self._requests.append(request)
        await self._create(request)

    async def _create(self, request: job_pb2.CreateJobRequest) -> None:
        job = await self._ask(_JOBS + "CreateJob", request)
        if job is None:
            return
        known = self._accepted.setdefault(request.request_id, job.uid)
        assert known == job.uid or known not in self._look().jobs, f"{request.request_id} made two jobs"
        self._accepted[request.request_id] = job.uid

    async def ask(self, command: str, which: int) -> None:
        """Does something to a job."""
        jobs = list(self._look().jobs.values())
        if command == "repeat":
            if self._requests:
                await self._create(self._requests[which % len(self._requests)])
        elif jobs:
            job = jobs[which % len(jobs)]
            name = f"projects/p/jobs/{job.job_id}"
            if command == "cancel":
                request = job_pb2.CancelJobRequest(name=name, grace={"seconds": 5 * which})
                answer = await self._ask(_JOBS + "CancelJob", request)
                if answer is not None:
                    self._cancelled[answer.uid] = len(self._look().events.get(answer.uid, ()))
            elif command == "retry":
                await self._ask(_JOBS + "RetryJob", job_pb2.RetryJobRequest(name=name, from_scratch=which % 2 == 0))
            else:
                # The call may reach a later job of the same name.
                self._deleted |= {one.uid for one in jobs if one.job_id == job.job_id}
                await self._ask(_JOBS + "DeleteJob", job_pb2.DeleteJobRequest(name=name))

    async def sweep(self, axes: Any, policy: Mapping[str, Any], *, teacher: bool) -> None:
        """Creates a sweep."""
        base: dict[str, Any] = {"model": "bert-base-uncased", "task": "sst2", "movement": {}}
        base |= {} if teacher else {"teacher": {"none": True}, "baseline": {"none": True}}
        request = {
            "parent": "projects/p",
            "sweep_id": "sweep",
            "request_id": "sweep-request",
            "sweep": {"spec": {"base": base, "axes": axes}, "policy": dict(policy)},
        }
        await self._ask(_SWEEPS + "CreateSweep", ParseDict(request, sweep_pb2.CreateSweepRequest()))

    async def steer(self, command: str, choice: int) -> None:
        """Changes the sweep."""
        method = "UpdateSweepPolicy" if command == "Policy" else f"{command}Sweep"
        request = getattr(sweep_pb2, f"{method}Request")(name="projects/p/sweeps/sweep")
        if command == "Extend":
            request.points.add().update({"density": 0.01 * (1 + choice)})
        elif command == "Policy":
            request.policy.parallel = 1 + choice
        elif command == "Delete":
            self._deleted |= {job.uid for job in self._look().jobs.values() if job.sweep_id}
        await self._ask(_SWEEPS + method, request)

    async def resume_sweeps(self) -> None:
        """Lets a paused sweep go on."""
        await self._ask(_SWEEPS + "ResumeSweep", sweep_pb2.ResumeSweepRequest(name="projects/p/sweeps/sweep"))

    async def upload(self, size: int, *, use: bool) -> None:
        """Sends a file, and submits a job that reads it."""
        content = _ROW * size
        sha256 = hashlib.sha256(content).hexdigest()
        described = upload_pb2.Upload(kind=upload_pb2.Upload.DATA, display_name="train.jsonl")
        described.files.add(path="train.jsonl", size_bytes=len(content), chunks=[sha256])
        request = upload_pb2.CreateUploadRequest(parent="projects/p", upload=described)
        for _ in range(3):
            made = await self._ask(_UPLOADS + "CreateUpload", request)
            if made is None or not made.missing:
                break
            piece = upload_pb2.PutChunkRequest(name=made.name, chunk=sha256, data=content)
            await self._ask(_UPLOADS + "PutChunk", piece)
        if made is not None and use:
            spec = job_pb2.CompressionSpec(model="bert-base-uncased", task="sst2", target_density=0.1, movement={})
            reference = f"upload:{made.name.rpartition('/')[2]}/train.jsonl"
            spec.dataset.train, spec.dataset.validation = reference, reference
            await self._submit(100, spec, {"max_attempts": 2})

    async def webhook(self) -> None:
        """Wants to hear of jobs and sweeps."""
        wanted = webhook_pb2.Webhook(url=URL, events=["job.*", "sweep.*"])
        request = webhook_pb2.CreateWebhookRequest(parent="projects/p", webhook_id="w", webhook=wanted)
        await self._ask(_WEBHOOKS + "CreateWebhook", request)

    async def nudge_webhook(self) -> None:
        """Lets a webhook that waits be tried at once."""
        request = webhook_pb2.UpdateWebhookRequest(name="projects/p/webhooks/w")
        request.update_mask.paths.append("display_name")
        await self._ask(_WEBHOOKS + "UpdateWebhook", request)

    def check_promises(self, seen: Snapshot) -> None:
        """What users were told is true."""
        for request_id, uid in self._accepted.items():
            assert uid in seen.jobs or uid in self._deleted or self._expires(request_id), f"{request_id} is lost"
        for uid, known in self._cancelled.items():
            later = seen.events.get(uid, ())[known:]
            if uid in seen.jobs and not any(event.type == Command.RETRY for event in later):
                assert seen.jobs[uid].state in (JobState.CANCELLED, JobState.SUCCEEDED), "a cancel was lost"

    def may_delete(self, uid: str) -> bool:
        """Whether somebody has asked for it."""
        return uid in self._deleted

    def _expires(self, request_id: str) -> bool:
        return any(one.request_id == request_id and one.job.policy.HasField("retention") for one in self._requests)

    async def _ask(self, method: str, request: Any) -> Any:
        """The answer; None where the server refuses, or never answers."""
        for _ in range(_TRIES):
            try:
                return await self._channel.call("clients", method, request)
            except Refused as error:
                if error.code.name in _REFUSALS:
                    return None
                if error.code not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED):
                    raise
            except Unreachable:
                pass
            await asyncio.sleep(CURRENT.get().chance.uniform(0, 5))
        return None
