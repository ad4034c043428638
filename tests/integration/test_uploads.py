"""What a client sends reaches the job on another machine: real servers, folder stores and S3."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

import mvprune
from mvprune import Client
from mvprune.client.http import Putter
from mvprune.sources.uploads import CHUNK_BYTES, Kind, describe, digest
from mvprune.v1 import upload_pb2, upload_pb2_grpc
from mvprune_service.stores import open_store
from mvprune_service.stores.base import BlobStore

from ..bert_folder import write_bert
from ..neighbours import S3Server
from ..waiting import PATIENCE
from .servers import Server

_STAND_IN = Path(__file__).parents[1] / "chaos" / "stand_in"  # a trainer that only waits
_SEND = "import sys; from mvprune import Client; Client(sys.argv[1]).upload(sys.argv[2])"


@pytest.fixture(scope="module", params=["folder", "s3"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose roots hold nothing of the client's."""
    folder = tmp_path_factory.mktemp("server")
    server = Server(folder / "home")
    more = {"roots": folder / "nothing", "max_upload_bytes": 200 << 20}
    (folder / "nothing").mkdir()
    env = {"PYTHONPATH": str(_STAND_IN)}
    if request.param == "s3":
        s3: S3Server = request.getfixturevalue("seaweedfs")
        env |= s3.env
        more["store"] = f"{s3.url}/{folder.name}"
    server.start(env, **more)
    yield server
    server.close()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.address, project=f"p{time.monotonic_ns()}") as one:
        yield one


@pytest.fixture
def store(request: pytest.FixtureRequest, server: Server, monkeypatch: pytest.MonkeyPatch) -> BlobStore:
    """The server's store."""
    if request.node.callspec.params["server"] == "folder":
        return open_store((server.home / "store").as_uri(), create=False)
    s3: S3Server = request.getfixturevalue("seaweedfs")
    for name, value in s3.env.items():
        monkeypatch.setenv(name, value)
    return open_store(f"{s3.url}/{server.home.parent.name}", create=False)


def data_files(folder: Path) -> tuple[Path, Path]:
    files = folder / "train.jsonl", folder / "dev.jsonl"
    for file in files:
        file.write_text('{"text": "good", "label": 1}\n{"text": "bad", "label": 0}\n')
    return files


def test_submit_poll_and_download_from_another_home(client: Client, server: Server, tmp_path: Path) -> None:
    model, teacher = write_bert(tmp_path / "my-model", 9 << 20), write_bert(tmp_path / "teacher")
    train, validation = data_files(tmp_path)
    (model / "pytorch_model.bin").write_bytes(b"a pickle")
    job = client.submit(
        model=model, teacher=teacher, train=train, validation=validation, density=0.5, max_steps=10, cpus=1, seed=1
    )
    assert job.spec.model == f"upload:{digest(describe(Kind.MODEL, model))}/my-model"
    assert job.model_size is not None
    assert job.wait(timeout=PATIENCE).state == "SUCCEEDED"
    assert (job.download(tmp_path / "out") / "manifest.json").is_file()
    uploads = {upload.display_name: upload for upload in client.uploads()}
    assert uploads.keys() == {"my-model", "teacher", "train.jsonl", "dev.jsonl"}
    assert {upload.state for upload in uploads.values()} == {"READY"}
    with pytest.raises(mvprune.FailedPrecondition, match=job.id):
        client.delete_upload(uploads["my-model"])
    job.delete()
    client.delete_upload(uploads["my-model"])
    assert "my-model" not in {upload.display_name for upload in client.uploads()}


def test_a_chunk_that_the_store_lost_is_sent_again_with_the_next_job(
    client: Client, server: Server, store: BlobStore, tmp_path: Path
) -> None:
    """The worker finds it; the server, which is not restarted, believes the worker once it has looked itself."""
    model = write_bert(tmp_path / "my-model", 3 * CHUNK_BYTES)
    train, validation = data_files(tmp_path)

    def submit() -> mvprune.Job:
        return client.submit(
            model=model,
            train=train,
            validation=validation,
            density=0.5,
            max_steps=10,
            cpus=1,
            seed=1,
            on_upload=seen.append,
        )

    seen: list[mvprune.UploadProgress] = []
    job = submit()
    assert job.wait(timeout=PATIENCE).state == "SUCCEEDED"
    lost = (model / "model.safetensors").read_bytes()[CHUNK_BYTES : 2 * CHUNK_BYTES]
    (key,) = (one.key for one in store.list("uploads/") if store.get(one.key) == lost)
    store.delete(key)
    shutil.rmtree(server.home / "scratch" / "cache")
    with pytest.raises(mvprune.JobFailed, match=r"INVALID_MODEL: .* a part of model\.safetensors is missing"):
        submit().wait(timeout=PATIENCE)
    assert {one.display_name: one.state for one in client.uploads()}["my-model"] == "INCOMPLETE"
    seen.clear()
    assert submit().wait(timeout=PATIENCE).state == "SUCCEEDED"
    assert max(one.sent_bytes for one in seen) == CHUNK_BYTES, "just that chunk"


def test_an_upload_that_is_killed_goes_on_where_it_stopped(client: Client, server: Server, tmp_path: Path) -> None:
    model = write_bert(tmp_path / "large", 12 * CHUNK_BYTES)
    chance, stored = random.Random(0), [0]
    env = {**os.environ, "MVPRUNE_PROJECT": client.project}
    for _ in range(4):
        process = subprocess.Popen([sys.executable, "-c", _SEND, server.address, str(model)], env=env)
        deadline = time.monotonic() + 20
        while process.poll() is None and time.monotonic() < deadline and not any(client.uploads()):
            time.sleep(0.05)
        time.sleep(chance.uniform(0, 0.5))
        process.kill()
        process.wait()
        seen: list[mvprune.UploadProgress] = []
        client.upload(model, validate_only=True, on_progress=seen.append)
        stored.append(seen[-1].stored_bytes)
    assert stored == sorted(stored), "what was sent is kept"
    upload = client.upload(model)
    assert upload.state == "READY"
    assert upload.digest == digest(describe(Kind.MODEL, model))


def test_two_clients_send_the_same_at_once(client: Client, server: Server, tmp_path: Path) -> None:
    model = write_bert(tmp_path / "same", 4 * CHUNK_BYTES)
    with Client(server.address, project=client.project) as other, ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda one: one.upload(model), (client, other))
    assert first.state == second.state == "READY"
    assert first.name == second.name
    assert [upload.name for upload in client.uploads()] == [first.name]


def test_knowing_a_digest_gives_another_project_nothing(client: Client, server: Server, tmp_path: Path) -> None:
    model = write_bert(tmp_path / "secret")
    upload = client.upload(model)
    with Client(server.address, project=f"{client.project}-other") as other:
        with pytest.raises(mvprune.InvalidArgument, match=r"job\.spec\.model: .*must be an upload of this project"):
            other.submit(model=upload.reference, task="sst2", density=0.5)
        seen: list[mvprune.UploadProgress] = []
        other.upload(model, on_progress=seen.append)
        assert (seen[-1].stored_bytes, seen[-1].sent_bytes) == (0, seen[-1].total_bytes), "it sends every byte itself"


def test_a_quota_is_kept_before_anything_is_sent(client: Client, tmp_path: Path) -> None:
    big = tmp_path / "big.jsonl"
    with big.open("wb") as file:
        file.truncate(CHUNK_BYTES)
        for number in range(30):  # chunks that differ
            file.seek(number * CHUNK_BYTES)
            file.write(str(number).encode() + b"\n")
        file.truncate(30 * CHUNK_BYTES)
    with pytest.raises(mvprune.LimitExceeded, match="must have at most 209,715,200 bytes in all"):
        client.upload(big)
    assert list(client.uploads()) == []


def test_what_no_client_of_ours_sends_is_refused(client: Client, server: Server) -> None:
    content = b"x" * 100
    sha256, wrong = hashlib.sha256(content).hexdigest(), b"y" * 100
    parent = f"projects/{client.project}"
    with grpc.insecure_channel(server.address) as channel:
        stub = upload_pb2_grpc.UploadServiceStub(channel)

        def create(path: str) -> upload_pb2.Upload:
            file = upload_pb2.UploadFile(path=path, size_bytes=100, chunks=[sha256])
            upload = upload_pb2.Upload(kind=upload_pb2.Upload.MODEL, display_name="m", files=[file])
            made: upload_pb2.Upload = stub.CreateUpload(upload_pb2.CreateUploadRequest(parent=parent, upload=upload))
            return made

        for path in ("../config.json", "/etc/passwd", "a/config.json", ".config.json", "a\\b.json", "model.bin"):
            with pytest.raises(grpc.RpcError) as caught:
                create(path)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT, path
        name = create("config.json").name
        for data in (wrong, content + b"x", content[:-1]):
            with pytest.raises(grpc.RpcError) as caught:
                stub.PutChunk(iter([upload_pb2.PutChunkRequest(name=name, chunk=sha256, data=data)]))
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        urls = stub.GenerateChunkUrls(upload_pb2.GenerateChunkUrlsRequest(name=name, chunks=[sha256])).urls
        for one in urls:  # none where the store is a folder
            with pytest.raises(OSError, match="HTTP status 400"):
                Putter(10.0).put(one.url, [wrong], len(wrong), one.headers)
        commit = upload_pb2.CommitChunksRequest(name=name, chunks=[sha256])
        assert stub.CommitChunks(commit).rejected == [sha256]
        assert stub.GetUpload(upload_pb2.GetUploadRequest(name=name)).missing == [sha256]
