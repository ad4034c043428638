"""What the supervisor does around a trainer, and without it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import grpc
import pytest

from mvprune.v1 import job_pb2, worker_pb2
from mvprune_service.stores.layout import verify
from mvprune_workers.exits import ExitCode

from ...waiting import PATIENCE, until


def test_a_result_is_published_before_it_is_reported(worker: Any) -> None:
    markers: list[str | None] = []

    worker.service.before.append(lambda call, _: markers.append(worker.marker()) if call == "complete" else None)
    worker.start()
    worker.service.wait(lambda: any(beat.progress.phase == "pruning" for beat in worker.service.heartbeats))
    worker.go()
    assert worker.wait() is ExitCode.PUBLISHED

    [outcome] = worker.service.outcomes
    assert markers == [outcome.manifest_sha256]
    assert verify(worker.store, outcome.manifest_sha256)["metrics"] == {"eval/accuracy": 0.5}
    progress = next(beat.progress for beat in worker.service.heartbeats if beat.progress.phase == "pruning")
    assert (progress.step, progress.total_steps, progress.density, progress.loss) == (3, 10, 0.25, 0.7)
    assert progress.eta.seconds == 12
    assert len(worker.service.points) == 1500
    assert worker.service.points["pruning/loss", 3] == 0.25
    worker.assert_clean()


def test_the_trainer_sees_no_credentials_and_its_share_of_cpus(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOMP_SPINCOUNT")  # that of the tests
    worker.cpus = "1.5"
    worker.go()
    worker.start()
    environment = json.loads(worker.told("environment"))
    assert worker.wait() is ExitCode.PUBLISHED
    assert worker.secret not in environment.values()
    assert "store-secret" not in environment.values()
    assert "OTEL_EXPORTER_OTLP_HEADERS" not in environment
    assert environment["OMP_NUM_THREADS"] == "2"
    assert environment["GOMP_SPINCOUNT"] == "3000"
    assert worker.told("share") == "2 cpu"
    assert Path(environment["TMPDIR"]).is_relative_to(worker.scratch)


@pytest.mark.slow
def test_every_byte_of_output_is_shipped_once(worker: Any) -> None:
    """Also where answers are lost after the server has acted, and where it has bytes of an earlier claim."""
    worker.service.log_offset = 1000
    for call in ("claim", "logs", "metrics", "complete"):
        worker.service.lose_answers(call, 2)
    worker.start()
    worker.told("working")
    worker.go()
    assert worker.wait() is ExitCode.PUBLISHED

    log = bytes(worker.service.log)
    assert b"plain line\n" in log
    assert b"\xff\xfe not text\n" in log
    assert b"long " * 120_000 + b"\n" in log
    assert log.endswith(b"\n")
    assert log == worker.output.read_bytes()
    assert len(worker.service.points) == 1500
    assert len({outcome.manifest_sha256 for outcome in worker.service.outcomes}) == 1
    assert len(worker.service.outcomes) == 3


@pytest.mark.parametrize("code", [grpc.StatusCode.ABORTED, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAUTHENTICATED])
def test_a_refused_claim_ends_the_worker_at_once(worker: Any, code: grpc.StatusCode) -> None:
    worker.service.fail("claim", code)
    worker.start(claim=3600.0)
    assert worker.wait() is ExitCode.REFUSED
    assert worker.service.calls == []
    worker.assert_clean()


def test_no_server_to_claim_from(worker: Any) -> None:
    worker.server.stop(None).wait()
    worker.start(claim=1.0)
    assert worker.wait() is ExitCode.UNREACHABLE
    worker.assert_clean()
    trying, last = [line for line in worker.output.read_text().splitlines() if " supervisor: " in line]
    target = f"the server at 127.0.0.1:{worker.port}"
    assert f"{target} cannot be reached, trying again: ClaimAttempt: UNAVAILABLE: " in trying
    assert f"{target} could not be reached: ClaimAttempt: UNAVAILABLE: " in last


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "dns:///localhost", "ipv4:127.0.0.1"])  # noqa: S104
def test_a_proxy_is_not_asked_for_a_server_on_this_machine(
    worker: Any, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind_a_proxy(monkeypatch)
    monkeypatch.setenv("no_grpc_proxy", "intranet")  # gRPC does not read no_proxy then
    monkeypatch.setattr(worker, "target", f"{host}:{worker.port}")
    worker.service.fail("claim", grpc.StatusCode.ABORTED)
    worker.start(claim=3.0)
    assert worker.wait() is ExitCode.REFUSED, "the server was asked"


def test_a_proxy_that_keeps_a_worker_from_the_server_is_named(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    behind_a_proxy(monkeypatch)
    monkeypatch.setattr(worker, "target", "mvprune.invalid:7071")
    worker.start(claim=0.5)
    assert worker.wait() is ExitCode.UNREACHABLE
    said = worker.output.read_text().splitlines()[-1]
    assert said.endswith(
        "; https_proxy names a proxy for it: if the server is reached without one, add its host to no_proxy"
    )
    assert "s3cret" not in said


def behind_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that accepts nothing."""
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://me:s3cret@127.0.0.1:9")
    for name in ("grpc_proxy", "no_proxy", "no_grpc_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.slow
def test_a_call_without_an_answer_is_made_again_on_a_new_connection(worker: Any) -> None:
    peers: list[str] = []
    release = threading.Event()

    def hang_once(call: str, context: grpc.ServicerContext) -> None:
        if call == "claim":
            peers.append(context.peer())
            if len(peers) == 1:
                release.wait(PATIENCE)

    worker.service.before.append(hang_once)
    worker.go()
    worker.start(call=2.0)
    assert worker.wait() is ExitCode.PUBLISHED
    release.set()
    assert peers[1] != peers[0]


@pytest.mark.slow
@pytest.mark.parametrize("code", ["UNAVAILABLE", "RESOURCE_EXHAUSTED", "INTERNAL"])
def test_what_a_server_in_trouble_answers_stops_nobody(worker: Any, code: str) -> None:
    worker.service.checkpoint_interval = 0.01
    for call in ("claim", "heartbeat", "logs", "metrics", "commit", "complete"):
        worker.service.fail(call, grpc.StatusCode[code], times=2)
    worker.go_to(1)
    worker.start("steps")
    worker.told("step")
    worker.service.wait(lambda: len(worker.service.heartbeats) > 1)
    worker.go()
    assert worker.wait() is ExitCode.PUBLISHED
    assert worker.service.outcomes[-1].manifest_sha256 == worker.marker()


@pytest.mark.slow
def test_a_log_that_is_sent_too_fast_waits_and_stays_in_order(worker: Any) -> None:
    """The server takes a chunk, refuses two, takes the next, and so on."""
    turn = iter(range(10**6))

    def throttle(call: str, context: grpc.ServicerContext) -> None:
        if call == "logs" and next(turn) % 3:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too much")

    worker.service.before.append(throttle)
    worker.go()
    worker.start()
    assert worker.wait() is ExitCode.PUBLISHED
    assert bytes(worker.service.log) == worker.output.read_bytes()


def test_logs_and_metrics_that_are_refused_do_not_matter(worker: Any) -> None:
    for call in ("logs", "metrics"):
        worker.service.fail(call, grpc.StatusCode.INVALID_ARGUMENT)
    worker.go()
    worker.start()
    assert worker.wait() is ExitCode.PUBLISHED


def test_cancelling_kills_a_trainer_that_ignores_sigterm_and_its_child(worker: Any) -> None:
    worker.start("stubborn")
    worker.told("working")
    pids = [int(worker.told("trainer.pid")), int(worker.told("child.pid"))]
    assert all(worker.alive(pid) for pid in pids)
    worker.service.directive = worker_pb2.HeartbeatResponse.CANCEL
    assert worker.wait() is ExitCode.CANCELLED
    [outcome] = worker.service.outcomes
    assert outcome.WhichOneof("outcome") == "cancelled"
    assert not any(worker.alive(pid) for pid in pids)
    worker.assert_clean()


def test_the_server_sets_the_interval_of_heartbeats(worker: Any) -> None:
    worker.service.next_interval = 3600.0
    worker.start("stoppable")
    worker.told("working")
    worker.service.wait(lambda: worker.service.heartbeats)
    time.sleep(1.0)  # twenty intervals of the claim
    assert len(worker.service.heartbeats) == 1
    worker.process.send_signal(signal.SIGTERM)
    assert worker.wait() is ExitCode.PREEMPTED


def test_a_lost_lease_ends_all_and_publishes_nothing(worker: Any) -> None:
    worker.start()
    worker.told("working")
    worker.service.fail("heartbeat", grpc.StatusCode.ABORTED)
    assert worker.wait() is ExitCode.LEASE_LOST
    assert worker.service.outcomes == []
    assert worker.marker() is None
    worker.assert_clean()


def test_the_lease_is_checked_before_the_marker_is_written(worker: Any) -> None:
    worker.service.heartbeat_interval = 600.0  # no other heartbeat comes
    worker.service.fail("heartbeat", grpc.StatusCode.ABORTED)
    worker.go()
    worker.start()
    assert worker.wait() is ExitCode.LEASE_LOST
    assert len(list(worker.store.list("manifests/"))) == 1, "all but the marker was there"
    assert worker.marker() is None
    assert worker.service.outcomes == []
    worker.assert_clean()


def test_a_supervisor_that_wakes_up_after_its_lease_is_gone_publishes_nothing(worker: Any) -> None:
    worker.start()
    worker.told("working")
    worker.service.wait(lambda: worker.service.heartbeats)
    assert worker.process is not None
    worker.process.send_signal(signal.SIGSTOP)
    for call in ("heartbeat", "logs", "metrics", "commit", "complete"):
        worker.service.fail(call, grpc.StatusCode.ABORTED)
    worker.go()  # the trainer ends its work meanwhile
    worker.gone(int(worker.told("trainer.pid")))
    worker.process.send_signal(signal.SIGCONT)
    assert worker.wait() is ExitCode.LEASE_LOST
    assert worker.marker() is None
    assert worker.service.outcomes == []
    worker.assert_clean()


@pytest.mark.slow
def test_a_lease_that_is_lost_while_the_store_is_away(worker: Any) -> None:
    worker.lock_out()
    worker.go()
    worker.start()
    worker.service.wait(lambda: any(beat.progress.phase == "uploading" for beat in worker.service.heartbeats))
    worker.service.fail("heartbeat", grpc.StatusCode.ABORTED)
    assert worker.wait() is ExitCode.LEASE_LOST
    assert worker.service.outcomes == []
    worker.assert_clean()


@pytest.mark.slow
def test_work_goes_on_while_the_server_is_away(worker: Any) -> None:
    worker.start()
    worker.told("working")
    worker.service.wait(lambda: worker.service.heartbeats)
    worker.server.stop(None).wait()
    worker.go()
    until(worker.marker, "the result is published")
    worker.listen()
    assert worker.wait() is ExitCode.PUBLISHED
    assert worker.service.outcomes[-1].manifest_sha256 == worker.marker()
    assert b"went on\n" in bytes(worker.service.log)
    worker.assert_clean()


def test_publishing_does_not_wait_for_the_trainer_to_end(worker: Any) -> None:
    worker.start("lingers", stop=0.2)
    assert worker.wait() is ExitCode.PUBLISHED
    assert worker.service.outcomes[0].manifest_sha256 == worker.marker()
    worker.assert_clean()


@pytest.mark.slow
def test_a_published_result_needs_no_report(worker: Any) -> None:
    worker.start(flush=0.2, complete=0.5)
    worker.told("working")
    worker.server.stop(None).wait()
    worker.go()
    assert worker.wait() is ExitCode.PUBLISHED
    assert worker.marker()
    worker.assert_clean()


def test_publishing_waits_for_the_store(worker: Any) -> None:
    give_back = worker.lock_out()
    worker.go()
    worker.start()
    worker.service.wait(lambda: b"trying again" in bytes(worker.service.log))
    give_back()
    assert worker.wait() is ExitCode.PUBLISHED
    assert worker.service.outcomes[0].manifest_sha256 == worker.marker()


def test_a_store_that_stays_away_is_a_failure_of_its_own(worker: Any) -> None:
    worker.lock_out()
    worker.go()
    worker.start(transfer=0.5)
    assert worker.wait() is ExitCode.FAILED
    assert worker.service.outcomes[0].failure.reason == job_pb2.Failure.STORE_UNAVAILABLE
    worker.assert_clean()


def test_missing_settings_are_named(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "mvprune_workers"],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert run.returncode == ExitCode.USAGE
    assert "MVPRUNE_ATTEMPT_UID must be set" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize("content", [None, "authorization=s3cr3t,s3cr3t", "authorization=s3cr3t"])
def test_a_file_of_headers_that_cannot_be_used_is_named_and_not_shown(
    worker: Any, tmp_path: Path, content: str | None
) -> None:
    """It is missing on the worker's machine, malformed, or given beside the variable."""
    file = tmp_path / "headers"
    if content is not None:
        file.write_text(content)
    more = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_HEADERS_FILE": str(file)}
    if content != "authorization=s3cr3t":
        more["OTEL_EXPORTER_OTLP_HEADERS"] = ""
    command = [sys.executable, "-m", "mvprune_workers"]
    run = subprocess.run(
        command, env=worker.environment(more), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert run.returncode == ExitCode.USAGE
    (line,) = run.stderr.splitlines()
    assert line.startswith("mvprune_workers: OTEL_EXPORTER_OTLP_HEADERS_FILE must ")
    assert worker.service.calls == [], "nothing was started"
    for secret in ("s3cr3t", "collector-secret", worker.secret):
        assert secret not in run.stdout + run.stderr
