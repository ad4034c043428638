"""What a submit is refused for: every field that is wrong, with what is allowed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import grpc
import pytest

from ..conftest import Tiny, server_path
from .plane import Plane, refused


async def test_bad_fields_are_all_named_at_once(plane: Plane) -> None:
    job = plane.job(
        model="server:/etc",
        task="sst3",
        movement={"schedule": {"pruning_start": 0.6, "cooldown": 0.5}},
        training={"learning_rate": -1.0},
        teacher={"model": "server:/etc", "alpha": 2.0},
        dataset={"train": "server:/etc/passwd"},
    )
    job.policy.resources.cpus = 10_000
    code, reason, fields = await refused(plane.create(job))
    assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARGUMENT")
    assert set(fields) == {
        "job.spec.model",
        "job.spec.task",
        "job.spec.movement.schedule",
        "job.spec.training.learning_rate",
        "job.spec.teacher.model",
        "job.spec.teacher.alpha",
        "job.spec.dataset.train",
        "job.spec.dataset.validation",
        "job.policy.resources.cpus",
    }
    assert "sst2" in fields["job.spec.task"]
    assert str(plane.tiny.train.parent) in fields["job.spec.model"]


@pytest.mark.parametrize("density", [0.0, 1.5, -1.0, float("nan"), float("inf")])
async def test_densities_that_mean_nothing(plane: Plane, density: float) -> None:
    _, _, fields = await refused(plane.create(plane.job(target_density=density)))
    assert list(fields) == ["job.spec.target_density"]


@pytest.mark.parametrize("length", [300, 30_000])
async def test_a_job_without_a_method_gets_one_and_says_so(plane: Plane, length: int) -> None:
    training = {"max_steps": length, "batch_size": 16}
    job = await plane.create(plane.job(movement=None, training=training))
    method = "obert" if length == 300 else "soft_movement"
    assert job.spec.WhichOneof("method") == method
    assert [note for note in job.notes if note.startswith(f"the method is {method}: it loses least")]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.jsonl", "", "empty"),
        ("one.jsonl", '{"text": "a", "label": 0}\n', ""),
        ("broken.jsonl", '{"text": "a", "label": 0}\n' * 3 + '{"text": "b", "label": 1}\n' * 3 + "{oops\n", "7"),
        ("nolabel.tsv", "text\tother\na\t1\nb\t2\n", "label"),
        ("range.tsv", "text\tlabel\na\t0\nb\t1\nc\t7\n", "7"),
        ("data.pkl", "x", ".pkl"),
    ],
)
async def test_bad_data_is_refused_at_submit(plane: Plane, tiny: Tiny, name: str, content: str, words: str) -> None:
    path = tiny.train.parent / name
    path.write_text(content)
    dataset = {"train": server_path(path), "validation": server_path(tiny.validation)}
    _, _, fields = await refused(plane.create(plane.job(dataset=dataset)))
    assert list(fields) == ["job.spec.dataset.train"]
    assert words in fields["job.spec.dataset.train"]


async def test_paths_outside_the_roots_are_refused(plane: Plane, tiny: Tiny, tmp_path: Path) -> None:
    secret = tmp_path / "secret.jsonl"
    secret.write_text(tiny.train.read_text())
    link = tiny.train.parent / "link.jsonl"
    link.symlink_to(secret)
    for path in (secret, link, tiny.train.parent / ".." / secret.name):
        dataset = {"train": server_path(path), "validation": server_path(tiny.validation)}
        _, _, fields = await refused(plane.create(plane.job(dataset=dataset)))
        assert list(fields) == ["job.spec.dataset.train"]


async def test_a_path_that_does_not_say_whose_it_is_is_refused(plane: Plane, tiny: Tiny) -> None:
    """Also where the server has such a file, and may read it."""
    dataset = {"train": str(tiny.train), "validation": str(tiny.validation)}
    job = plane.job(model=str(tiny.model), teacher={"model": str(tiny.model)}, dataset=dataset)
    _, _, fields = await refused(plane.create(job))
    paths = (tiny.model, tiny.model, tiny.train, tiny.validation)
    for name, path in zip(("model", "teacher.model", "dataset.train", "dataset.validation"), paths, strict=True):
        said = fields.pop(f"job.spec.{name}")
        assert said.startswith(
            f"the path must begin with 'server:', got '{path}'; give server:{path} for a path on the"
        )
        assert said.endswith("a file or folder of its own machine is sent by the client")
    assert not fields
    named = {name: server_path(Path(path)) for name, path in dataset.items()}
    created = await plane.create(plane.job(model=server_path(tiny.model), dataset=named), validate_only=True)
    assert (created.spec.model, created.spec.dataset.train) == (f"server:{tiny.model}", f"server:{tiny.train}")


async def test_pickles_are_refused(plane: Plane, tiny: Tiny) -> None:
    folder = tiny.models / "pickled"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_bytes((tiny.model / "config.json").read_bytes())
    _, _, fields = await refused(plane.create(plane.job(model="pickled")))
    assert "safetensors" in fields["job.spec.model"]
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    _, _, fields = await refused(plane.create(plane.job(model="pickled")))
    assert "pytorch_model.bin" in fields["job.spec.model"]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"vocab_size": 7}, "vocab_size must be "),
        ({"num_hidden_layers": 1}, "num_hidden_layers must be "),
        ({"attn_implementation": "owner/kernel"}, "attn_implementation must be eager or sdpa, got 'owner/kernel'"),
    ],
)
@pytest.mark.parametrize("field", ["model", "teacher.model"])
async def test_a_config_that_does_not_fit_the_weights_is_refused_at_submit(
    plane: Plane, tiny: Tiny, keys: dict[str, Any], words: str, field: str
) -> None:
    folder = tiny.models / "other-config"
    shutil.copytree(tiny.model, folder, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | keys))
    given = {"model": "other-config"} if field == "model" else {"teacher": {"model": "other-config"}}
    _, _, fields = await refused(plane.create(plane.job(**given)))
    assert list(fields) == [f"job.spec.{field}"]
    assert words in fields[f"job.spec.{field}"]
    shutil.rmtree(folder)
