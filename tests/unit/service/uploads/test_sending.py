"""An upload from its announcement until it is complete."""

from __future__ import annotations

import asyncio
import base64
import hashlib

import pytest

from mvprune.sources.uploads import CHUNK_BYTES
from mvprune.v1 import upload_pb2
from mvprune_service.db.engine.database import Database
from mvprune_service.stores.base import BlobStore
from mvprune_service.stores.local import LocalStore

from ..conftest import TestClock
from .sender import Sender, Url, described, http_put, noise, refusal, sending, sha256

READY, INCOMPLETE = upload_pb2.Upload.READY, upload_pb2.Upload.INCOMPLETE
WEIGHTS = noise(CHUNK_BYTES + 1000)
FIRST, REST = WEIGHTS[:CHUNK_BYTES], WEIGHTS[CHUNK_BYTES:]
FILES = {"config.json": b"{}", "model.safetensors": WEIGHTS, "empty.txt": b""}
SMALL = {"config.json": b"{}", "model.safetensors": b"weights"}


def contents(store: BlobStore) -> list[str]:
    return sorted(sha256(store.get(entry.key)) for entry in store.list("uploads/"))


async def test_an_upload_is_complete_when_every_chunk_was_sent(sender: Sender, store: BlobStore) -> None:
    announced = await sender.create(described(FILES))
    assert (announced.state, announced.creator) == (INCOMPLETE, "local")
    assert list(announced.missing) == [sha256(b"{}"), sha256(FIRST), sha256(REST)]
    sent = await sender.send(FILES)
    assert (sent.state, list(sent.missing), sent.total_bytes, sent.jobs) == (READY, [], len(WEIGHTS) + 2, 0)
    assert [file.path for file in sent.files] == sorted(FILES)
    assert contents(store) == sorted(announced.missing)


async def test_the_same_call_after_an_interruption_says_what_is_missing(sender: Sender, store: BlobStore) -> None:
    first = await sender.create(described(FILES))
    await sender.put(first.name, REST)
    again = await sender.create(described(FILES, name="another name"))
    assert (again.name, again.display_name, list(again.missing)) == (
        first.name,
        "my-model",
        [sha256(b"{}"), sha256(FIRST)],
    )
    for chunk in (FIRST, b"{}", REST, REST):  # repeating is harmless
        await sender.put(first.name, chunk)
    assert (await sender.create(described(FILES))).state == READY
    assert len(contents(store)) == 3


@pytest.mark.slow
async def test_a_chunk_that_the_project_has_is_not_sent_again(sender: Sender, store: BlobStore) -> None:
    await sender.send(SMALL)
    other = await sender.create(described({"config.json": b"[]", "model.safetensors": b"weights"}))
    assert list(other.missing) == [sha256(b"[]")]
    await sender.put(other.name, b"[]")
    assert (await sender.get(other.name)).state == READY
    third = await sender.create(described({"model.safetensors": b"weights"}))
    assert (third.state, len(contents(store))) == (READY, 3)


async def test_a_shared_chunk_completes_every_upload_that_lacks_it(sender: Sender) -> None:
    uploads = [await sender.create(described({"a.json": b"1", name: b"shared"})) for name in ("x.txt", "y.txt")]
    await sender.put(uploads[0].name, b"shared")
    await sender.put(uploads[1].name, b"1")
    assert [(await sender.get(upload.name)).state for upload in uploads] == [READY, READY]


@pytest.mark.parametrize("wrong", [b"other!!", b"short", b"far too long"])
async def test_other_bytes_than_were_announced_are_refused_and_not_stored(
    sender: Sender, store: BlobStore, wrong: bytes
) -> None:
    upload = await sender.create(described(SMALL))
    found = await refusal(sender.put(upload.name, wrong, chunk=sha256(b"weights")))
    assert (found.code, list(found.fields)) == ("INVALID_ARGUMENT", ["data"])
    assert list(store.list("uploads/")) == []
    assert len((await sender.get(upload.name)).missing) == 2


@pytest.mark.slow
async def test_a_growing_file_is_refused_when_it_exceeds_its_chunk(sender: Sender, store: BlobStore) -> None:
    upload = await sender.create(described({"model.safetensors": FIRST}))
    found = await refusal(sender.put(upload.name, WEIGHTS, chunk=sha256(FIRST)))
    assert found.fields == {"data": "must have the 8,388,608 bytes of the chunk in all, got 8,389,608 bytes or more"}
    assert list(store.list("uploads/")) == []


async def test_a_chunk_of_another_upload_is_none_of_this_one(sender: Sender) -> None:
    upload, other = await sender.create(described(SMALL)), await sender.create(described({"x.txt": b"x"}))
    found = await refusal(sender.put(upload.name, b"x"))
    assert found.fields == {"chunk": f"must be the SHA-256 of a chunk of the upload, got '{sha256(b'x')}'"}
    assert (await refusal(sender.commit(upload.name, sha256(b"x")))).reason == "INVALID_ARGUMENT"
    assert (await refusal(sender.urls(upload.name, sha256(b"x")))).reason == "INVALID_ARGUMENT"
    gone = other.name[:-4] + "0000"
    assert (await refusal(sender.put(gone, b"x"))).code == "NOT_FOUND"


async def test_clients_that_send_the_same_at_once_share_one_upload(sender: Sender, store: BlobStore) -> None:
    uploads = await asyncio.gather(*(sender.create(described(SMALL)) for _ in range(8)))
    assert len({upload.name for upload in uploads}) == 1
    await asyncio.gather(*(sender.put(uploads[0].name, chunk) for chunk in (b"{}", b"weights") * 6))
    assert (await sender.get(uploads[0].name)).state == READY
    assert len(contents(store)) == 2


@pytest.mark.slow
async def test_chunks_that_end_at_once_complete_the_upload(sender: Sender) -> None:
    parts = [bytes([number]) * 5 for number in range(30)]
    upload = await sender.create(described({f"{number}.txt": part for number, part in enumerate(parts)}))
    await asyncio.gather(*(sender.put(upload.name, part) for part in parts))
    assert (await sender.get(upload.name)).state == READY


async def test_each_project_sends_its_own_bytes(db: Database, store: BlobStore, clock: TestClock) -> None:
    async with sending(db, store, clock) as sender:
        mine = await sender.send(SMALL)
        other = Sender(sender.stub, "q")
        theirs = await other.create(described(SMALL))
        assert (len(theirs.missing), theirs.state) == (2, INCOMPLETE), "knowing the digest gives nothing"
        assert (await refusal(other.get(mine.name.replace("/p/", "/r/")))).code == "NOT_FOUND"
        await other.send(SMALL)
    assert contents(store) == sorted([sha256(b"{}"), sha256(b"weights")] * 2)


async def test_a_store_with_urls_takes_chunks_past_the_server(sender: Sender, store: BlobStore) -> None:
    upload = await sender.create(described(SMALL))
    wanted = [sha256(b"weights"), sha256(b"{}")]
    urls = await sender.urls(upload.name, *wanted)
    if isinstance(store, LocalStore):
        assert urls == {}
        return
    assert list(urls) == wanted
    assert await sender.commit(upload.name, *wanted) == wanted, "nothing was sent"
    assert await http_put(urls[wanted[0]], b"weights") == 200
    assert await http_put(urls[wanted[1]], b"[]") == 400, "the size is right, the content is not"
    assert await sender.commit(upload.name, *wanted) == wanted[1:]
    assert list((await sender.get(upload.name)).missing) == wanted[1:]
    assert await http_put(urls[wanted[1]], b"{}") == 200
    assert await sender.commit(upload.name, *wanted) == []
    assert (await sender.get(upload.name)).state == READY
    assert await sender.urls(upload.name, *wanted) == {}, "there is nothing to send"


async def test_a_url_takes_no_other_content_than_its_chunk(sender: Sender, store: BlobStore) -> None:
    """It is valid for minutes after the chunk was checked: other bytes would be what jobs train on."""
    if isinstance(store, LocalStore):
        return
    upload = await sender.create(described({"x.txt": b"first"}))
    (to,) = (await sender.urls(upload.name, sha256(b"first"))).values()
    assert await http_put(to, b"first") == 200
    assert await sender.commit(upload.name, sha256(b"first")) == []
    checksum = base64.b64encode(hashlib.sha256(b"other").digest()).decode()
    forged = Url(url=to.url, headers=dict.fromkeys(to.headers, checksum))
    for replacing in (to, forged, Url(url=to.url)):
        assert await http_put(replacing, b"other") in {400, 403}
    assert contents(store) == [sha256(b"first")]


async def test_an_object_of_another_size_is_rejected(sender: Sender, store: BlobStore) -> None:
    if isinstance(store, LocalStore):
        return
    upload = await sender.create(described(SMALL))
    (url,) = (await sender.urls(upload.name, sha256(b"weights"))).values()
    assert "content-length" in url.url.lower(), "the size is signed"
    await http_put(url, b"weights and more")
    assert await sender.commit(upload.name, sha256(b"weights")) == [sha256(b"weights")]
