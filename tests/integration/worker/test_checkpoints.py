"""Checkpoints between attempts: from the trainer into the store, and from the store into a later trainer."""

from __future__ import annotations

import errno
import os
import signal
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import grpc
import pytest

from mvprune.v1 import job_pb2, worker_pb2
from mvprune_service.stores.checkpoints import checkpoint_prefix, fetch_checkpoint, put_checkpoint
from mvprune_workers import checkpoints
from mvprune_workers.exits import ExitCode

from ...waiting import PATIENCE


def step_of(folder: Path) -> int:
    return int((folder / "state").read_text().split()[0])


def fetched(worker: Any, commit: worker_pb2.CommitCheckpointRequest) -> int:
    """The step that a committed checkpoint leads to, fetched whole."""
    folder = worker.folder / f"fetched-{commit.step}"
    fetch_checkpoint(worker.store, worker.uid, commit.step, commit.manifest_sha256, folder)
    return step_of(folder)


def earlier(worker: Any, step: int) -> worker_pb2.Checkpoint:
    """A checkpoint that an earlier attempt left in the store."""
    folder = worker.folder / f"earlier-{step}"
    folder.mkdir()
    (folder / "state").write_text(f"{step} {'x' * 1000}")
    manifest = put_checkpoint(worker.store, folder, "0190-earlier", step)
    return worker_pb2.Checkpoint(attempt_uid="0190-earlier", step=step, manifest_sha256=manifest)


def test_the_newest_checkpoint_is_committed_when_it_is_due(worker: Any) -> None:
    """More of them come while the first is being committed."""
    go_on = threading.Event()
    worker.service.after.append(lambda call, _: call == "commit" and go_on.wait(PATIENCE))
    worker.service.checkpoint_interval = 0.5
    worker.go_to(5)
    worker.start("steps")
    worker.service.wait(lambda: worker.service.committed)
    worker.go_to(8)
    worker.service.wait(lambda: ("steps", 8) in worker.service.points)
    go_on.set()
    worker.service.wait(lambda: len(worker.service.committed) == 2)
    worker.go()
    assert worker.wait() is ExitCode.PUBLISHED
    first, second = worker.service.committed
    assert first.step <= fetched(worker, first) <= 5
    assert second.step == fetched(worker, second) == 8, "the newest alone"
    assert worker.log_has("committed the checkpoint of step 8")
    worker.assert_clean()


def test_a_run_shorter_than_the_interval_uploads_nothing(worker: Any) -> None:
    worker.go_to(3)
    worker.start("steps")
    worker.reaches(3)
    worker.go()
    assert worker.wait() is ExitCode.PUBLISHED
    assert worker.service.committed == []
    assert list(worker.store.list(f"attempts/{worker.uid}/checkpoints/")) == []


def test_training_does_not_wait_for_a_store_that_is_away(worker: Any) -> None:
    give_back = worker.lock_out()
    worker.service.checkpoint_interval = 0.3
    worker.go_to(1)
    worker.start("steps")
    worker.service.wait(lambda: worker.log_has("the checkpoint of step 1 is given up"))
    worker.go_to(20)
    worker.reaches(20)
    give_back()
    worker.go_to(21)
    worker.service.wait(lambda: worker.service.committed and worker.service.committed[-1].step == 21)
    worker.go()
    assert worker.wait() is ExitCode.PUBLISHED
    assert fetched(worker, worker.service.committed[-1]) == 21


def test_a_commit_that_finds_no_server_is_made_again(worker: Any) -> None:
    worker.service.fail("commit", grpc.StatusCode.UNAVAILABLE, times=2)
    worker.go_to(1)
    worker.start("steps, then dies")
    assert worker.wait() is ExitCode.FAILED
    assert [commit.step for commit in worker.service.committed] == [1]


def test_what_a_preempted_worker_has_reached_is_kept(worker: Any) -> None:
    worker.go_to(2)
    worker.start("steps")
    worker.reaches(2)
    assert worker.process is not None
    worker.process.send_signal(signal.SIGTERM)
    assert worker.wait() is ExitCode.PREEMPTED
    [commit], [outcome] = worker.service.committed, worker.service.outcomes
    assert fetched(worker, commit) == commit.step == 3, "the one that the trainer wrote when it was stopped"
    assert outcome.failure.reason == job_pb2.Failure.PREEMPTED
    assert worker.service.calls.index("commit") < worker.service.calls.index("complete")
    worker.assert_clean()


def test_a_preempted_worker_is_not_held_up_by_its_store(worker: Any) -> None:
    worker.go_to(2)
    worker.start("steps", checkpoint=1.0)
    worker.reaches(2)
    worker.lock_out()
    assert worker.process is not None
    worker.process.send_signal(signal.SIGTERM)
    assert worker.wait() is ExitCode.PREEMPTED
    assert worker.service.committed == []
    worker.assert_clean()


def test_what_a_trainer_that_died_has_reached_is_kept(worker: Any) -> None:
    worker.go_to(4)
    worker.start("steps, then dies")
    assert worker.wait() is ExitCode.FAILED
    [commit], [outcome] = worker.service.committed, worker.service.outcomes
    assert fetched(worker, commit) == commit.step == 4
    assert outcome.failure.reason == job_pb2.Failure.TRAINER_KILLED
    assert (outcome.killed.signal, outcome.killed.phase, outcome.killed.step) == (signal.SIGKILL, "steps", 4)


def test_a_cancelled_attempt_uploads_nothing(worker: Any) -> None:
    worker.go_to(2)
    worker.start("steps")
    worker.reaches(2)
    worker.service.directive = worker_pb2.HeartbeatResponse.CANCEL
    assert worker.wait() is ExitCode.CANCELLED
    assert worker.service.committed == []


def test_the_trainer_resumes_from_the_newest_checkpoint(worker: Any) -> None:
    worker.service.checkpoints = [earlier(worker, 7), earlier(worker, 4)]
    worker.start("steps")
    assert worker.told("resumed") == "7"
    worker.go()
    assert worker.wait() is ExitCode.PUBLISHED
    assert worker.log_has("fetched the checkpoint of step 7")
    worker.assert_clean()


@pytest.mark.parametrize("damage", ["file", "file is gone", "manifest", "manifest is gone"])
def test_a_damaged_checkpoint_is_passed_over(worker: Any, damage: str) -> None:
    worker.service.checkpoints = [earlier(worker, 7), earlier(worker, 4)]
    key = checkpoint_prefix("0190-earlier", 7) + ("manifest.json" if "manifest" in damage else "state")
    if "gone" in damage:
        worker.store.delete(key)
    else:
        worker.store.put(key, bytes(worker.store.size(key)))
    worker.start("steps")
    assert worker.told("resumed") == "4"
    worker.go()
    assert worker.wait() is ExitCode.PUBLISHED
    assert worker.log_has("the checkpoint of step 7 cannot be used")


def test_without_a_whole_checkpoint_the_work_starts_from_scratch(worker: Any) -> None:
    worker.service.checkpoints = [earlier(worker, 7)]
    worker.store.delete(checkpoint_prefix("0190-earlier", 7) + "state")
    worker.start("steps")
    assert worker.told("resumed") == "0"
    worker.go()
    assert worker.wait() is ExitCode.PUBLISHED
    assert worker.log_has("starting from scratch")


def test_a_full_disk_does_not_mean_starting_from_scratch(
    worker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(checkpoints, "fetch_checkpoint", Mock(side_effect=full))
    with pytest.raises(OSError, match="No space left"):
        checkpoints.restore(worker.store, [earlier(worker, 7)], tmp_path / "checkpoint", print)


def test_a_checkpoint_is_waited_for_while_the_store_is_away(worker: Any) -> None:
    worker.service.checkpoints = [earlier(worker, 7)]
    give_back = worker.lock_out()
    worker.go()
    worker.start("steps")
    worker.service.wait(lambda: worker.log_has("trying again"))
    give_back()
    assert worker.wait() is ExitCode.PUBLISHED
    assert worker.told("resumed") == "7"


def test_a_worker_that_is_stopped_while_it_fetches_begins_nothing(worker: Any) -> None:
    worker.service.checkpoints = [earlier(worker, 7)]
    worker.lock_out()
    worker.start("steps")
    worker.service.wait(lambda: worker.log_has("trying again"))
    assert worker.process is not None
    worker.process.send_signal(signal.SIGTERM)
    assert worker.wait() is ExitCode.PREEMPTED
    assert not (worker.stage / "resumed").exists()
    assert worker.service.committed == []
    worker.assert_clean()


def test_a_store_that_stays_away_does_not_mean_starting_from_scratch(worker: Any) -> None:
    worker.service.checkpoints = [earlier(worker, 7)]
    worker.lock_out()
    worker.start("steps", transfer=0.5)
    assert worker.wait() is ExitCode.FAILED
    assert worker.service.outcomes[0].failure.reason == job_pb2.Failure.STORE_UNAVAILABLE
    assert not (worker.stage / "resumed").exists()
