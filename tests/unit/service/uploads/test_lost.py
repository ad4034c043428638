"""Chunks that the store has lost are missing: the next client that submits sends just these again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Tiny

from mvprune.v1 import upload_pb2
from mvprune_service.api.access.errors import ApiError
from mvprune_service.db import uploads
from mvprune_service.db.engine.database import Database
from mvprune_service.db.tables.uploads import ChunkRow
from mvprune_service.ids import UploadName
from mvprune_service.stores.base import BlobStore, StoreUnavailable
from mvprune_service.stores.layout import upload_key

from .sender import Sender, described, noise, sha256
from .test_using import dataset, name_of
from .world import World

INCOMPLETE, READY = upload_pb2.Upload.INCOMPLETE, upload_pb2.Upload.READY
only_local = pytest.mark.parametrize("store", ["local"], indirect=True)


async def chunks_of(db: Database, name: str) -> dict[str, ChunkRow]:
    _, project, _, digest = name.split("/")
    return await db.read(uploads.chunks_of, UploadName(project, digest))


async def lose(db: Database, store: BlobStore, name: str, *contents: bytes) -> None:
    """Deletes the objects of chunks."""
    chunks = await chunks_of(db, name)
    for content in contents:
        store.delete(upload_key(chunks[sha256(content)].uid))


async def test_a_submission_finds_what_the_store_lost_and_goes_on_when_it_was_sent_again(
    world: World, tiny: Tiny, db: Database, store: BlobStore
) -> None:
    config = (tiny.model / "config.json").read_bytes()
    model = await world.send_model(tiny)
    await lose(db, store, name_of(model), config)
    found = await world.refused(model=model)
    assert "must be an upload of this project that is complete" in found["job.spec.model"]
    upload = await world.sender.get(name_of(model))
    assert (upload.state, list(upload.missing)) == (INCOMPLETE, [sha256(config)])
    assert "job.spec.model" in await world.refused(model=model)
    await world.sender.put(upload.name, config)
    assert (await world.sender.get(upload.name)).state == READY
    await world.submit(model=model)


@pytest.mark.slow
async def test_all_that_is_lost_is_found_at_once(world: World, tiny: Tiny, db: Database, store: BlobStore) -> None:
    files = {path.name: path.read_bytes() for path in tiny.model.iterdir()}
    model = await world.send_model(tiny)
    await lose(db, store, name_of(model), *files.values())
    await world.refused(model=model)
    upload = await world.sender.get(name_of(model))
    assert set(upload.missing) == {sha256(content) for content in files.values()}
    await world.send_model(tiny)
    await world.submit(model=model)


async def test_a_dry_run_says_that_lost_data_are_checked_later(
    world: World, tiny: Tiny, db: Database, store: BlobStore
) -> None:
    """So a client that asks first, as ours does, sends them and submits."""
    model, train = await world.send_model(tiny), await world.send_data(tiny.train)
    validation = await world.send_data(tiny.validation)
    await lose(db, store, name_of(train), tiny.train.read_bytes())
    job = await world.submit(validate_only=True, model=model, **dataset(train, validation))
    assert "train: train.jsonl is checked when it has been sent" in job.notes
    announced = await world.sender.create(
        described({"train.jsonl": tiny.train.read_bytes()}, upload_pb2.Upload.DATA, "train.jsonl")
    )
    assert list(announced.missing) == [sha256(tiny.train.read_bytes())]
    await world.send_data(tiny.train)
    await world.submit(model=model, **dataset(train, validation))


async def test_a_worker_is_believed_only_where_the_store_says_the_same(
    world: World, tiny: Tiny, db: Database, store: BlobStore
) -> None:
    files = {path.name: path.read_bytes() for path in tiny.model.iterdir()}
    model = await world.send_model(tiny)
    await world.submit(model=model)
    attempt = await world.attempt_of("a")
    claimed = await attempt.claim()
    every = sorted({sha256(content) for content in files.values() if content})
    assert await attempt.report_lost(*every[:16]) == []
    assert (await world.sender.get(name_of(model))).state == READY
    config = files["config.json"]
    await lose(db, store, name_of(model), config)
    changed = bytes([files["model.safetensors"][0] ^ 1]) + files["model.safetensors"][1:]
    store.put(claimed.uploads[0].keys[sha256(files["model.safetensors"])], changed)
    lost = {sha256(config), sha256(files["model.safetensors"])}
    assert set(await attempt.report_lost(*every[:16])) == lost
    upload = await world.sender.get(name_of(model))
    assert (upload.state, set(upload.missing)) == (INCOMPLETE, lost)
    assert await attempt.report_lost(*every[:16]) == [], "it is known"
    await world.send_model(tiny)
    again = (await world.submit("b", model=model)).spec.model
    assert again == model
    claimed = await (await world.attempt_of("b")).claim()
    (given,) = claimed.uploads
    for file in given.files:
        assert b"".join(store.get(given.keys[chunk]) for chunk in file.chunks) == files[file.path]


@only_local
@pytest.mark.parametrize("wrong", [[], ["0" * 64], [sha256(b"{}")], ["0" * 64] * 17])
async def test_a_worker_may_name_only_chunks_of_its_job(world: World, tiny: Tiny, wrong: list[str]) -> None:
    """Else an attempt could make the server read whatever it wants."""
    await world.sender.send({"config.json": b"{}"})
    await world.submit(model=await world.send_model(tiny))
    attempt = await world.attempt_of("a")
    with pytest.raises(ApiError) as refused:
        await attempt.report_lost(*wrong)
    assert [field for field, _ in refused.value.violations] == ["chunks"]


@pytest.mark.slow
@only_local
async def test_a_worker_without_the_attempts_secret_or_whose_lease_is_over_reports_nothing(
    world: World, tiny: Tiny, db: Database, store: BlobStore
) -> None:
    model = await world.send_model(tiny)
    await world.submit(model=model)
    attempt = await world.attempt_of("a")
    config = (tiny.model / "config.json").read_bytes()
    await lose(db, store, name_of(model), config)
    attempt.secret, secret = "wrong", attempt.secret
    with pytest.raises(ApiError, match="credential"):
        await attempt.report_lost(sha256(config))
    attempt.secret = secret
    attempt.lease.fencing_token += 1
    with pytest.raises(ApiError):
        await attempt.report_lost(sha256(config))
    assert (await world.sender.get(name_of(model))).state == READY


@only_local
async def test_every_upload_of_the_project_lacks_a_lost_chunk_and_no_other_projects(
    world: World, db: Database, store: BlobStore
) -> None:
    shared, other = {"config.json": b"shared"}, Sender(world.sender.stub, "q")
    first = await world.sender.send(shared)
    second = await world.sender.send(shared | {"vocab.txt": b"more"})
    theirs = await other.send(shared)
    untouched = await world.sender.send({"config.json": b"another"})
    await lose(db, store, first.name, b"shared")
    before = await chunks_of(db, first.name)
    assert await world.lost.note("p", before.values(), by_content=True) == [sha256(b"shared")]
    after = await chunks_of(db, first.name)
    assert after[sha256(b"shared")].uid != before[sha256(b"shared")].uid, "a URL for the old object leads nowhere"
    states = [(await world.sender.get(one.name)).state for one in (first, second, untouched)]
    assert states == [INCOMPLETE, INCOMPLETE, READY]
    assert (await other.get(theirs.name)).state == READY
    await world.sender.put(second.name, b"shared")
    assert [(await world.sender.get(one.name)).state for one in (first, second)] == [READY, READY]


@only_local
async def test_what_was_sent_again_meanwhile_is_not_lost(world: World, db: Database, store: BlobStore) -> None:
    upload = await world.sender.send({"config.json": b"{}"})
    await lose(db, store, upload.name, b"{}")
    seen = await chunks_of(db, upload.name)
    await world.lost.note("p", seen.values(), by_content=False)
    await world.sender.put(upload.name, b"{}")
    await db.write(uploads.mark_lost, "p", list(seen.values()))  # of one who looked before
    assert (await world.sender.get(upload.name)).state == READY


@only_local
async def test_a_store_that_does_not_answer_has_lost_nothing(
    world: World, tiny: Tiny, db: Database, tmp_path: Path
) -> None:
    model = await world.send_model(tiny)
    root, away = tmp_path / "a store", tmp_path / "away"
    root.rename(away)
    root.write_text("not a folder")
    chunks = await chunks_of(db, name_of(model))
    with pytest.raises(StoreUnavailable):
        await world.lost.note("p", chunks.values(), by_content=True)
    with pytest.raises(StoreUnavailable):
        await world.submit(model=model)
    root.unlink()
    away.rename(root)
    assert (await world.sender.get(name_of(model))).state == READY
    await world.submit(model=model)


@only_local
async def test_what_a_lost_chunk_leaves_is_garbage(world: World, db: Database, store: BlobStore) -> None:
    content: dict[str, Any] = {"model.safetensors": noise(1000)}
    upload = await world.sender.send(content)
    (chunk,) = (await chunks_of(db, upload.name)).values()
    store.put(upload_key(chunk.uid), b"changed")
    await world.lost.note("p", [chunk], by_content=True)
    await world.sender.put(upload.name, content["model.safetensors"])
    assert chunk.uid not in await world.uids()
    assert world.objects() == {chunk.uid, *await world.uids()}
