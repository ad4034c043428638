"""The teacher of a distillation, and a mask, from the store to where the trainer looks for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import save_file

from mvprune.artifact import Base, ModelSource
from mvprune.v1 import job_pb2, worker_pb2
from mvprune_service.stores.layout import publish
from mvprune_workers.exits import ExitCode

from ...sparse_artifacts import SHA256, WORDS, make_artifact, tensors


def test_the_trainer_finds_its_teacher(worker: Any, tmp_path: Path) -> None:
    teach(worker, tmp_path / "teacher")
    worker.go()
    worker.start("taught")
    assert worker.wait() is ExitCode.PUBLISHED
    assert json.loads(worker.told("teacher")) == {"manifest.json": True, "vocab.txt": True, "weights.safetensors": True}
    worker.assert_clean()


def test_a_teacher_that_is_not_whole_is_a_failure_of_its_own(worker: Any, tmp_path: Path) -> None:
    teach(worker, tmp_path / "teacher")
    (blob, *_) = worker.store.list("blobs/")
    worker.store.put(blob.key, b"x" * blob.size)
    failure = failure_of(worker)
    assert failure.reason == job_pb2.Failure.TEACHER_FAILED
    assert "SHA-256" in failure.message


def test_only_the_manifest_of_a_baseline_is_fetched(worker: Any, tmp_path: Path) -> None:
    worker.service.spec.baseline.job = "projects/p/jobs/dense"
    worker.service.spec.teacher.none = True
    teach(worker, tmp_path / "dense")
    for blob in worker.store.list("blobs/"):
        worker.store.put(blob.key, b"x")
    worker.go()
    worker.start("taught")
    assert worker.wait() is ExitCode.PUBLISHED
    assert json.loads(worker.told("teacher")) == {"manifest.json": True}
    assert b"fetching the baseline's metrics" in bytes(worker.service.log)
    worker.assert_clean()


def test_the_base_of_a_teacher_that_is_a_delta_is_fetched_too(worker: Any, tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    save_file({WORDS: tensors()[WORDS]}, tmp_path / "base" / "model.safetensors")
    base, named = Base(tmp_path / "base"), ModelSource("s3://models/base", "", SHA256)
    teach(worker, tmp_path / "teacher", base=base, model=named)
    failure = failure_of(worker)
    assert failure.reason == job_pb2.Failure.INVALID_MODEL
    assert "must be in one of the allowed buckets (there are none), got 's3://models/base'" in failure.message


def failure_of(worker: Any) -> Any:
    """What a run reports that ends before its training."""
    worker.start("taught")
    assert worker.wait() is ExitCode.FAILED
    [outcome] = worker.service.outcomes
    worker.assert_clean()
    return outcome.failure


def test_a_teacher_is_waited_for_while_the_store_is_away(worker: Any, tmp_path: Path) -> None:
    teach(worker, tmp_path / "teacher")
    give_back = worker.lock_out()
    worker.go()
    worker.start("taught")
    worker.service.wait(lambda: b"trying again" in bytes(worker.service.log))
    give_back()
    assert worker.wait() is ExitCode.PUBLISHED


def test_cancelling_does_not_wait_for_a_teacher(worker: Any, tmp_path: Path) -> None:
    teach(worker, tmp_path / "teacher")
    worker.lock_out()
    worker.start("taught")
    worker.service.wait(lambda: b"trying again" in bytes(worker.service.log))
    worker.service.directive = worker_pb2.HeartbeatResponse.CANCEL
    assert worker.wait() is ExitCode.CANCELLED
    worker.assert_clean()


@pytest.mark.parametrize("option", ["mask_from", "start_from"])
def test_the_trainer_finds_the_artifact_that_a_job_begins_with(worker: Any, tmp_path: Path, option: str) -> None:
    begin(worker, tmp_path / "first", option)
    worker.go()
    worker.start("taught")
    assert worker.wait() is ExitCode.PUBLISHED
    found = json.loads(worker.told("beginning"))
    assert found == {"manifest.json": True, "vocab.txt": True, "weights.safetensors": True}
    assert json.loads(worker.told("teacher")) == {}
    worker.assert_clean()


@pytest.mark.parametrize(
    ("option", "remedy"), [("mask_from", "another job, or with that model's folder"), ("start_from", "another job")]
)
def test_one_that_was_deleted_is_a_failure_with_a_remedy(worker: Any, tmp_path: Path, option: str, remedy: str) -> None:
    begin(worker, tmp_path / "first", option)
    for stored in worker.store.list(""):
        worker.store.delete(stored.key)
    failure = failure_of(worker)
    assert failure.reason == job_pb2.Failure.INVALID_MODEL
    assert f"{option} must be a job whose artifact is in the store, got projects/p/jobs/first," in failure.message
    assert failure.message.endswith(f"submit again with {remedy}")


def begin(worker: Any, folder: Path, option: str) -> None:
    """Puts an artifact into the store, and makes it what the worker's job begins with."""
    make_artifact(folder)
    spec, digest = worker.service.spec, publish(worker.store, folder, "0190-first")
    job, artifact = "projects/p/jobs/first", f"projects/p/artifacts/{digest}"
    if option == "mask_from":
        spec.locked_mask.mask_from.CopyFrom(job_pb2.Mask(job=job, artifact=artifact))
    else:
        spec.start_from, spec.start_artifact = job, artifact


def teach(worker: Any, folder: Path, **changes: Any) -> None:
    """Puts an artifact into the store, and makes it the teacher of the worker's job, unless that has a baseline."""
    if not worker.service.spec.HasField("baseline"):
        worker.service.spec.teacher.job = "projects/p/jobs/teacher"
    make_artifact(folder, **changes)
    worker.service.teacher = publish(worker.store, folder, "0190-teacher")
