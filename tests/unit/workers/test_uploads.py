"""What clients have sent is fetched by workers: as it was sent, complete or not at all, once for each machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Barrier, Thread

import pytest
from google.protobuf.json_format import MessageToJson

from mvprune.sources.references import Roots
from mvprune.sources.uploads import CHUNK_BYTES, Kind, parse
from mvprune.v1 import job_pb2, upload_pb2, worker_pb2
from mvprune_service.stores import open_store
from mvprune_service.stores.base import BlobStore, StoreUnavailable
from mvprune_workers.cache import trim
from mvprune_workers.folders import Folders
from mvprune_workers.inputs import BadInput, Input, fetched_path, inputs_of

from ...conftest import Tiny
from ...sent import sent

# Fetches the upload that stdin has as JSON. The store waits before the second chunk, which says that it is half done.
FETCH = """
import sys, time
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
            time.sleep(600)
        return self.store.read(*range)

upload = Parse(sys.stdin.read(), worker_pb2.UploadedInput())
fetch_upload(upload, Kind.MODEL, Slow(open_store(sys.argv[1])), Path(sys.argv[2]))
"""


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BlobStore:
    if request.param == "folder":
        return open_store((tmp_path / "store").as_uri())
    server = request.getfixturevalue("seaweedfs")
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    return open_store(f"{server.url}/{tmp_path.name}")


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Folders]:
    yield folders_in(tmp_path)
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)


def folders_in(path: Path, attempt: str = "attempt") -> Folders:
    return Folders(*(path / attempt / name for name in ("out", "teacher", "inputs", "checkpoint")), path / "cache")


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


def cached(folders: Folders) -> list[str]:
    """What is in the cache, half-written files and folders too."""
    return sorted(str(path.relative_to(folders.cache)) for path in folders.cache.rglob("*") if path.is_file())


def test_a_model_is_what_was_sent(model: Path, store: BlobStore, folders: Folders) -> None:
    found = fetch(sent(model, Kind.MODEL, store), Kind.MODEL, store, folders)
    assert found.name == "my model"
    assert content(found) == content(model)


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


def test_other_files_than_the_digest_says_are_refused(model: Path, tmp_path: Path, folders: Folders) -> None:
    store = open_store((tmp_path / "store").as_uri())
    upload = sent(model, Kind.MODEL, store)
    upload.files[0].path = "tokenizer_config.json"
    with pytest.raises(BadInput, match="must have the content that was sent, but its files have the digest"):
        fetch(upload, Kind.MODEL, store, folders)


@pytest.mark.parametrize("name", ["../config.json", "/etc/config.json", ".config.json", "a\\config.json", "model.bin"])
def test_a_name_that_leads_elsewhere_is_refused(name: str, tmp_path: Path, folders: Folders) -> None:
    """Even where the digest is that of these names."""
    store = open_store((tmp_path / "store").as_uri())
    file = upload_pb2.UploadFile(path=name)
    upload = worker_pb2.UploadedInput(reference=f"upload:{'0' * 64}/x", files=[file])
    with pytest.raises(BadInput, match="must have a name|files of a model must be"):
        fetch(upload, Kind.MODEL, store, folders)
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
    command = [sys.executable, "-c", FETCH, store.url, str(folders.cache)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(MessageToJson(upload))
        worker.stdin.close()
        assert worker.stdout.readline() == "half\n"
        worker.send_signal(signal.SIGKILL)
    folder = folders.cache / "uploads" / parse(upload.reference).digest
    assert not folder.exists()
    assert any("model.safetensors" in name for name in cached(folders)), "it had begun"
    found = fetch(upload, Kind.MODEL, store, folders)
    assert content(found) == content(model)
    assert {Path(name).parent.name for name in cached(folders)} == {folder.name}, "what was left behind is removed"


def test_two_workers_fetch_it_at_once(model: Path, store: BlobStore, tmp_path: Path) -> None:
    upload, barrier, found = sent(model, Kind.MODEL, store), Barrier(2), list[Path]()

    class Together:
        """The store, whose first chunk nobody has before both have asked for it."""

        def read(self, key: str, offset: int, limit: int) -> bytes:
            if key == upload.keys[upload.files[0].chunks[0]]:
                barrier.wait(60)
            return store.read(key, offset, limit)

    def work(name: str) -> None:
        found.append(fetch(upload, Kind.MODEL, Together(), folders_in(tmp_path, name)))  # type: ignore[arg-type]

    workers = [Thread(target=work, args=(name,)) for name in ("first", "second")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(found) == 2
    assert all(content(one) == content(model) for one in found)


def test_which_inputs_of_a_job_are_fetched() -> None:
    upload = f"upload:{'0' * 64}"
    spec = job_pb2.CompressionSpec(
        model=f"{upload}/m",
        teacher={"model": "s3://b/t"},
        dataset={"train": "server:/data/train.tsv", "validation": f"{upload}/v.tsv"},
    )
    assert inputs_of(spec) == [
        Input(f"{upload}/m", Kind.MODEL),
        Input("s3://b/t", Kind.MODEL),
        Input(f"{upload}/v.tsv", Kind.DATA),
    ]
