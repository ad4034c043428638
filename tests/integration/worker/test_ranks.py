"""An attempt whose trainer starts other ranks: they work, stop and die together."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from mvprune.v1 import job_pb2
from mvprune_service.stores.layout import verify
from mvprune_workers.exits import ExitCode

from ...waiting import until
from .test_real_trainer import real_job, trainer_of


def start(worker: Any, tiny: Any, *, warm: bool) -> None:
    """Starts an attempt of two ranks."""
    roots = {"MVPRUNE_MODELS": str(tiny.models), "MVPRUNE_DATA": str(tiny.train.parent)}
    worker.cpus = "2"
    worker.start_real_with({**roots, "MVPRUNE_WORKERS": "2"}, warm=warm)


def sibling_of(worker: Any) -> int:
    """The process of rank 1."""
    trainer = trainer_of(worker)
    children = Path(f"/proc/{trainer}/task/{trainer}/children").read_text().split()
    [sibling] = [int(pid) for pid in children if b"--rank" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]
    return sibling


@pytest.mark.slow
def test_two_ranks_make_an_artifact(worker: Any, tiny: Any) -> None:
    worker.service.spec = real_job(tiny)
    start(worker, tiny, warm=True)
    assert worker.wait() is ExitCode.PUBLISHED, worker.output.read_text()
    [outcome] = worker.service.outcomes
    manifest = verify(worker.store, outcome.manifest_sha256)
    note = "2 ranks train together; another number of ranks gives the same result up to rounding"
    assert note in manifest["notes"]
    log = worker.service.log.decode()
    assert log.count("pruning: step 12 of 12, loss") == 1, "rank 0 says it"
    assert log.count(note) == 1
    assert "Traceback" not in log
    worker.assert_clean()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_ranks_end_together(worker: Any, tiny: Any, number: signal.Signals) -> None:
    """Torch itself would wait for 30 minutes, longer than any test lasts."""
    worker.service.spec = real_job(tiny)
    worker.service.spec.training.max_steps = 100_000
    start(worker, tiny, warm=False)  # their process group is a real one
    worker.service.wait(lambda: any(beat.progress.step > 1 for beat in worker.service.heartbeats))
    trainer, sibling = trainer_of(worker), sibling_of(worker)
    if number == signal.SIGKILL:
        os.kill(sibling, signal.SIGKILL)
        assert worker.wait() is ExitCode.FAILED
        [outcome] = worker.service.outcomes
        assert outcome.failure.reason in (job_pb2.Failure.TRAINER_KILLED, job_pb2.Failure.OUT_OF_MEMORY)
        assert worker.log_has("rank 1 was killed by signal 9")
    else:
        os.killpg(trainer, signal.SIGTERM)
        assert worker.wait() is ExitCode.PREEMPTED
        assert b"stopped as asked\n" in worker.service.log
        assert b"Traceback" not in worker.service.log
    until(lambda: not worker.alive(sibling), "rank 1 is dead")
    worker.assert_clean()


@pytest.mark.slow
@pytest.mark.parametrize("stopped", ["trainer", "child"])
def test_a_rank_that_is_stopped_ends_the_attempt(worker: Any, stopped: str) -> None:
    """The others would wait for it until torch gives up; a trainer of one rank for ever."""
    worker.start("ranks", silent=2.5, lost=4.0)
    pids = {name: int(worker.told(f"{name}.pid")) for name in ("trainer", "child")}
    worker.service.wait(lambda: worker.service.heartbeats)
    worker.told("signs")
    os.kill(pids[stopped], signal.SIGSTOP)
    assert worker.wait() is ExitCode.FAILED
    number = 0 if stopped == "trainer" else 1
    [outcome] = worker.service.outcomes
    assert outcome.failure.reason == job_pb2.Failure.WORKER_LOST
    assert outcome.failure.message == f"The attempt has lost rank {number}: no answer for 4s; stopped, or hanging."
    assert worker.log_has(
        f"supervisor: rank {number} has not answered for 2s: it is stopped, or hangs; the attempt ends"
    )
    worker.assert_clean()


def test_a_rank_that_was_stopped_for_a_while_goes_on(worker: Any) -> None:
    worker.start("ranks", silent=2.5)
    child = int(worker.told("child.pid"))
    worker.service.wait(lambda: worker.service.heartbeats)
    worker.told("signs")
    os.kill(child, signal.SIGSTOP)
    until(lambda: worker.log_has("rank 1 has not answered for"), "the log says it")
    os.kill(child, signal.SIGCONT)
    until(lambda: worker.log_has("rank 1 answers again, after"), "the log says that too")
    worker.go()
    assert worker.wait() is ExitCode.PUBLISHED
    worker.assert_clean()
