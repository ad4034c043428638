"""What nothing uses is removed, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing

import pytest
from tests.conftest import Tiny
from tests.copies import copy_database

from mvprune.v1 import job_pb2, sweep_pb2
from mvprune_service.api.access.errors import ApiError
from mvprune_service.control.ownership import Ownership, Standing, key_of, read_marks
from mvprune_service.db import uploads
from mvprune_service.db.engine.database import Database
from mvprune_service.db.engine.installation import Mark
from mvprune_service.db.overview import has_stored
from mvprune_service.ids import UploadName
from mvprune_service.stores.base import BlobStore
from mvprune_service.stores.layout import upload_key

from ..clocks import clock as clock  # nearer than the one that the other tests share
from .sender import described, refusal
from .test_using import dataset, name_of
from .world import World

DAY = 86_400
STEPS = 20  # the rest of a pass that has begun, and the next one as far as uploads
SMALL = {"config.json": b"{}", "model.safetensors": b"weights"}
only_local = pytest.mark.parametrize("store", ["local"], indirect=True)


async def collect(world: World, days: float = 2) -> None:
    """Lets a pass of garbage collection note what is garbage, and another one delete it."""
    for _ in range(2):
        world.clock.pass_seconds(days * DAY)
        for _ in range(STEPS):
            await world.janitor.step()


@pytest.mark.slow
async def test_an_upload_without_a_job_is_deleted_and_then_its_objects(
    world: World, db: Database, store: BlobStore
) -> None:
    await Ownership(db, store).check()
    upload = await world.sender.send(SMALL)
    await world.janitor.step()
    assert (await world.sender.get(upload.name)).jobs == 0, "it is kept for a day"
    world.clock.pass_seconds(DAY + 1)
    await world.janitor.step()
    assert (await refusal(world.sender.get(upload.name))).code == "NOT_FOUND"
    assert await world.uids() == set()
    assert len(world.objects()) == 2, "the quarantine keeps them"
    await collect(world)
    assert world.objects() == set()


@pytest.mark.slow
async def test_what_is_used_stays_with_its_objects_until_its_job_is_deleted(
    world: World, tiny: Tiny, db: Database, store: BlobStore
) -> None:
    await Ownership(db, store).check()
    model = await world.send_model(tiny)
    unused = await world.sender.send(SMALL)
    await world.submit(model=model)
    await collect(world)
    kept = await world.sender.get(name_of(model))
    assert (kept.jobs, kept.HasField("expire_time")) == (1, False)
    assert (await refusal(world.sender.get(unused.name))).code == "NOT_FOUND"
    assert world.objects() == await world.uids()
    await world.delete_job()
    await collect(world)
    assert world.objects() == set()


@pytest.mark.slow
async def test_an_object_that_another_database_knows_is_not_deleted(
    world: World, db: Database, store: BlobStore
) -> None:
    store.put(key_of(Mark("another", 1, "x")), b"")
    store.put(upload_key("01890000-0000-7000-8000-000000000000"), b"theirs")
    await collect(world)
    assert len(world.objects()) == 1


@only_local
async def test_a_copy_that_does_not_know_an_upload_does_not_own_its_store(
    world: World, new_database: Callable[..., str], db: Database, store: BlobStore
) -> None:
    await Ownership(db, store).check()
    before, after = new_database(), new_database()
    url = db.engine.url.render_as_string(hide_password=False)
    copy_database(url, before)
    upload = await world.sender.create(described(SMALL))
    copy_database(url, after)
    for content in SMALL.values():
        await world.sender.put(upload.name, content)
    marks = read_marks(store)
    assert not (await world.sender.create(described(SMALL))).missing
    assert read_marks(store) == marks, "nothing more will be stored"
    for copy, standing in ((before, Standing.NEWER), (after, Standing.OURS)):
        with closing(Database(copy)) as other:
            assert (await Ownership(other, store).look()).standing is standing


@only_local
async def test_an_upload_that_is_being_sent_is_not_deleted(world: World) -> None:
    upload = await world.sender.create(described(SMALL))
    for content in (b"{}", b"weights"):
        world.clock.pass_seconds(0.9 * DAY)
        await world.sender.put(upload.name, content)
        await world.janitor.step()
    world.clock.pass_seconds(0.9 * DAY)
    await world.janitor.step()
    assert not (await world.sender.get(upload.name)).missing


@only_local
async def test_a_chunk_of_an_upload_that_was_deleted_meanwhile_is_not_ready(world: World, db: Database) -> None:
    upload = await world.sender.create(described(SMALL))
    name = UploadName("p", upload.name[-64:])
    stale = list((await db.read(uploads.chunks_of, name)).values())
    await world.sender.delete(upload.name)
    assert not await db.write(uploads.mark_ready, name, stale)
    again = await world.sender.create(described(SMALL))
    assert len(again.missing) == 2
    assert not await db.write(uploads.mark_ready, name, stale), "the new chunks have other objects"
    assert len((await world.sender.get(upload.name)).missing) == 2


@only_local
async def test_deleting_an_upload_keeps_the_chunks_of_others(world: World) -> None:
    first, second = await world.sender.send(SMALL), await world.sender.send({"model.safetensors": b"weights"})
    await world.sender.delete(first.name)
    assert (await world.sender.get(second.name)).state == second.state
    assert len(await world.uids()) == 1
    assert (await refusal(world.sender.delete(first.name))).code == "NOT_FOUND"
    await world.sender.delete(first.name, allow_missing=True)


@only_local
async def test_an_upload_in_use_cannot_be_deleted(world: World, tiny: Tiny) -> None:
    model = await world.send_model(tiny)
    data = dataset(await world.send_data(tiny.train), await world.send_data(tiny.validation))
    await world.submit(model=model)
    await world.create_sweep([{"parameter": "model", "values": [model]}], **data)
    found = await refusal(world.sender.delete(name_of(model)))
    assert (found.code, found.reason) == ("FAILED_PRECONDITION", "UPLOAD_IN_USE")
    assert "projects/p/jobs/a, projects/p/sweeps/s" in found.message
    await world.delete_job()
    assert (await refusal(world.sender.delete(name_of(model)))).reason == "UPLOAD_IN_USE"
    name = "projects/p/sweeps/s"
    await world.sweeps.CancelSweep(sweep_pb2.CancelSweepRequest(name=name), None)
    await world.controller.step()
    await world.sweeps.DeleteSweep(sweep_pb2.DeleteSweepRequest(name=name), None)
    await world.sender.delete(name_of(model))


@only_local
async def test_only_an_upload_without_a_use_goes_after_a_day(world: World, tiny: Tiny) -> None:
    model, unused = await world.send_model(tiny), await world.sender.send(SMALL)
    await world.submit(model=model)
    world.clock.pass_seconds(DAY + 1)
    await world.janitor.step()
    assert (await world.sender.get(name_of(model))).jobs == 1
    assert (await refusal(world.sender.get(unused.name))).code == "NOT_FOUND"


@pytest.mark.slow
@only_local
async def test_a_job_that_is_created_while_its_upload_is_deleted_has_it_or_is_refused(world: World, tiny: Tiny) -> None:
    for number in range(12):
        model = await world.send_model(tiny, **{"n.txt": bytes([number])})
        world.clock.pass_seconds(DAY + 1)

        async def submit(model: str = model, number: int = number) -> job_pb2.Job:
            return await world.submit(f"j{number}", model=model)

        made, _ = await asyncio.gather(submit(), world.janitor.step(), return_exceptions=True)
        if isinstance(made, job_pb2.Job):
            assert (await world.sender.get(name_of(model))).jobs == 1
            continue
        # Deleted before the check, after it, or while the chunks were read: the objects stay, so the last cannot fail.
        assert isinstance(made, ApiError), made
        assert "complete, got" in str(made)
        assert (await refusal(world.sender.get(name_of(model)))).code == "NOT_FOUND"


@only_local
async def test_a_database_with_chunks_refers_to_its_store(world: World, db: Database) -> None:
    upload = await world.sender.create(described({"x.txt": b"x"}))
    assert not await db.read(has_stored)
    await world.sender.put(upload.name, b"x")
    assert await db.read(has_stored)
