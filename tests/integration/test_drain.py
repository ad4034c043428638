"""SIGTERM to a real server process: who is connected is told, nothing is lost, and a restart goes on where it was."""

from __future__ import annotations

import json
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from mvprune import Client, Job, ServerUnreachable
from mvprune.v1 import job_pb2, job_pb2_grpc
from mvprune_service.executors import processes
from mvprune_service.executors.embedded_ray import MARK

from ..conftest import server_path
from ..refusals import status_details
from ..waiting import PATIENCE, until
from .servers import Data, Server

CHATTY = {"PYTHONPATH": str(Path(__file__).with_name("chatty"))}
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
def data(tmp_path: Path) -> Data:
    return Data.write(tmp_path)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "home")
    yield server
    server.close()


@contextmanager
def channel(server: Server) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.address) as opened:
        yield opened


def submit(client: Client, data: Data, **options: Any) -> Job:
    return client.submit(
        model="bert-base-uncased",
        task="text-classification",
        train=server_path(data.train),
        validation=server_path(data.validation),
        density=0.1,
        cpus=1,
        **options,
    )


def answers(client: Client, job: Job) -> bool:
    with suppress(ServerUnreachable):
        return client.get(job).uid == job.uid
    return False


def told(error: grpc.RpcError) -> tuple[grpc.StatusCode, str, float]:
    """Code, reason and delay of an error."""
    reason, delay = "", 0.0
    for detail in status_details(error):
        info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
        if detail.Unpack(info):
            reason = info.reason
        elif detail.Unpack(retry):
            delay = retry.retry_delay.ToNanoseconds() / 1e9
    return error.code(), reason, delay


DRAINING = (grpc.StatusCode.UNAVAILABLE, "SERVER_DRAINING", 1.0)


@pytest.mark.slow
def test_a_watcher_and_a_log_follower_over_a_restart(server: Server, data: Data) -> None:
    process = server.start(CHATTY, drain_seconds=PATIENCE)
    with Client(server.address) as client:
        job = submit(client, data, labels={"n": "1"})
        sequences: list[int] = []
        log = bytearray()

        def watch() -> None:
            for update in client.watch(job):
                sequences.extend(event.sequence for event in update.events)

        def follow() -> None:
            for data in client.logs(job, follow=True):
                log.extend(data)

        until(lambda: client.get(job).state == "RUNNING", "the job runs")
        threads = [threading.Thread(target=work) for work in (watch, follow)]
        for thread in threads:
            thread.start()
        until(lambda: log and len(sequences) == 3, "both follow")
        (attempt,) = client.attempts(job)

        with channel(server) as raw:
            jobs, health = job_pb2_grpc.JobServiceStub(raw), health_pb2_grpc.HealthStub(raw)
            stream = jobs.WatchJob(job_pb2.WatchJobRequest(name=job.name))
            next(stream)
            process.send_signal(signal.SIGTERM)
            with pytest.raises(grpc.RpcError) as cut:
                for _ in stream:
                    pass
            assert told(cut.value) == DRAINING
            assert health.Check(health_pb2.HealthCheckRequest()).status == NOT_SERVING
            with pytest.raises(grpc.RpcError) as refused:
                next(jobs.FollowLogs(job_pb2.FollowLogsRequest(attempt=attempt.name)))
            assert told(refused.value) == DRAINING
            assert jobs.GetJob(job_pb2.GetJobRequest(name=job.name)).uid == job.uid
            queued = submit(client, data, display_name="comes too late")
        process.send_signal(signal.SIGTERM)  # the followers wait for a minute, no longer
        assert process.wait(PATIENCE) == 0
        assert server.states() == {job.id: "RUNNING", queued.id: "QUEUED"}
        assert not (server.home / "server.json").exists()

        server.start(CHATTY)
        until(lambda: answers(client, job), "the client is connected again")
        (after,) = client.attempts(job)
        assert after.name == attempt.name
        until(lambda: client.get(queued).state != "QUEUED", "the queue goes on")
        client.cancel(queued)
        size = len(log)
        until(lambda: next(client.attempts(job)).last_heartbeat_time > after.last_heartbeat_time, "a heartbeat")
        until(lambda: len(log) > size, "the worker, which noticed nothing, sends its log")
        client.cancel(job)
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        events = [event.sequence for event in client.events(job)]
        assert sequences == events == list(range(1, len(events) + 1))
        assert bytes(log) == b"".join(client.logs(job))
    assert "Traceback" not in server.log()


@pytest.mark.slow
def test_a_server_killed_while_it_drains_loses_nothing(server: Server, data: Data) -> None:
    process = server.start(CHATTY, drain_seconds=2 * PATIENCE)
    with Client(server.address) as client:
        process.send_signal(signal.SIGTERM)
        with channel(server) as raw:
            health = health_pb2_grpc.HealthStub(raw)
            until(lambda: health.Check(health_pb2.HealthCheckRequest()).status == NOT_SERVING, "it drains")
        late = submit(client, data)
        process.kill()
        process.wait()
        assert server.states() == {late.id: "QUEUED"}
        server.start(CHATTY)
        until(lambda: answers(client, late), "the client is connected again")
        client.cancel(late)
        *_, last = client.watch(late)
        assert last.job.state == "CANCELLED"


@pytest.mark.slow
def test_a_second_signal_stops_at_once(server: Server) -> None:
    process = server.start(CHATTY, drain_seconds=2 * PATIENCE)
    process.send_signal(signal.SIGTERM)
    with channel(server) as raw:
        health = health_pb2_grpc.HealthStub(raw)
        until(lambda: health.Check(health_pb2.HealthCheckRequest()).status == NOT_SERVING, "it drains")
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_ray_starts_ends_both(server: Server, number: signal.Signals) -> None:
    process = server.launch(executor="ray")
    ray = server.home / "ray.json"
    until(ray.exists, "Ray is about to start")
    mark = json.loads(ray.read_text())["mark"]
    until(lambda: processes.marked(MARK, mark), "Ray is starting")
    process.send_signal(number)
    assert process.wait(PATIENCE) == 0
    assert not processes.marked(MARK, mark)
    assert not ray.exists()
    assert server.log() == "starting …\nstopped before it served\n"


@pytest.mark.slow
def test_a_drain_lasts_as_long_as_it_was_told_to(server: Server) -> None:
    process = server.start(CHATTY, drain_seconds=2)
    signalled = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    assert time.monotonic() - signalled > 1.5


@pytest.mark.slow
def test_a_call_under_way_is_finished(server: Server) -> None:
    process = server.start(CHATTY)
    with channel(server) as raw, closing(sqlite3.connect(server.home / "mvprune.sqlite")) as other:
        jobs, health = job_pb2_grpc.JobServiceStub(raw), health_pb2_grpc.HealthStub(raw)
        name = job_pb2.DeleteJobRequest(name="projects/default/jobs/none", allow_missing=True)
        other.execute("BEGIN IMMEDIATE")  # what the call has to wait for
        call = jobs.DeleteJob.future(name)
        # What comes later on the same connection is answered: the server has the call.
        health.Check(health_pb2.HealthCheckRequest())
        assert not call.done()
        process.send_signal(signal.SIGSTOP)  # it waits for calls no longer than seconds, which may pass here
        process.send_signal(signal.SIGINT)
        other.rollback()
        process.send_signal(signal.SIGCONT)
        assert call.result(timeout=PATIENCE) == job_pb2.DeleteJobResponse()
    assert process.wait(PATIENCE) == 0
    assert "stopping" in server.log()
