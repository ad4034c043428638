"""The control plane as clients meet it: a real server, real worker processes, a tiny real model."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from contextlib import aclosing
from pathlib import Path

import grpc
import pytest

from mvprune.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    artifact_pb2,
    job_pb2,
    job_pb2_grpc,
    worker_pb2,
    worker_pb2_grpc,
)
from mvprune_service.assembly.service import Service
from mvprune_service.assembly.startup import StartError
from mvprune_service.config import Settings

from ..conftest import Tiny
from ..neighbours import free_ports
from ..waiting import until_seen, until_true
from .plane import PARENT, Plane, local_settings, refused


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers whose trainer only talks, until it is killed."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).with_name("chatty")))


@pytest.mark.slow
async def test_a_job_from_submit_to_artifact_and_to_the_mask_of_the_next(plane: Plane) -> None:
    created = await plane.create(request_id="once")
    assert job_pb2.Job.State.Name(created.state) == "QUEUED"
    # Counted by hand: 2 layers of 4·32·32 + 2·32·64 weights, with biases and norms.
    assert created.model_size.prunable_weights == 2 * (4 * 32 * 32 + 2 * 32 * 64)
    assert created.model_size.encoder_parameters == created.model_size.prunable_weights + 2 * (9 * 32 + 64)
    again = await plane.create(request_id="once")
    assert again.uid == created.uid
    columns = "columns: text 'text', label 'label' (found by name)"
    assert columns in created.notes
    assert again.notes == created.notes

    messages = await plane.watch(created.name)
    last = messages[-1]
    assert last.done
    assert job_pb2.Job.State.Name(last.job.state) == "SUCCEEDED", last.job.failure
    states = [job_pb2.Job.State.Name(event.to_state) for message in messages for event in message.events]
    assert states == ["QUEUED", "STARTING", "RUNNING", "FINALIZING", "SUCCEEDED"]
    sequence = [event.sequence for message in messages for event in message.events]
    assert sequence == [1, 2, 3, 4, 5]
    resumed = await plane.watch(created.name, after=3)
    assert [event.sequence for message in resumed for event in message.events] == [4, 5]

    artifact = await plane.artifacts.GetArtifact(artifact_pb2.GetArtifactRequest(name=last.job.artifact))
    assert artifact.accounting.kept_weights == sum(
        int(0.1 * rows * columns) for rows, columns in [(32, 32)] * 8 + [(32, 64)] * 4
    )
    assert artifact.metrics["eval/accuracy"] == last.job.metrics["eval/accuracy"]
    assert artifact.metrics["dense/accuracy"] > 0.8
    urls = await plane.artifacts.GenerateDownloadUrls(artifact_pb2.GenerateDownloadUrlsRequest(name=artifact.name))
    assert not urls.urls  # a folder has none
    for file in artifact.files:
        call = plane.artifacts.ReadFile(artifact_pb2.ReadFileRequest(name=artifact.name, path=file.path))
        chunks = [chunk async for chunk in call]
        if file.path == "manifest.json":
            assert columns in json.loads(b"".join(chunk.data for chunk in chunks))["notes"]
        assert chunks[-1].end
        assert sum(len(chunk.data) for chunk in chunks) == file.size_bytes
    code, _, _ = await refused(
        plane.artifacts.ReadFile(artifact_pb2.ReadFileRequest(name=artifact.name, path="../key")).read()
    )
    assert code is grpc.StatusCode.NOT_FOUND

    logs = plane.jobs.FollowLogs(job_pb2.FollowLogsRequest(attempt=f"{created.name}/attempts/-", follow=True))
    pieces = [piece async for piece in logs]
    assert pieces[-1].end
    text = b"".join(piece.data for piece in pieces)
    assert columns.encode() in text
    tail = plane.jobs.FollowLogs(job_pb2.FollowLogsRequest(attempt=f"{created.name}/attempts/1", offset=10))
    assert b"".join([piece.data async for piece in tail]) == text[10:]
    recorded, token = [], ""
    while page := await plane.jobs.ListMetrics(job_pb2.ListMetricsRequest(parent=created.name, page_token=token)):
        recorded += [(point.metric, point.step) for point in page.points]
        token = page.next_page_token
        if not token:
            break
    assert len(recorded) == len(set(recorded)) > 50
    assert {("dense/accuracy", 120), ("pruning/accuracy", 120)} <= set(recorded)
    attempts = await plane.jobs.ListAttempts(job_pb2.ListAttemptsRequest(parent=created.name))
    assert [job_pb2.Attempt.State.Name(attempt.state) for attempt in attempts.attempts] == ["SUCCEEDED"]
    await check_the_mask_of_the_next(plane, last.job)

    await plane.jobs.DeleteJob(job_pb2.DeleteJobRequest(name=created.name))
    code, reason, _ = await refused(plane.jobs.GetJob(job_pb2.GetJobRequest(name=created.name)))
    assert (code, reason) == (grpc.StatusCode.NOT_FOUND, "NOT_FOUND")
    kept = await plane.artifacts.GetArtifact(artifact_pb2.GetArtifactRequest(name=artifact.name))
    assert kept.job == ""


async def check_the_mask_of_the_next(plane: Plane, first: job_pb2.Job) -> None:
    """Runs a job with the mask of another one."""
    mask = {"mask_from": {"job": first.name.rpartition("/")[2]}}
    job = plane.job(steps=60, movement=None, target_density=None, locked_mask=mask)
    second = (await plane.watch((await plane.create(job)).name))[-1].job
    assert job_pb2.Job.State.Name(second.state) == "SUCCEEDED", second.failure
    assert second.spec.locked_mask.mask_from.artifact == first.artifact

    manifests = []
    for one in (first, second):
        read = plane.artifacts.ReadFile(artifact_pb2.ReadFileRequest(name=one.artifact, path="manifest.json"))
        manifests.append(json.loads(b"".join([chunk.data async for chunk in read])))
    before, after = manifests
    assert [layer["nonzero"] for layer in after["layers"]] == [layer["nonzero"] for layer in before["layers"]]
    assert after["spec"]["mask_from"]["model"] == first.name
    assert len(after["spec"]["mask_from"]["sha256"]) == 64
    logs = plane.jobs.FollowLogs(job_pb2.FollowLogsRequest(attempt=f"{second.name}/attempts/-"))
    text = b"".join([piece.data async for piece in logs]).decode()
    assert f"fetching mask_from, artifact {first.artifact.rpartition('/')[2]}" in text


@pytest.mark.slow
async def test_a_student_learns_from_a_teacher_that_is_trained_for_it(plane: Plane) -> None:
    student = await plane.create(plane.job(steps=60, teacher={"train": True, "temperature": 3.0, "hidden_states": 1.0}))
    teacher = (await plane.watch(student.spec.teacher.job))[-1].job
    assert job_pb2.Job.State.Name(teacher.state) == "SUCCEEDED", teacher.failure
    assert {"eval/accuracy", "above_constant"} <= set(teacher.metrics)
    assert not [name for name in teacher.metrics if name.startswith(("dense/", "delta"))], (
        "it is the dense model: there is nothing to compare it with"
    )
    last = (await plane.watch(student.name))[-1].job
    assert job_pb2.Job.State.Name(last.state) == "SUCCEEDED", last.failure
    assert last.start_time.ToNanoseconds() > teacher.end_time.ToNanoseconds()

    artifacts = [
        await plane.artifacts.GetArtifact(artifact_pb2.GetArtifactRequest(name=job.artifact)) for job in (teacher, last)
    ]
    assert [artifact.accounting.density for artifact in artifacts] == [1.0, pytest.approx(0.1, rel=0.05)]
    read = plane.artifacts.ReadFile(artifact_pb2.ReadFileRequest(name=last.artifact, path="manifest.json"))
    manifest = json.loads(b"".join([chunk.data async for chunk in read]))
    assert manifest["spec"]["teacher"] == {
        "job": teacher.name,
        "temperature": 3.0,
        "alpha": 0.9,
        "hidden_states": 1.0,
    }
    logs = plane.jobs.FollowLogs(job_pb2.FollowLogsRequest(attempt=f"{student.name}/attempts/-"))
    text = b"".join([piece.data async for piece in logs]).decode()
    assert f"fetching the teacher, artifact {teacher.artifact.rpartition('/')[2]}" in text
    assert "Traceback" not in text


@pytest.mark.slow
async def test_cancel_reaches_the_training_process(plane: Plane, tmp_path: Path) -> None:
    created = await plane.create(plane.job(steps=100_000))
    async for message in plane.jobs.WatchJob(job_pb2.WatchJobRequest(name=created.name)):
        if message.job.progress.step > 1:
            break
    assert worker_processes(tmp_path / "home")
    await plane.jobs.CancelJob(job_pb2.CancelJobRequest(name=created.name, grace={"seconds": 1}))
    messages = await plane.watch(created.name)
    assert job_pb2.Job.State.Name(messages[-1].job.state) == "CANCELLED"
    await until_true(lambda: not worker_processes(tmp_path / "home"), "the supervisor reports first, then tidies up")
    again = await plane.jobs.CancelJob(job_pb2.CancelJobRequest(name=created.name))
    assert job_pb2.Job.State.Name(again.state) == "CANCELLED"


@pytest.mark.slow
async def test_an_unreachable_hub_is_said_in_plain_words(plane: Plane) -> None:
    created = await plane.create(plane.job(model="bert-base-uncased", task="squad", dataset=None, target_density=0.03))
    assert created.model_size.encoder_parameters == 85_054_464
    last = (await plane.watch(created.name))[-1].job
    assert job_pb2.Job.State.Name(last.state) == "FAILED"
    assert job_pb2.Failure.Reason.Name(last.failure.reason) == "UNREACHABLE_HUB"
    assert "cannot be reached" in last.failure.message
    logs = plane.jobs.FollowLogs(job_pb2.FollowLogsRequest(attempt=f"{created.name}/attempts/-"))
    assert b"Traceback" not in b"".join([piece.data async for piece in logs])


@pytest.mark.usefixtures("idle")
async def test_request_ids_and_job_ids_name_one_job(plane: Plane) -> None:
    first = await plane.create(plane.job(steps=1_000_000), request_id="r", job_id="mine")
    assert first.name == "projects/default/jobs/mine"
    other = plane.job(steps=21)
    code, reason, _ = await refused(plane.create(other, request_id="r", job_id="mine"))
    assert (code, reason) == (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")
    code, reason, _ = await refused(plane.create(other, request_id="s", job_id="mine"))
    assert (code, reason) == (grpc.StatusCode.ALREADY_EXISTS, "ALREADY_EXISTS")
    code, reason, _ = await refused(plane.jobs.DeleteJob(job_pb2.DeleteJobRequest(name=first.name)))
    assert (code, reason) == (grpc.StatusCode.FAILED_PRECONDITION, "JOB_NOT_FINISHED")
    await plane.jobs.CancelJob(job_pb2.CancelJobRequest(name=first.name, grace={"seconds": 0}))
    assert (await plane.watch(first.name))[-1].done
    again = plane.job(steps=1_000_000)
    assert (await plane.create(again, request_id="r", job_id="mine")).uid == first.uid
    await plane.jobs.DeleteJob(job_pb2.DeleteJobRequest(name=first.name))
    made = await plane.create(again, request_id="r", job_id="mine")
    assert (made.uid != first.uid, made.state) == (True, job_pb2.Job.QUEUED)


async def test_validate_only_stores_nothing(plane: Plane) -> None:
    answer = await plane.create(validate_only=True)
    assert answer.model_size.prunable_weights
    assert answer.policy.max_attempts == 3
    assert not (await plane.jobs.ListJobs(job_pb2.ListJobsRequest(parent=PARENT))).jobs


@pytest.mark.usefixtures("idle")
async def test_listing_pages_through_everything_newest_first(plane: Plane) -> None:
    plane_jobs = [plane.job(steps=1_000_000) for _ in range(7)]
    names = [(await plane.create(job, request_id=f"r{i}")).name for i, job in enumerate(plane_jobs)]
    seen, token = [], ""
    while True:
        page = await plane.jobs.ListJobs(job_pb2.ListJobsRequest(parent=PARENT, page_size=3, page_token=token))
        assert len(page.jobs) <= 3
        seen += [job.name for job in page.jobs]
        token = page.next_page_token
        if not token:
            break
    assert seen == names[::-1]
    code, _, fields = await refused(plane.jobs.ListJobs(job_pb2.ListJobsRequest(parent=PARENT, page_token="x")))
    assert (code, list(fields)) == (grpc.StatusCode.INVALID_ARGUMENT, ["page_token"])
    for name in names:
        await plane.jobs.CancelJob(job_pb2.CancelJobRequest(name=name, grace={"seconds": 0}))
    for name in names:
        assert (await plane.watch(name))[-1].done


async def test_only_the_attempts_own_credential_opens_it(plane: Plane) -> None:
    lease = worker_pb2.Lease(attempt="projects/default/jobs/a/attempts/1", fencing_token=1)
    for metadata in ((), (("authorization", "Bearer guess"),)):
        code, reason, _ = await refused(
            plane.workers.Heartbeat(worker_pb2.HeartbeatRequest(lease=lease), metadata=metadata)
        )
        assert (code, reason) == (grpc.StatusCode.UNAUTHENTICATED, "BAD_CREDENTIAL")


async def test_workers_are_not_served_on_the_clients_port(plane: Plane) -> None:
    stub = worker_pb2_grpc.WorkerServiceStub(plane.channel)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Heartbeat(worker_pb2.HeartbeatRequest())
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_second_server_on_the_same_home_refuses_to_start(plane: Plane, tmp_path: Path) -> None:
    with pytest.raises(StartError, match="another server uses"):
        async with Service(plane.service.settings):
            pass


async def test_listening_beyond_this_machine_has_to_be_meant(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home", address="0.0.0.0:0", executor="local", roots=(tmp_path,))
    with pytest.raises(StartError, match="allow-remote"):
        async with Service(settings):
            pass


@pytest.mark.slow
async def test_a_restarted_server_goes_on_with_its_jobs(tmp_path: Path, tiny: Tiny) -> None:
    address, worker_address = (f"127.0.0.1:{port}" for port in free_ports(2))
    settings = local_settings(tmp_path, tiny).model_copy(update={"address": address, "worker_address": worker_address})
    async with Service(settings) as service, aclosing(Plane(service, tiny)) as plane:
        created = await plane.create(plane.job(steps=60))
        async for message in plane.jobs.WatchJob(job_pb2.WatchJobRequest(name=created.name)):
            if message.job.progress.step > 1:
                break
    async with Service(settings) as service, aclosing(Plane(service, tiny)) as plane:
        last = (await plane.watch(created.name))[-1].job
        assert job_pb2.Job.State.Name(last.state) == "SUCCEEDED", last.failure
        assert last.attempt == 1


def worker_processes(home: Path) -> list[int]:
    """Processes whose environment names this home's scratch folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if f"MVPRUNE_SCRATCH={home}".encode() in environment:
                found.append(int(entry.name))
    return found


@pytest.mark.usefixtures("idle")
async def test_watchers_whose_connection_dies_leave_nothing_behind(
    plane: Plane, caplog: pytest.LogCaptureFixture
) -> None:
    created = await plane.create()
    channel = grpc.aio.insecure_channel(plane.service.address)
    watch = job_pb2_grpc.JobServiceStub(channel).WatchJob
    calls = [watch(job_pb2.WatchJobRequest(name=created.name)) for _ in range(200)]
    await asyncio.gather(*(call.read() for call in calls))
    admin = admin_pb2_grpc.AdminServiceStub(plane.channel)

    async def watchers() -> int:
        return int((await admin.GetServerStatus(admin_pb2.GetServerStatusRequest())).watchers)

    assert await watchers() == 200
    await channel.close()
    await until_seen(watchers, lambda count: count == 0)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
