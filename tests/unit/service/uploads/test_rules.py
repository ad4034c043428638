"""What may be sent, how much of it, and by whom."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from mvprune.sources.uploads import CHUNK_BYTES, MAX_CHUNKS, MAX_FILE_BYTES
from mvprune.v1 import upload_pb2
from mvprune_service.api import uploads as api
from mvprune_service.api.access import shares
from mvprune_service.api.access.auth import Authenticator, digest
from mvprune_service.clock import SECOND
from mvprune_service.db import projects, tokens, uploads
from mvprune_service.db.engine.database import Database
from mvprune_service.ids import TokenName
from mvprune_service.stores.base import BlobStore

from ..conftest import TestClock
from .sender import Sender, described, refusal, sending, sha256

pytestmark = pytest.mark.parametrize("store", ["local"], indirect=True)
DATA = upload_pb2.Upload.DATA
SMALL = {"config.json": b"{}", "model.safetensors": b"weights"}


def announced(path: str = "model.safetensors", size: int = 1, chunks: int = 1, files: int = 1) -> upload_pb2.Upload:
    upload = upload_pb2.Upload(kind=upload_pb2.Upload.MODEL, display_name="m")
    for number in range(files):
        names = [sha256(f"{number} {one}".encode()) for one in range(chunks)]
        upload.files.add(path=path if files == 1 else f"{number}{path}", size_bytes=size, chunks=names)
    return upload


@pytest.mark.parametrize(
    ("upload", "field", "text"),
    [
        (announced("../config.json"), "upload.files", "a name without '/'"),
        (announced("/etc/passwd"), "upload.files", "a name without '/'"),
        (announced("..\\config.json"), "upload.files", "a name without '/'"),
        (announced(".hidden.json"), "upload.files", "not starting with a dot"),
        (announced("a\u202eb.json"), "upload.files[0].path", "printable"),
        (announced("pytorch_model.bin"), "upload.files", "must be .codes, .jinja, .json"),
        (announced(files=1001), "upload.files", "at most 1000 entries"),
        (announced(size=MAX_FILE_BYTES + 1, chunks=2560), "upload.files", "at most 21,474,836,480 bytes"),
        (announced(size=MAX_FILE_BYTES + 1, chunks=2561), "upload.files[0].chunks", "at most 2560 entries"),
        (announced(size=-1), "upload.files", "at most"),
        (announced(size=CHUNK_BYTES + 1), "upload.files", "each of its 2 chunks"),
        (upload_pb2.Upload(display_name="m"), "upload.kind", "MODEL or DATA"),
        (upload_pb2.Upload(kind=DATA, display_name="a/b"), "upload.display_name", "without '/'"),
        (upload_pb2.Upload(kind=DATA, display_name="m"), "upload.files", "must have one file"),
    ],
)
async def test_what_cannot_be_sent_is_refused_with_its_field(
    sender: Sender, upload: upload_pb2.Upload, field: str, text: str
) -> None:
    found = await refusal(sender.create(upload))
    assert found.code == "INVALID_ARGUMENT"
    assert text in found.fields[field]


async def test_no_two_names_differ_only_in_case(sender: Sender) -> None:
    found = await refusal(sender.create(described({"Config.json": b"1", "config.json": b"2"})))
    assert "differ in more than upper and lower case" in found.fields["upload.files"]


async def test_a_chunk_has_one_size(sender: Sender) -> None:
    await sender.create(announced(size=5))
    found = await refusal(sender.create(announced(size=6)))
    assert "has 5 bytes in another upload of the project, got 6" in found.fields["upload"]
    twice = announced(size=5)
    twice.files.add(path="x.json", size_bytes=4, chunks=twice.files[0].chunks)
    assert "must have one size, got 5 and 4" in (await refusal(sender.create(twice))).fields["upload"]


async def test_the_largest_upload_is_listed_in_one_message(sender: Sender) -> None:
    upload = announced(size=MAX_FILE_BYTES // 2, chunks=1280, files=2)
    made = await sender.create(upload)
    assert (len(made.missing), made.total_bytes) == (MAX_CHUNKS, 20 << 30)
    upload.files.add(path="x.json", size_bytes=1, chunks=[sha256(b"x")])
    found = await refusal(sender.create(upload))
    rule = (
        "at most 2,560 chunks of 8,388,608 bytes (20 GiB), got 2,561; larger ones must be where the server reads them"
    )
    assert rule in found.fields["upload.files"]


@pytest.mark.parametrize("validate_only", [False, True])
async def test_chunks_that_repeat_make_no_upload_of_many_times_their_bytes(
    sender: Sender, *, validate_only: bool
) -> None:
    """One chunk of 8 MiB was enough for an upload of as many bytes as there may be."""

    def repeated(times: int, different: int = 1) -> upload_pb2.Upload:
        upload = upload_pb2.Upload(kind=DATA, display_name="d.txt")
        chunks = [sha256(f"{number % different}".encode()) for number in range(times)]
        upload.files.add(path="d.txt", size_bytes=times * CHUNK_BYTES, chunks=chunks)
        return upload

    for upload in (repeated(8), repeated(12, 3)):
        await sender.create(upload, validate_only=validate_only)
    for upload, sent, total in (
        (repeated(9), "8,388,608", "75,497,472"),
        (repeated(13, 3), "25,165,824", "109,051,904"),
    ):
        found = await refusal(sender.create(upload, validate_only=validate_only))
        rule = (
            f"at most 4 times the bytes of its different chunks, {sent}, got {total}; remove what repeats, or compress"
        )
        assert rule in found.fields["upload.files"]


@pytest.mark.parametrize("validate_only", [False, True])
async def test_a_projects_uploads_have_only_so_many_parts(
    db: Database, store: BlobStore, clock: TestClock, *, validate_only: bool
) -> None:
    """Each file and each chunk is work for the database, however few bytes it has."""
    async with sending(db, store, clock, max_parts=5) as sender:
        first = await sender.create(described(SMALL))  # 2 files, 2 chunks
        found = await refusal(sender.create(described({"x.txt": b"x"}), validate_only=validate_only))
        assert (found.code, found.reason) == ("RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED")
        assert "at most 5 files and chunks in all, got 6 with this one" in found.message
        assert "--max-upload-parts of the server" in found.message
        await sender.create(described({"empty.txt": b""}), validate_only=validate_only)  # a file without chunks
        assert (await sender.create(described(SMALL))).name == first.name, "what is there stays"
        await Sender(sender.stub, "q").create(described(SMALL), validate_only=validate_only)
        await sender.delete(first.name)
        await sender.create(described({"x.txt": b"x"}), validate_only=validate_only)


async def test_the_totals_of_a_project_are_those_of_its_rows(db: Database, store: BlobStore, clock: TestClock) -> None:
    """They are kept, not counted: through uploads that share chunks, are deleted, and grow old."""

    async def check(total_bytes: int, parts: int) -> None:
        rows = await db.read(lambda conn: uploads.totals_of(conn, ["p"]))
        assert (rows["p"].stored_bytes, rows["p"].parts) == (total_bytes, parts)

    async with sending(db, store, clock) as sender:
        small = await sender.send(SMALL)
        await check(9, 4)
        other = await sender.create(described({"model.safetensors": b"weights", "x.txt": b"x", "y.txt": b"x"}))
        await check(10, 9)
        await sender.create(described(SMALL))
        await check(10, 9)
        await sender.delete(small.name)
        await check(8, 5)
        await sender.delete(small.name, allow_missing=True)
        await check(8, 5)
        await sender.send(SMALL)
        clock.pass_seconds(10)
        assert await db.write(uploads.delete_unused, clock() - 5 * SECOND, 10) == 2
        await check(0, 0)
        assert (await refusal(sender.get(other.name))).code == "NOT_FOUND"


async def test_a_projects_uploads_have_a_quota(db: Database, store: BlobStore, clock: TestClock) -> None:
    async with sending(db, store, clock, max_bytes=9) as sender:
        await sender.send(SMALL)  # 9 bytes
        same = await sender.create(described({"model.safetensors": b"weights"}))
        assert same.state == upload_pb2.Upload.READY, "a chunk counts once"
        for validate_only in (True, False):
            more = described({"x.txt": b"x"})
            found = await refusal(sender.create(more, validate_only=validate_only))
            assert (found.code, found.reason) == ("RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED")
            assert "at most 9 bytes in all, got 10" in found.message
        await Sender(sender.stub, "q").create(more)  # another project has its own
        await sender.delete(same.name)
        assert (await refusal(sender.create(more))).reason == "QUOTA_EXCEEDED", "the other upload has these chunks"
        await sender.stub.DeleteUpload(
            upload_pb2.DeleteUploadRequest(name=(await sender.create(described(SMALL))).name)
        )
        await sender.create(more)


async def test_a_projects_own_quota_replaces_the_servers(db: Database, store: BlobStore, clock: TestClock) -> None:
    async def set_quota(limit: int | None) -> projects.Project:
        quotas = {"max_queued_jobs": None, "max_running_gpus": None, "max_upload_bytes": limit}
        return await db.write(lambda tx: projects.set_quotas(tx, "p", **quotas))

    async with sending(db, store, clock, max_bytes=9) as sender:
        await sender.send(SMALL)  # 9 bytes
        more = described({"x.txt": b"x"})
        other = Sender(sender.stub, "q")
        for limit, takes in ((8, False), (9, False), (0, False), (None, False), (10, True)):
            assert (await set_quota(limit)).max_upload_bytes == limit
            if takes:
                await sender.create(more)
            else:
                found = await refusal(sender.create(more))
                assert f"at most {9 if limit is None else limit} bytes in all, got 10" in found.message
                assert "mvpctl project set p --max-upload-bytes" in found.message
            assert (await sender.create(described(SMALL))).state == upload_pb2.Upload.READY, "what is there stays"
        assert (await set_quota(10)).upload_bytes == 10
        await other.send(SMALL)
        assert (await refusal(other.create(more))).reason == "QUOTA_EXCEEDED", "it has the server's"
        listed = {one.project: (one.max_upload_bytes, one.upload_bytes) for one in await db.read(projects.page, "", 9)}
        assert listed == {"p": (10, 10), "q": (None, 9)}, "a project may have only uploads"


async def test_a_dry_run_stores_nothing(sender: Sender) -> None:
    tried = await sender.create(described(SMALL), validate_only=True)
    assert len(tried.missing) == 2
    assert (await refusal(sender.get(tried.name))).code == "NOT_FOUND"


async def test_uploads_are_listed_newest_first_without_their_files(sender: Sender) -> None:
    made = [await sender.send({"x.txt": bytes([number])}) for number in range(3)]
    request = upload_pb2.ListUploadsRequest(parent="projects/p", page_size=2)
    first = await sender.stub.ListUploads(request)
    request.page_token = first.next_page_token
    second = await sender.stub.ListUploads(request)
    listed = [*first.uploads, *second.uploads]
    assert [upload.name for upload in listed] == [upload.name for upload in made[::-1]]
    assert not second.next_page_token
    assert {(upload.state, len(upload.files), upload.total_bytes) for upload in listed} == {
        (upload_pb2.Upload.READY, 0, 1)
    }
    assert listed[0].expire_time.seconds == listed[0].create_time.seconds + 86_400


@pytest.fixture
async def guarded(db: Database, store: BlobStore, clock: TestClock) -> AsyncIterator[dict[str, Sender]]:
    """Senders with tokens, by project and scope."""
    made = {}
    for project, scope in (("p", "SUBMIT"), ("p", "READ"), ("q", "SUBMIT")):
        secret = f"mvp_{project}_{scope}".ljust(40, "x")
        await db.write(
            tokens.create,
            TokenName(project, f"token-{project}-{scope.lower()}"),
            secret_sha256=digest(secret),
            scope=scope,
            display_name="",
            creator="",
            expire_us=None,
        )
        made[f"{project} {scope}"] = secret
    async with sending(db, store, clock, authenticator=Authenticator(db, clock)) as sender:
        yield {name: Sender(sender.stub, name[0], secret) for name, secret in made.items()}


async def test_only_a_token_of_the_project_that_may_submit_sends_and_deletes(guarded: dict[str, Sender]) -> None:
    upload = await guarded["p SUBMIT"].create(described(SMALL))
    for who, reason in (("p READ", "SCOPE_NEEDED"), ("q SUBMIT", "OTHER_PROJECT")):
        caller = guarded[who]
        for call in (
            caller.put(upload.name, b"weights"),
            caller.commit(upload.name, sha256(b"weights")),
            caller.urls(upload.name, sha256(b"weights")),
            caller.delete(upload.name),
        ):
            found = await refusal(call)
            assert (found.code, found.reason) == ("PERMISSION_DENIED", reason)
    assert (await guarded["p READ"].get(upload.name)).state == upload_pb2.Upload.INCOMPLETE
    assert (await refusal(guarded["q SUBMIT"].get(upload.name))).code == "PERMISSION_DENIED"
    await guarded["p SUBMIT"].put(upload.name, b"weights")


async def test_only_the_first_request_of_a_chunk_says_whose_it_is(guarded: dict[str, Sender]) -> None:
    mine, theirs = guarded["p SUBMIT"], guarded["q SUBMIT"]
    own, other = await mine.create(described(SMALL)), await theirs.create(described(SMALL))

    async def pieces() -> AsyncIterator[upload_pb2.PutChunkRequest]:
        yield upload_pb2.PutChunkRequest(name=own.name, chunk=sha256(b"weights"), data=b"wei")
        yield upload_pb2.PutChunkRequest(name=other.name, data=b"ghts")

    assert list((await refusal(mine.stub.PutChunk(pieces(), metadata=mine.metadata))).fields) == ["chunk"]
    nothing: list[upload_pb2.PutChunkRequest] = []
    assert (await refusal(mine.stub.PutChunk(iter(nothing), metadata=mine.metadata))).code == "INVALID_ARGUMENT"


async def test_chunks_of_a_project_wait_for_room(
    sender: Sender, monkeypatch: pytest.MonkeyPatch, db: Database, store: BlobStore, clock: TestClock
) -> None:
    monkeypatch.setattr(shares, "_WAIT_SECONDS", 0.05)
    monkeypatch.setattr(api, "_OF_EACH", 1)
    has_place, give = asyncio.Event(), shares.Shares._give

    def noted(room: shares.Shares, owner: str) -> None:
        give(room, owner)
        if room._unit == "chunks":
            has_place.set()

    monkeypatch.setattr(shares.Shares, "_give", noted)
    async with sending(db, store, clock) as one_at_a_time:
        upload = await one_at_a_time.create(described(SMALL))
        slow = one_at_a_time.stub.PutChunk()
        await slow.write(upload_pb2.PutChunkRequest(name=upload.name, chunk=sha256(b"weights"), data=b"wei"))

        await has_place.wait()
        found = await refusal(one_at_a_time.put(upload.name, b"{}"))
        assert (found.code, found.reason) == ("RESOURCE_EXHAUSTED", "TOO_MANY_CALLS")
        assert "chunks of a project at a time must be at most 1" in found.message
        await slow.write(upload_pb2.PutChunkRequest(data=b"ghts"))
        await slow.done_writing()
        await slow
        await one_at_a_time.put(upload.name, b"{}")
        assert (await one_at_a_time.get(upload.name)).state == upload_pb2.Upload.READY


async def test_a_chunk_must_arrive_in_time(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_CHUNK_SECONDS", 0.05)
    upload = await sender.create(described(SMALL))
    call = sender.stub.PutChunk()
    await call.write(upload_pb2.PutChunkRequest(name=upload.name, chunk=sha256(b"weights"), data=b"wei"))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
