"""Client: folders and files of this machine are sent, and jobs refer to them by digest."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.bert_folder import write_bert
from tests.unit.client.scripted_server import Fake, echo, refuse
from tests.unit.client.scripted_uploads import Uploads, store

import mvprune
from mvprune import AsyncClient, Client
from mvprune.sources.uploads import CHUNK_BYTES, Kind, describe, digest


@pytest.fixture
def uploads(fake: Fake) -> Uploads:
    fake.answers["CreateJob"] = echo
    return Uploads(fake)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_bert(tmp_path / "my-model", 2 * CHUNK_BYTES + 1000)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "train.tsv"
    file.write_text("text\tlabel\ngood\t1\nbad\t0\n")
    return file


def reference(path: Path, kind: Kind = Kind.MODEL) -> str:
    return f"upload:{digest(describe(kind, path))}/{path.name}"


def test_submit_sends_what_is_here_and_refers_to_it_by_digest(
    fake: Fake, client: Client, uploads: Uploads, model: Path, data: Path
) -> None:
    teacher = write_bert(model.with_name("teacher"))
    seen: list[mvprune.UploadProgress] = []
    job = client.submit(
        model=model, teacher=str(teacher), train=data, validation=data, density=0.5, on_upload=seen.append
    )
    assert job.spec.model == reference(model)
    assert job.spec.teacher is not None
    assert job.spec.teacher.model == reference(teacher)
    assert job.spec.dataset is not None
    assert job.spec.dataset.train == job.spec.dataset.validation == reference(data, Kind.DATA)
    assert all(uploads.shown(name).state == 2 for name in uploads.announced)
    trial, real = fake.requests["CreateJob"]
    assert (trial.validate_only, real.validate_only) == (True, False)
    last = {one.path: one for one in seen}
    assert last[model].parameters == ("model",)
    assert last[data].parameters == ("train", "validation")
    assert last[model].sent_bytes == last[model].total_bytes == sum(file.stat().st_size for file in model.iterdir())
    assert [file.path for file in last[model].files] == ["config.json", "model.safetensors", "vocab.txt"]
    assert [one.stage for one in seen if one.path == data][-2:] == ["sending", "sending"]


def test_what_the_server_has_is_not_sent_again(client: Client, uploads: Uploads, model: Path) -> None:
    first = client.upload(model)
    assert len(uploads.put) == 5  # three chunks of the weights, two small files
    lost = uploads.put.pop()
    del uploads.chunks[lost], uploads.put[:]
    seen: list[mvprune.UploadProgress] = []
    assert client.upload(model, on_progress=seen.append) == first
    assert uploads.put == [lost]
    assert seen[-1].stored_bytes + seen[-1].sent_bytes == seen[-1].total_bytes
    assert seen[-1].stored_bytes > 0


def test_nothing_is_sent_where_the_server_refuses_the_job(
    fake: Fake, client: Client, uploads: Uploads, model: Path
) -> None:
    fake.answers["CreateJob"] = lambda request, context: refuse(
        context, grpc.StatusCode.INVALID_ARGUMENT, "bad", violations={"job.spec.task": "must be known"}
    )
    with pytest.raises(mvprune.InvalidArgument, match=r"job\.spec\.task: must be known"):
        client.submit(model=model, task="x", density=0.5)
    assert "CreateUpload" not in fake.requests
    assert uploads.put == []


def test_with_validate_only_nothing_is_sent(fake: Fake, client: Client, uploads: Uploads, model: Path) -> None:
    seen: list[mvprune.UploadProgress] = []
    job = client.submit(model=model, task="sst2", density=0.5, validate_only=True, on_upload=seen.append)
    assert job.spec.model == reference(model)
    assert seen[-1].stage == "checked"
    assert uploads.announced == {}
    assert uploads.put == []
    assert client.upload(model, validate_only=True).state == "INCOMPLETE"
    assert uploads.announced == {}


def test_a_folder_that_no_job_can_use_is_refused_before_anything_is_asked(
    fake: Fake, client: Client, uploads: Uploads, model: Path, tmp_path: Path
) -> None:
    pickles, linked = tmp_path / "pickles", tmp_path / "linked.tsv"
    pickles.mkdir()
    (pickles / "config.json").write_text('{"model_type": "bert"}')
    (pickles / "pytorch_model.bin").write_bytes(b"x")
    linked.symlink_to(tmp_path / "train.tsv")
    (tmp_path / "train.tsv").write_text("a")
    (model / "tokenizer.json").symlink_to("/etc/hostname")
    with pytest.raises(mvprune.InvalidArgument) as caught:
        client.submit(model=model, teacher=pickles, train=linked, validation="/srv/absent.tsv", density=0.5)
    found = dict(caught.value.violations)
    assert found.keys() == {
        "job.spec.model", "job.spec.teacher.model", "job.spec.dataset.train", "job.spec.dataset.validation"
    }  # fmt: skip
    assert "must be a regular file, got a link" in found["job.spec.model"]
    assert "got the pickle 'pytorch_model.bin'" in found["job.spec.teacher.model"]
    assert "must be a regular file, got a link" in found["job.spec.dataset.train"]
    assert "server:/srv/absent.tsv is a file of the server" in found["job.spec.dataset.validation"]
    assert fake.requests == {}


def test_references_and_names_are_sent_as_they_are(fake: Fake, client: Client, uploads: Uploads) -> None:
    for given in ("bert-base-uncased", "server:/srv/m", f"upload:{'a' * 64}/m", "s3://bucket/m"):
        client.submit(model=given, task="sst2", density=0.5)
        assert fake.requests["CreateJob"][-1].job.spec.model == given
    assert "CreateUpload" not in fake.requests


@pytest.mark.parametrize("at", [5 * CHUNK_BYTES, 6 * CHUNK_BYTES], ids=["changed", "grown"])
def test_a_file_that_is_written_while_it_is_sent_is_not_sent_wrong(
    client: Client, uploads: Uploads, tmp_path: Path, at: int
) -> None:
    file = tmp_path / "train.txt"
    file.write_bytes(os.urandom(6 * CHUNK_BYTES))
    (announced,) = describe(Kind.DATA, file)

    def write(chunk: str) -> None:
        with file.open("r+b") as out:
            out.seek(at)
            out.write(b"more\n")

    uploads.before_put = write  # the fifth chunk and those after it are read later
    with pytest.raises(mvprune.UploadError, match=r"train\.txt was changed while it was sent; submit again"):
        client.upload(file)
    assert set(uploads.put) <= set(announced.chunks)


def test_chunks_go_to_the_store_where_it_has_urls(client: Client, uploads: Uploads, model: Path) -> None:
    with store(uploads) as connections:
        assert client.upload(model).state == "READY"
    assert sorted(uploads.put) == sorted(uploads.chunks)
    assert 1 <= len(connections) <= 4  # kept for the next chunk


def test_chunks_that_the_store_has_wrong_are_sent_again(client: Client, uploads: Uploads, model: Path) -> None:
    wrong: set[str] = set()

    def answer(chunk: str, content: bytes) -> int:
        if len(wrong) < 2 and chunk not in wrong:
            wrong.add(chunk)
            uploads.in_store[chunk] = b"other"
        elif chunk in wrong:
            uploads.in_store[chunk] = content
        return 200

    seen: list[mvprune.UploadProgress] = []
    with store(uploads, answer):
        assert client.upload(model, on_progress=seen.append).state == "READY"
    assert len(uploads.put) == 5 + len(wrong)
    assert seen[-1].sent_bytes == seen[-1].total_bytes


def test_a_store_that_keeps_other_bytes_is_given_up(client: Client, uploads: Uploads, data: Path) -> None:
    def answer(chunk: str, content: bytes) -> int:
        uploads.in_store[chunk] = b"other"
        return 200

    with store(uploads, answer), pytest.raises(mvprune.UploadError, match="the store has other bytes than were sent"):
        client.upload(data)


def test_a_store_that_refuses_is_named_without_its_url(
    client: Client, uploads: Uploads, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mvprune.client.transport.CONNECT_SECONDS", 0.2)
    with store(uploads, lambda chunk, content: 403), pytest.raises(mvprune.UploadError) as caught:
        client.upload(data)
    assert "the store does not take it: HTTP status 403 Forbidden AccessDenied" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_server_that_is_away_for_a_moment_is_asked_again(
    fake: Fake, client: Client, uploads: Uploads, data: Path
) -> None:
    put = fake.answers["PutChunk"]

    def away(request: Any, context: grpc.ServicerContext) -> None:
        refuse(context, grpc.StatusCode.UNAVAILABLE, "restarting")

    fake.answers["PutChunk"] = [away, put]  # type: ignore[list-item]
    assert client.upload(data).state == "READY"


def test_the_async_client_sends_too(fake: Fake, uploads: Uploads, model: Path) -> None:
    async def main() -> tuple[str, list[str], list[mvprune.UploadProgress]]:
        seen: list[mvprune.UploadProgress] = []
        async with AsyncClient(fake.address) as client:
            job = await client.submit(model=model, task="sst2", density=0.5, on_upload=seen.append)
            listed = [upload.reference async for upload in client.uploads()]
            await client.delete_upload(listed[0])
        return job.spec.model, listed, seen

    sent, listed, seen = asyncio.run(main())
    assert sent == reference(model)
    assert listed == [sent]
    assert seen[-1].sent_bytes == seen[-1].total_bytes
    assert uploads.announced == {}


def test_an_upload_is_deleted_by_what_names_it(client: Client, uploads: Uploads, model: Path, data: Path) -> None:
    for given in (lambda one: one, lambda one: one.reference, lambda one: one.digest[:8], lambda one: one.name):
        one = client.upload(data)
        client.upload(model)
        client.delete_upload(given(one))
        assert [left.kind for left in client.uploads()] == ["model"]
    with pytest.raises(mvprune.NotFound):
        client.delete_upload("0" * 12)
    client.delete_upload("0" * 12, allow_missing=True)
    with pytest.raises(mvprune.InvalidArgument, match="must be an upload's reference, its name, or at least 8 digits"):
        client.delete_upload("abc")
