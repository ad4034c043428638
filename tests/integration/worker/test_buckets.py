"""Models and data in buckets, on a real S3 server."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mvprune.artifact import read_manifest
from mvprune.sources.references import Roots
from mvprune.sources.uploads import Kind
from mvprune.v1 import job_pb2
from mvprune_core import Training, compress, load_task
from mvprune_service.stores import open_store
from mvprune_service.stores.layout import verify
from mvprune_workers.cache import aside
from mvprune_workers.exits import ExitCode
from mvprune_workers.folders import Folders
from mvprune_workers.inputs import BadInput, Input, base_of, fetched_path
from mvprune_workers.job import run_job

from ...conftest import server_path
from ...neighbours import S3Server


@pytest.fixture
def bucket(seaweedfs: S3Server, tiny: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder in a bucket with the tiny model, a pickle beside it, and its data."""
    for name, value in seaweedfs.env.items():
        monkeypatch.setenv(name, value)
    store = open_store(f"{seaweedfs.url}/{uuid.uuid4().hex}")
    for file in tiny.model.iterdir():
        store.put(f"model/{file.name}", file.read_bytes())
    store.put("model/pytorch_model.bin", b"a pickle")
    store.put("model/old/model.safetensors", b"of a folder below")
    for file in (tiny.train, tiny.validation):
        store.put(file.name, file.read_bytes())
    return store.url


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(*(tmp_path / name for name in ("out", "teacher", "beginning", "inputs", "checkpoint", "cache")))


def fetch(one: Input, bucket: str, folders: Folders) -> None:
    one.fetch([], open_store(bucket), Roots(buckets=(bucket,)), folders)


def fetched(reference: str, bucket: str, folders: Folders) -> Path:
    found = fetched_path(reference, Roots(buckets=(bucket,)), folders)
    assert found is not None
    return found


@pytest.mark.slow
def test_a_job_reads_model_and_data_from_buckets(worker: Any, tiny: Any, seaweedfs: S3Server, bucket: str) -> None:
    spec = job_pb2.CompressionSpec(model=f"{bucket}/model", task="text-classification", target_density=0.25)
    spec.dataset.train, spec.dataset.validation = f"{bucket}/{tiny.train.name}", f"{bucket}/{tiny.validation.name}"
    spec.movement.SetInParent()
    spec.training.max_steps, spec.training.batch_size = 4, 8
    worker.service.spec = spec
    worker.start_real_with({**seaweedfs.env, "MVPRUNE_BUCKETS": bucket})
    assert worker.wait() is ExitCode.PUBLISHED, worker.output.read_text()
    [outcome] = worker.service.outcomes
    manifest = verify(worker.store, outcome.manifest_sha256)
    assert manifest["model"]["name"] == manifest["spec"]["model"] == f"{bucket}/model"
    assert manifest["spec"]["dataset"]["train"] == f"{bucket}/{tiny.train.name}"
    assert worker.log_has(f"fetching {bucket}/model")
    worker.assert_clean()


@pytest.mark.slow
def test_a_teacher_that_is_a_delta_finds_its_base_in_a_bucket(
    tiny: Any, bucket: str, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The student's model is another one, in a folder."""
    data = load_task("text-classification", train=tiny.train, validation=tiny.validation)
    taught = compress(tiny.model, data, density=1.0, training=Training(max_steps=5), delta=True, dense_baseline=False)
    taught.info = replace(taught.info, model=replace(taught.info.model, name=f"{bucket}/model"))
    taught.save(folders.teacher)
    [base] = base_of(folders.teacher)
    fetch(base, bucket, folders)
    for name, value in (("MODELS", tiny.models), ("ROOTS", tiny.train.parent), ("BUCKETS", bucket)):
        monkeypatch.setenv(f"MVPRUNE_{name}", str(value))
    spec = job_pb2.CompressionSpec(model="tiny-bert", task="text-classification", target_density=1.0)
    spec.dataset.train, spec.dataset.validation = server_path(tiny.train), server_path(tiny.validation)
    spec.magnitude.SetInParent()
    spec.training.max_steps = 5
    spec.teacher.job = "projects/p/jobs/t"
    run_job(spec, folders, "cpu", lambda event: None, accumulation_factor=1, checkpoint_seconds=600.0)
    assert read_manifest(folders.output).spec["teacher"]["job"] == spec.teacher.job
    assert base_of(folders.output) == [], "it is no delta"


@pytest.mark.slow
def test_only_what_a_model_needs_is_fetched_and_only_once(tiny: Any, bucket: str, folders: Folders) -> None:
    model = Input(f"{bucket}/model", Kind.MODEL)
    fetch(model, bucket, folders)
    found = fetched(model.reference, bucket, folders)
    assert {file.name: file.read_bytes() for file in found.iterdir()} == {
        file.name: file.read_bytes() for file in tiny.model.iterdir()
    }
    kept = found.resolve()
    (kept / "config.json").write_text("from the cache")
    found.unlink()
    fetch(model, bucket, folders)
    assert (found / "config.json").read_text() == "from the cache"

    open_store(bucket).put("model/config.json", b"{}")  # it changes: fetched anew
    found.unlink()
    fetch(model, bucket, folders)
    assert (found / "config.json").read_bytes() == b"{}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reference", "kind", "said"),
    [
        ("nothing", Kind.MODEL, "there is no model in"),
        ("train.parquet", Kind.DATA, "there is no file"),
        ("../secrets", Kind.MODEL, "must be s3://BUCKET/PATH"),
    ],
)
def test_what_is_not_there_is_the_users_mistake(
    bucket: str, folders: Folders, reference: str, kind: Kind, said: str
) -> None:
    wrong = Input(f"{bucket}/{reference}", kind)
    with pytest.raises(BadInput, match=said) as caught:
        fetch(wrong, bucket, folders)
    failure = job_pb2.Failure.INVALID_MODEL if kind is Kind.MODEL else job_pb2.Failure.INVALID_DATASET
    assert caught.value.reason == failure


@pytest.mark.slow
def test_what_a_killed_worker_was_fetching_is_removed(bucket: str, folders: Folders) -> None:
    with aside(folders.cache / "buckets" / "killed") as killed:
        half = killed.with_name("half")
        shutil.copytree(killed, half)  # its lock file is there, and nobody holds it
        fetch(Input(f"{bucket}/model", Kind.MODEL), bucket, folders)
        assert not half.exists()
        assert killed.exists(), "another worker is at it"
    assert not any((folders.cache / "buckets" / ".aside").iterdir())


def test_no_other_bucket_is_read(bucket: str, folders: Folders) -> None:
    with pytest.raises(BadInput, match="one of the allowed buckets"):
        fetch(Input(f"{bucket}/model", Kind.MODEL), f"{bucket}/other", folders)


def test_credentials_that_the_bucket_refuses_are_no_outage(
    bucket: str, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(BadInput, match="the worker may not read"):
        fetch(Input(f"{bucket}/model", Kind.MODEL), bucket, folders)
