"""Jobs whose model and data a client has sent, from the store to the artifact."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from safetensors.numpy import save_file
from tests.sparse_artifacts import SHA256, WORDS, make_artifact, tensors

from mvprune.artifact import Base, ModelSource, read_manifest
from mvprune.sources.references import Roots
from mvprune.sources.schemes import shown
from mvprune.sources.uploads import Kind
from mvprune.v1 import job_pb2
from mvprune_core import Training, compress, load_task
from mvprune_service.stores import open_store
from mvprune_service.stores.layout import publish, verify
from mvprune_workers.exits import ExitCode
from mvprune_workers.folders import Folders
from mvprune_workers.inputs import base_of
from mvprune_workers.job import run_job

from ...conftest import Tiny, server_path
from ...sent import sent


def send(worker: Any, tiny: Tiny) -> job_pb2.CompressionSpec:
    """A job on what a client has sent."""
    for path, kind in ((tiny.model, Kind.MODEL), (tiny.train, Kind.DATA), (tiny.validation, Kind.DATA)):
        worker.service.uploads.append(sent(path, kind, worker.store))
    model, train, validation = (upload.reference for upload in worker.service.uploads)
    spec = job_pb2.CompressionSpec(model=model, task="text-classification", target_density=0.25)
    spec.dataset.train, spec.dataset.validation = train, validation
    spec.movement.SetInParent()
    spec.training.max_steps, spec.training.batch_size = 4, 8
    worker.service.spec = spec
    return spec


@pytest.mark.slow
def test_a_job_reads_what_a_client_has_sent(worker: Any, tiny: Tiny) -> None:
    """No folder of the machine is allowed."""
    spec = send(worker, tiny)
    worker.start_real_with({})
    assert worker.wait() is ExitCode.PUBLISHED, worker.output.read_text()
    [outcome] = worker.service.outcomes
    manifest = verify(worker.store, outcome.manifest_sha256)
    assert manifest["model"]["name"] == manifest["spec"]["model"] == spec.model
    assert manifest["spec"]["dataset"]["train"] == spec.dataset.train
    assert worker.log_has(f"fetching {spec.model}")
    worker.assert_clean()


@pytest.mark.parametrize(("kind", "reason"), [("model", "INVALID_MODEL"), ("train", "INVALID_DATASET")])
def test_what_was_changed_in_the_store_is_found_before_training(
    worker: Any, tiny: Tiny, kind: str, reason: str
) -> None:
    spec = send(worker, tiny)
    upload = worker.service.uploads[("model", "train").index(kind)]
    key = next(iter(upload.keys.values()))
    content = worker.store.get(key)
    worker.store.put(key, bytes([content[0] ^ 1]) + content[1:])
    worker.start(spec.model)
    assert worker.wait() is ExitCode.FAILED
    [outcome] = worker.service.outcomes
    assert job_pb2.Failure.Reason.Name(outcome.failure.reason) == reason
    wrong = spec.model if kind == "model" else spec.dataset.train
    assert outcome.failure.message.startswith(f"{wrong} must have the content that was sent, but a part of ")
    assert worker.service.lost == [next(sha256 for sha256, place in upload.keys.items() if place == key)]
    assert worker.service.calls.index("lost") < worker.service.calls.index("complete"), "in the lease"
    worker.assert_clean()


def test_all_that_the_store_lost_of_all_inputs_is_reported(worker: Any, tiny: Tiny) -> None:
    spec = send(worker, tiny)
    model, train, _ = worker.service.uploads
    for key in [*model.keys.values(), *train.keys.values()]:
        worker.store.delete(key)
    worker.start(spec.model)
    assert worker.wait() is ExitCode.FAILED
    assert set(worker.service.lost) == set(model.keys) | set(train.keys)
    [outcome] = worker.service.outcomes
    assert outcome.failure.reason == job_pb2.Failure.INVALID_MODEL
    assert (
        f" ({len(model.keys)} parts are missing or changed in all); submit again from a machine"
        in outcome.failure.message
    )
    worker.assert_clean()


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INVALID_ARGUMENT])
def test_the_outcome_is_reported_where_the_lost_chunks_cannot_be(
    worker: Any, tiny: Tiny, code: grpc.StatusCode
) -> None:
    spec = send(worker, tiny)
    for key in worker.service.uploads[0].keys.values():
        worker.store.delete(key)
    worker.service.fail("lost", code)
    worker.start(spec.model)
    assert worker.wait() is ExitCode.FAILED
    assert worker.service.outcomes[0].failure.reason == job_pb2.Failure.INVALID_MODEL
    assert worker.log_has("the missing parts could not be reported")


@pytest.mark.slow
def test_uploads_are_waited_for_while_the_store_is_away(worker: Any, tiny: Tiny) -> None:
    send(worker, tiny)
    give_back = worker.lock_out()
    worker.go()
    worker.start("works")
    worker.service.wait(lambda: b"trying again" in bytes(worker.service.log))
    give_back()
    assert "spec" in worker.told("claim").split()
    assert "uploads" not in worker.told("claim").split(), "the trainer gets no list of chunks"
    assert worker.wait() is ExitCode.PUBLISHED


def test_the_base_of_a_teacher_that_is_a_delta_must_still_be_there(worker: Any, tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    save_file({WORDS: tensors()[WORDS]}, tmp_path / "base" / "model.safetensors")
    reference = f"upload:{'0' * 64}/base"
    make_artifact(tmp_path / "teacher", base=Base(tmp_path / "base"), model=ModelSource(reference, "", SHA256))
    worker.service.spec.teacher.job = "projects/p/jobs/teacher"
    worker.service.teacher = publish(worker.store, tmp_path / "teacher", "0190-teacher")
    worker.start("taught")
    assert worker.wait() is ExitCode.FAILED
    [outcome] = worker.service.outcomes
    assert outcome.failure.reason == job_pb2.Failure.INVALID_MODEL
    assert outcome.failure.message == f"{reference} is not on the server any more; send it again, and submit again"


@pytest.mark.slow
def test_a_teacher_that_is_a_delta_finds_the_base_that_a_client_sent(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The student's model is another one, in a folder."""
    folders = Folders(*(tmp_path / name for name in ("out", "teacher", "beginning", "inputs", "checkpoint", "cache")))
    store = open_store((tmp_path / "store").as_uri())
    upload = sent(tiny.model, Kind.MODEL, store)
    data = load_task("text-classification", train=tiny.train, validation=tiny.validation)
    taught = compress(tiny.model, data, density=1.0, training=Training(max_steps=5), delta=True, dense_baseline=False)
    taught.info = replace(taught.info, model=replace(taught.info.model, name=upload.reference))
    taught.save(folders.teacher)
    [base] = base_of(folders.teacher)
    base.fetch([upload], store, Roots(), folders)
    for name, value in (("MODELS", tiny.models), ("ROOTS", tiny.train.parent)):
        monkeypatch.setenv(f"MVPRUNE_{name}", str(value))
    spec = job_pb2.CompressionSpec(model=server_path(tiny.model), task="text-classification", target_density=1.0)
    spec.dataset.train, spec.dataset.validation = server_path(tiny.train), server_path(tiny.validation)
    spec.magnitude.SetInParent()
    spec.training.max_steps = 5
    spec.teacher.job = "projects/p/jobs/t"
    run_job(spec, folders, "cpu", lambda event: None, accumulation_factor=1, checkpoint_seconds=600.0)
    manifest = read_manifest(folders.output)
    assert manifest.model.name == server_path(tiny.model)
    assert shown(upload.reference) in (folders.teacher / "README.md").read_text()
