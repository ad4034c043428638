"""What clients have sent is fetched by workers: as it was sent, complete or not at all, once for each machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToJson

from mvprune.sources.references import Roots
from mvprune.sources.uploads import CHUNK_BYTES, File, Kind, Reference, digest, parse
from mvprune.v1 import job_pb2, upload_pb2, worker_pb2
from mvprune_service.stores import open_store
from mvprune_service.stores.base import BlobStore, StoreUnavailable
from mvprune_workers.cache import trim
from mvprune_workers.folders import Folders
from mvprune_workers.inputs import BadInput, Input, fetched_path, inputs_of

from ...conftest import Tiny
from ...sent import sent

# Fetches a model. Where it has begun, it says so, and goes on when it is told to.
FETCH = """
import sys
from pathlib import Path
from google.protobuf.json_format import Parse
from mvprune.sources.uploads import Kind
from mvprune.v1 import worker_pb2
from mvprune_service.stores import open_store
from mvprune_workers.uploads import fetch_upload

class Slow:
    def __init__(self, store):
        self.store, self.calls = store, 0
    def read(self, *range):
        self.calls += 1
        if self.calls == 3:
            print("half", flush=True)
            sys.stdin.readline()
        return self.store.read(*range)

upload = Parse(sys.argv[1], worker_pb2.UploadedInput())
fetch_upload(upload, Kind.MODEL, Slow(open_store(sys.argv[2])), Path(sys.argv[3]))
"""


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return folders_in(tmp_path)


def folders_in(path: Path, attempt: str = "attempt") -> Folders:
    return Folders(
        *(path / attempt / name for name in ("out", "teacher", "mask", "inputs", "checkpoint")), path / "cache"
    )


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder of three chunks: one of a configuration, two of weights; and of an empty file."""
    folder = tmp_path / "my model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(os.urandom(CHUNK_BYTES) + b"the rest")
    (folder / "vocab.txt").touch()
    return folder


def fetch(upload: worker_pb2.UploadedInput, kind: Kind, store: BlobStore, folders: Folders) -> Path:
    """Where the trainer finds it."""
    Input(upload.reference, kind).fetch([upload], store, Roots(), folders)
    found = fetched_path(upload.reference, Roots(), folders)
    assert found is not None
    return found


def content(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def half_done(upload: worker_pb2.UploadedInput, store: BlobStore, folders: Folders) -> subprocess.Popen[str]:
    """A worker that has fetched a part, and goes on after a line."""
    command = [sys.executable, "-c", FETCH, MessageToJson(upload), store.url, str(folders.cache)]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    assert worker.stdout.readline() == "half\n"
    return worker


def cached(folders: Folders) -> list[str]:
    """What is in the cache, half-written files and folders too."""
    return sorted(str(path.relative_to(folders.cache)) for path in folders.cache.rglob("*") if path.is_file())


def test_a_model_is_what_was_sent(model: Path, store: BlobStore, folders: Folders) -> None:
    found = fetch(sent(model, Kind.MODEL, store), Kind.MODEL, store, folders)
    assert found.name == "my model"
    assert content(found) == content(model)


def test_a_part_of_a_model_comes_into_its_folder(model: Path, store: BlobStore, folders: Folders) -> None:
    (model / "1_Pooling").mkdir()
    (model / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean"}')
    found = fetch(sent(model, Kind.MODEL, store), Kind.MODEL, store, folders)
    assert content(found / "1_Pooling") == content(model / "1_Pooling")
    assert (found / "config.json").read_text() == "{}"


def test_a_data_file_keeps_its_name(tiny: Tiny, store: BlobStore, folders: Folders) -> None:
    upload = sent(tiny.validation, Kind.DATA, store)
    found = fetch(upload, Kind.DATA, store, folders)
    assert found.name == "dev.tsv"
    assert found.read_bytes() == tiny.validation.read_bytes()
    upload.reference = upload.reference.replace("dev.tsv", "other.tsv")  # names are for people
    assert fetch(upload, Kind.DATA, store, folders).name == "other.tsv"


def test_two_jobs_fetch_it_once(model: Path, store: BlobStore, tmp_path: Path) -> None:
    upload = sent(model, Kind.MODEL, store)
    first = fetch(upload, Kind.MODEL, store, folders_in(tmp_path, "first"))
    for key in upload.keys.values():
        store.delete(key)
    second = fetch(upload, Kind.MODEL, store, folders_in(tmp_path, "second"))
    assert first != second
    assert first.resolve() == second.resolve()


def test_the_cache_makes_room_for_others(model: Path, tmp_path: Path, folders: Folders) -> None:
    store = open_store((tmp_path / "store").as_uri())
    upload = sent(model, Kind.MODEL, store)
    folder = fetch(upload, Kind.MODEL, store, folders).resolve()
    trim(folders.cache, 1)
    assert folder.is_dir(), "this process holds it"
    renamed = folder.with_name("f" * 64)
    shutil.copytree(folder, renamed)
    trim(folders.cache, 1)
    assert not renamed.exists(), "no process holds it"


@pytest.mark.parametrize("change", ["other bytes", "shorter", "longer"])
def test_a_chunk_that_was_changed_in_the_store_is_found(
    change: str, model: Path, store: BlobStore, folders: Folders
) -> None:
    upload = sent(model, Kind.MODEL, store)
    key = upload.keys[next(file for file in upload.files if file.path == "model.safetensors").chunks[-1]]
    store.put(key, {"other bytes": b"THE REST", "shorter": b"the res", "longer": b"the rest "}[change])
    with pytest.raises(BadInput, match=r"a part of model\.safetensors was changed in the artifact store") as caught:
        fetch(upload, Kind.MODEL, store, folders)
    assert caught.value.reason == job_pb2.Failure.INVALID_MODEL
    assert upload.reference in str(caught.value)
    assert cached(folders) == []


def test_a_missing_chunk_is_said(tiny: Tiny, store: BlobStore, folders: Folders) -> None:
    upload = sent(tiny.train, Kind.DATA, store)
    for key in upload.keys.values():
        store.delete(key)
    with pytest.raises(BadInput, match=r"a part of train\.jsonl is missing in the artifact store") as caught:
        fetch(upload, Kind.DATA, store, folders)
    assert caught.value.reason == job_pb2.Failure.INVALID_DATASET
    upload.keys.clear()
    with pytest.raises(BadInput, match=r"a part of train\.jsonl is missing in the artifact store"):
        fetch(upload, Kind.DATA, store, folders)
    assert cached(folders) == []


def test_all_bad_chunks_are_named_at_once(model: Path, store: BlobStore, folders: Folders) -> None:
    upload = sent(model, Kind.MODEL, store)
    chunks = {file.path: file.chunks for file in upload.files}
    config, weights = chunks["config.json"], chunks["model.safetensors"]
    store.delete(upload.keys[config[0]])
    store.put(upload.keys[weights[-1]], b"THE REST")
    with pytest.raises(
        BadInput, match=r"a part of config\.json is missing .* \(2 parts are missing or changed in all\); submit again"
    ) as caught:
        fetch(upload, Kind.MODEL, store, folders)
    assert set(caught.value.lost) == {config[0], weights[-1]}
    assert cached(folders) == []


def test_other_files_than_the_digest_says_are_refused(model: Path, tmp_path: Path, folders: Folders) -> None:
    store = open_store((tmp_path / "store").as_uri())
    upload = sent(model, Kind.MODEL, store)
    upload.files[0].path = "tokenizer_config.json"
    with pytest.raises(BadInput, match="but the server says that its files have the digest"):
        fetch(upload, Kind.MODEL, store, folders)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        *((name, "must have a name without '/'") for name in ("../config.json", "/etc/x.json", ".x.json", "a\\b.json")),
        ("pytorch_model.bin", "files of a model must be"),
    ],
)
def test_a_file_that_is_never_sent_is_never_written(name: str, rule: str, tmp_path: Path, folders: Folders) -> None:
    """Even where the digest is that of these names."""
    reference = Reference(digest([File(name, 0, ())]), "x")
    upload = worker_pb2.UploadedInput(reference=str(reference), files=[upload_pb2.UploadFile(path=name)])
    with pytest.raises(BadInput, match=rule):
        fetch(upload, Kind.MODEL, open_store((tmp_path / "store").as_uri()), folders)
    assert cached(folders) == []


@pytest.mark.parametrize("reference", ["upload:x/m", f"upload:{'0' * 64}/a/b", f"upload:{'0' * 64}/..", "upload:"])
def test_a_malformed_reference_is_refused(reference: str, tmp_path: Path, folders: Folders) -> None:
    upload = worker_pb2.UploadedInput(reference=reference)
    with pytest.raises(BadInput, match="the reference to an upload must be upload:DIGEST/NAME"):
        fetch(upload, Kind.MODEL, open_store((tmp_path / "store").as_uri()), folders)


def test_an_upload_that_the_claim_does_not_list_is_gone(tmp_path: Path, folders: Folders) -> None:
    one = Input(f"upload:{'0' * 64}/m", Kind.MODEL)
    with pytest.raises(BadInput, match=f"upload:{'0' * 64}/m is not on the server any more; send it again"):
        one.fetch([], open_store((tmp_path / "store").as_uri()), Roots(), folders)


@pytest.mark.slow
def test_a_store_that_cannot_be_reached_is_no_mistake_of_the_user(
    model: Path, tmp_path: Path, folders: Folders, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = sent(model, Kind.MODEL, open_store((tmp_path / "store").as_uri()))
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{closed_port}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "unused")
    with pytest.raises(StoreUnavailable):
        fetch(upload, Kind.MODEL, open_store("s3://bucket", create=False), folders)
    assert cached(folders) == []


def test_a_killed_worker_leaves_nothing_half(model: Path, tmp_path: Path, folders: Folders) -> None:
    store = open_store((tmp_path / "store").as_uri())
    upload = sent(model, Kind.MODEL, store)
    with half_done(upload, store, folders) as worker:
        worker.kill()
    folder = folders.cache / "uploads" / parse(upload.reference).digest
    assert not folder.exists()
    assert any("model.safetensors" in name for name in cached(folders)), "it had begun"
    found = fetch(upload, Kind.MODEL, store, folders)
    assert content(found) == content(model)
    assert {Path(name).parent.name for name in cached(folders)} == {folder.name}, "what was left behind is removed"


@pytest.mark.slow
def test_two_workers_fetch_it_at_once(model: Path, store: BlobStore, folders: Folders) -> None:
    upload = sent(model, Kind.MODEL, store)
    with half_done(upload, store, folders) as first, half_done(upload, store, folders) as second:
        first.communicate("\n")
        second.communicate("\n")
    assert (first.returncode, second.returncode) == (0, 0)
    folder = folders.cache / "uploads" / parse(upload.reference).digest
    assert content(folder) == content(model)
    assert {Path(name).parent.name for name in cached(folders)} == {folder.name}


def test_which_inputs_of_a_job_are_fetched() -> None:
    upload = f"upload:{'0' * 64}"
    spec = job_pb2.CompressionSpec(
        model=f"{upload}/m",
        teacher={"model": "s3://b/t"},
        locked_mask={"mask_from": {"model": "s3://b/mask"}},
        dataset={"train": "server:/data/train.tsv", "validation": f"{upload}/v.tsv"},
    )
    assert inputs_of(spec) == [
        Input(f"{upload}/m", Kind.MODEL),
        Input("s3://b/t", Kind.MODEL),
        Input("s3://b/mask", Kind.MODEL),
        Input(f"{upload}/v.tsv", Kind.DATA),
    ]
