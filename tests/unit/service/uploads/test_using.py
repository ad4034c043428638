"""Jobs and sweeps that refer to uploads: what is checked, and what a worker gets."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from sqlalchemy import insert, update
from tests.conftest import Tiny
from tests.sparse_artifacts import make_artifact

from mvprune.sources.model_folder import inspect_model
from mvprune.sources.references import InvalidReference
from mvprune.v1 import job_pb2, sweep_pb2
from mvprune_service.api.access.errors import ApiError
from mvprune_service.db import records
from mvprune_service.db.engine.database import Database
from mvprune_service.db.tables.artifacts import ARTIFACTS
from mvprune_service.db.tables.jobs import JOBS
from mvprune_service.ids import JobName

from .sender import described, noise, sha256
from .world import World

pytestmark = pytest.mark.parametrize("store", ["local"], indirect=True)
NOWHERE = f"upload:{'0' * 64}/my-model"


def dataset(train: str, validation: str) -> dict[str, Any]:
    return {"dataset": {"train": train, "validation": validation}}


async def test_a_job_uses_a_model_a_teacher_and_data_that_were_sent(world: World, tiny: Tiny) -> None:
    model, train = await world.send_model(tiny), await world.send_data(tiny.train)
    teacher = await world.send_model(tiny, **{"extra.txt": b"x"})
    validation = await world.send_data(tiny.validation)
    mask = await world.send_model(tiny, **{"more.txt": b"x"})
    locked = {"movement": None, "locked_mask": {"mask_from": {"model": mask}}}
    job = await world.submit(model=model, teacher={"model": teacher}, **locked, **dataset(train, validation))
    assert (job.spec.model, job.spec.teacher.model, job.spec.dataset.train) == (model, teacher, train)
    expected = inspect_model(tiny.model)
    assert job.model_size.encoder_parameters == expected.encoder_parameters
    assert any("label" in note for note in job.notes), "the data were read"
    listed = {one: (await world.sender.get(name_of(one))).jobs for one in (model, teacher, mask, train, validation)}
    assert set(listed.values()) == {1}


async def test_an_artifact_that_was_sent_is_a_mask_and_no_model(world: World, tiny: Tiny, tmp_path: Path) -> None:
    make_artifact(tmp_path / "out")
    sent = await world.sender.send({path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()})
    artifact = f"upload:{sent.name[-64:]}/out"
    model = await world.send_model(tiny)
    assert "config.json" in (await world.refused(model=artifact))["job.spec.model"]
    locked = {"movement": None, "locked_mask": {"mask_from": {"model": artifact}}}
    found = await world.refused(model=model, **locked)
    assert found.keys() == {"job.spec.locked_mask.mask_from.model"}
    expected = inspect_model(tiny.model).encoder_parameters
    counted = f"which has 48 parameters in its blocks in place of {expected:,}"
    assert counted in found["job.spec.locked_mask.mask_from.model"], "only the header of its weights was read"


def name_of(reference: str) -> str:
    return f"projects/p/uploads/{reference[7:71]}"


async def test_what_was_not_sent_is_refused_at_its_field(world: World, tiny: Tiny) -> None:
    incomplete = await world.sender.create(described({"config.json": b"{}"}))
    half = f"upload:{incomplete.name[-64:]}/half"
    found = await world.refused(model=NOWHERE, teacher={"model": half}, **dataset(NOWHERE, "upload:abc/x.tsv"))
    assert found["job.spec.model"] == (
        f"must be an upload of this project that is complete, got '{NOWHERE}'; the client sends it: "
        "mvpctl upload create PATH"
    )
    assert "complete, got" in found["job.spec.teacher.model"]
    assert "complete, got" in found["job.spec.dataset.train"]
    assert "must be upload:DIGEST/NAME" in found["job.spec.dataset.validation"]


async def test_a_dry_run_says_what_is_checked_later(world: World, tiny: Tiny) -> None:
    job = await world.submit(validate_only=True, model=NOWHERE, **dataset(NOWHERE[:-8] + "a.csv", NOWHERE))
    assert list(job.notes) == [
        "model: my-model is checked when it has been sent",
        "train: a.csv is checked when it has been sent",
        "validation: my-model is checked when it has been sent",
    ]
    assert "job.spec.seed" in await world.refused(validate_only=True, model=NOWHERE, seed=-1)


async def test_another_projects_upload_is_not_there(world: World, tiny: Tiny) -> None:
    model = await world.send_model(tiny)
    assert "job.spec.model" in await world.refused(model=model, project="q")
    await world.submit(model=model)


async def test_a_model_is_no_data_and_a_name_keeps_its_suffix(world: World, tiny: Tiny) -> None:
    model, train = await world.send_model(tiny), await world.send_data(tiny.train)
    found = await world.refused(model=train, **dataset(model, train.replace(".jsonl", ".csv")))
    assert "must be a model's folder, got" in found["job.spec.model"]
    assert "must be a data file, got" in found["job.spec.dataset.train"]
    assert "must be a name that ends in '.jsonl'" in found["job.spec.dataset.validation"]


@pytest.mark.parametrize(
    ("file", "content", "text"),
    [
        ("config.json", b"[]", "must be a JSON object"),
        ("config.json", b'{"model_type": "bert", "auto_map": {"AutoModel": "x.Y"}}', "auto_map"),
        ("model.safetensors", b"\xff" * 8 + noise(100), "is cut or corrupt"),
        ("tokenizer_config.json", b'{"auto_map": {"AutoTokenizer": ["x.Y", null]}}', "auto_map"),
        ("special_tokens_map.json", b'{"vocab_file": "/etc/passwd"}', "names of special tokens"),
        ("adapter_config.json", b'{"base_model_name_or_path": "b"}', "an adapter"),
        ("vocab.txt", b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "a pointer of git-lfs"),
    ],
)
async def test_a_model_that_was_sent_is_checked_as_a_folder_is(
    world: World, tiny: Tiny, tmp_path: Path, file: str, content: bytes, text: str
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny.model, folder)
    (folder / file).write_bytes(content)
    with pytest.raises(InvalidReference) as local:
        inspect_model(folder)
    sent = await world.send_model(tiny, **{file: content})
    found = (await world.refused(model=sent))["job.spec.model"]
    assert text in found
    assert found == str(local.value).replace(str(folder), sent), "the same words, about what was sent"


async def test_data_that_were_sent_are_checked_as_files_are(world: World, tiny: Tiny) -> None:
    model, train = await world.send_model(tiny), await world.send_data(tiny.train)
    wrong = await world.send_data(Path("dev.tsv"), b"text\tlabel\ngood\n")
    found = await world.refused(model=model, **dataset(train, wrong))
    assert found["job.spec.dataset.validation"].startswith("dev.tsv, line 2: ")
    assert "/" not in found["job.spec.dataset.validation"].partition(":")[0]


async def test_what_is_fetched_for_checks_is_bounded(world: World, tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mvprune_service.api.checks.uploaded._KEPT_BYTES", 10_000)
    model = await world.send_model(tiny)
    for number in range(3):
        content = tiny.train.read_bytes() + b'{"text": "a", "label": "positive"}\n' * number
        train, dev = await world.send_data(tiny.train, content), await world.send_data(tiny.validation)
        await world.submit(f"j{number}", model=model, **dataset(train, dev))
    kept = [file for file in world.folder.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in kept) <= 10_000


async def test_an_attempt_gets_the_chunks_of_what_it_reads(world: World, tiny: Tiny, db: Database) -> None:
    model, train = await world.send_model(tiny), await world.send_data(tiny.train)
    validation = await world.send_data(tiny.validation)
    await world.submit("teacher", model=model, delta=True)
    teacher = await db.read(records.job_named, JobName("p", "teacher"))
    assert teacher is not None

    def finish(tx: Any) -> None:
        made = {"project": "p", "sha256": "ab" * 32, "job_uid": teacher.uid, "attempt": 1, "manifest_bytes": 1}
        manifest = {"model": {"name": model}, "files": []}
        tx.conn.execute(insert(ARTIFACTS).values(**made, manifest=manifest, create_us=1))
        done = {"state": "SUCCEEDED", "artifact_sha256": "ab" * 32, "end_us": 1}
        tx.conn.execute(update(JOBS).where(JOBS.c.uid == teacher.uid).values(**done))

    await db.write(finish)
    await world.submit("student", model="bert-base-uncased", teacher={"job": "teacher"}, **dataset(train, validation))
    await world.jobs.DeleteJob(job_pb2.DeleteJobRequest(name="projects/p/jobs/teacher"), None)
    claimed = await (await world.attempt_of("student")).claim()
    assert {one.reference for one in claimed.uploads} == {model, train, validation}
    for one in claimed.uploads:
        for file in one.files:
            content = b"".join(world.store.get(one.keys[chunk]) for chunk in file.chunks)
            assert len(content) == file.size_bytes
            assert not content or [sha256(content)] == list(file.chunks)


async def test_every_cell_of_a_sweep_is_checked_and_its_jobs_use_uploads(world: World, tiny: Tiny) -> None:
    models = [await world.send_model(tiny), await world.send_model(tiny, **{"extra.txt": b"x"})]
    data = dataset(await world.send_data(tiny.train), await world.send_data(tiny.validation))
    axis = {"parameter": "model", "values": models}
    with pytest.raises(ApiError) as refused:
        await world.create_sweep([axis | {"values": [models[0], NOWHERE]}], **data)
    assert [field for field, _ in refused.value.violations] == ["sweep.spec.axes[0].values[1]"]
    tried = await world.create_sweep([axis | {"values": [models[0], NOWHERE]}], validate_only=True, **data)
    assert "model: my-model is checked when it has been sent" in tried.notes
    await world.create_sweep([axis], **data)
    assert [(await world.sender.get(name_of(model))).jobs for model in models] == [1, 1], "before it has a job"
    await world.controller.step()
    assert [(await world.sender.get(name_of(model))).jobs for model in models] == [3, 3], "a cell and its baseline"
    third = await world.send_model(tiny, **{"more.txt": b"y"})
    more = ParseDict(
        {"name": "projects/p/sweeps/s", "points": [{"model": third, "density": 0.2}]}, sweep_pb2.ExtendSweepRequest()
    )
    await world.sweeps.ExtendSweep(more, None)
    assert (await world.sender.get(name_of(third))).jobs == 1
