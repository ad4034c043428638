"""How a trainer or its supervisor can end, and what it leaves."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from mvprune.v1 import job_pb2, worker_pb2
from mvprune_workers.exits import ExitCode


@pytest.mark.parametrize(
    ("model", "reason", "words"),
    [
        ("fails", "INVALID_DATASET", "train.jsonl line 7: not JSON"),
        ("exits", "TRAINER_CRASHED", "exited with code 3; its last log line: cannot go on: the flux is out of range"),
        ("silent", "TRAINER_CRASHED", "ended without a result"),
        ("killed", "TRAINER_KILLED", "was killed by signal 9 (SIGKILL) before the work began"),
        ("crashes", "TRAINER_CRASHED", "crashed: signal 11 (SIGSEGV)"),
    ],
)
def test_why_a_trainer_ended(worker: Any, model: str, reason: str, words: str) -> None:
    worker.start(model)
    assert worker.wait() is ExitCode.FAILED
    [outcome] = worker.service.outcomes
    assert job_pb2.Failure.Reason.Name(outcome.failure.reason) == reason
    assert words in outcome.failure.message
    assert words.encode() in bytes(worker.service.log)
    worker.assert_clean()


def test_a_trainer_that_was_stopped_by_others_was_preempted(worker: Any) -> None:
    worker.start("stoppable")
    worker.told("working")
    os.kill(int(worker.told("trainer.pid")), signal.SIGTERM)
    assert worker.wait() is ExitCode.PREEMPTED
    [outcome] = worker.service.outcomes
    assert outcome.failure.reason == job_pb2.Failure.PREEMPTED
    worker.assert_clean()


def test_a_trainer_that_stops_as_it_was_told_to_is_cancelled(worker: Any) -> None:
    worker.service.grace = 3600.0  # it is not used up
    worker.start("stoppable")
    worker.told("working")
    worker.service.directive = worker_pb2.HeartbeatResponse.CANCEL
    assert worker.wait() is ExitCode.CANCELLED
    assert worker.told("stopped") == "x"
    [outcome] = worker.service.outcomes
    assert outcome.WhichOneof("outcome") == "cancelled"
    worker.assert_clean()


@pytest.mark.slow
def test_a_killed_supervisor_takes_its_trainer_along(worker: Any) -> None:
    worker.start("stubborn")
    worker.told("working")
    assert worker.process is not None
    worker.process.kill()
    for name in ("trainer.pid", "child.pid"):
        worker.gone(int(worker.told(name)))
    # What it left in the scratch folder is removed by the next worker there.
    assert list(worker.scratch.iterdir())
    worker.go()
    worker.start()
    assert worker.wait() is ExitCode.PUBLISHED
    worker.assert_clean()


def test_what_a_trainer_leaves_running_ends_with_it(worker: Any) -> None:
    worker.start("leaves a child")
    assert worker.wait() is ExitCode.FAILED
    worker.gone(int(worker.told("child.pid")))


@pytest.mark.parametrize("cancelling", [False, True])
def test_sigterm(worker: Any, cancelling: bool) -> None:
    """A stop from outside is a preemption, unless the server wants the attempt cancelled anyway. A trainer that does
    not end is not waited for."""
    worker.service.grace = 3600.0
    worker.start("stoppable" if cancelling else "stubborn", checkpoint=1.0)
    worker.told("working")
    worker.service.wait(lambda: worker.service.heartbeats)
    assert worker.process is not None
    if cancelling:
        worker.service.directive = worker_pb2.HeartbeatResponse.CANCEL
    worker.process.send_signal(signal.SIGTERM)
    assert worker.wait() is (ExitCode.CANCELLED if cancelling else ExitCode.PREEMPTED)
    [outcome] = worker.service.outcomes
    if cancelling:
        assert outcome.WhichOneof("outcome") == "cancelled"
    else:
        assert outcome.failure.reason == job_pb2.Failure.PREEMPTED
    worker.assert_clean()
