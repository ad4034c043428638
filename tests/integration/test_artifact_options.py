"""How an artifact is stored, from mvpctl's options through a real server and worker to a model in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import mvprune
from mvprune.artifact.inspection import inspect
from mvprune.cli import main
from mvprune.cli.shared.output import as_json
from mvprune.data.loading import load_files
from mvprune.data.tasks import get_task

from ..conftest import Tiny, server_path
from .servers import Server

Ctl = Callable[..., Any]


@pytest.fixture
def ctl(
    tmp_path: Path, tiny: Tiny, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Ctl]:
    """Runs mvpctl against a server of its own; gives its JSON."""
    server = Server(tmp_path / "home")
    server.start({"OMP_NUM_THREADS": "1"}, models=tiny.models, roots=tiny.train.parent)
    monkeypatch.setenv("MVPRUNE_ADDRESS", server.address)
    monkeypatch.setenv("MVPRUNE_MODELS", str(tiny.models))

    def run(*words: object) -> Any:
        code = main([*(str(word) for word in words), "-o", "json"])
        answer = capsys.readouterr()
        assert code == 0, answer.err + server.log()
        return json.loads(answer.out)

    yield run
    server.close()


def submit(ctl: Ctl, tiny: Tiny, *words: object) -> Any:
    return ctl(
        "submit", "--model", "tiny-bert", "--train", server_path(tiny.train),
        "--validation", server_path(tiny.validation), "--max-steps", 24,
        "--batch-size", 16, "--learning-rate", 5e-3, "--cpus", 1, "--wait", "--timeout", 240, *words,
    )  # fmt: skip


def accuracy(folder: Path, tiny: Tiny) -> float:
    from transformers import AutoTokenizer

    model, tokenizer = mvprune.load(folder), AutoTokenizer.from_pretrained(tiny.model)
    data = load_files(get_task("text-classification"), tiny.train, tiny.validation).validation
    with torch.inference_mode():
        logits = model(**tokenizer(data.texts, padding=True, return_tensors="pt")).logits
    return float((logits.argmax(-1) == torch.tensor(data.labels)).double().mean())


@pytest.mark.slow
def test_stored_as_asked(ctl: Ctl, tiny: Tiny, tmp_path: Path) -> None:
    asked = ("--density", 0.5, "--weight-dtype", "int8", "--embedding-dtype", "bf16", "--trim-vocabulary", "--delta")
    first = submit(ctl, tiny, *asked, "--download", tmp_path / "delta")
    spec = ctl("get", first["name"])["spec"]
    chosen = {"weight_dtype": "int8", "embedding_dtype": "bf16", "trim_vocabulary": True, "delta": True}
    assert chosen.items() <= spec.items()
    manifest = json.loads((tmp_path / "delta" / "manifest.json").read_text())
    wanted = {"values": "INT8", "embeddings": "BF16", "trim_vocabulary": True, "delta": True}
    assert wanted.items() <= manifest["spec"].items()

    found = inspect(tmp_path / "delta")
    assert found.delta
    assert {matrix.values for matrix in found.matrices} == {"I8"}
    told = first["result"]["accounting"]
    assert told["encoder_bytes"] == sum(part.bytes for part in found.parts if part.part == "encoder") > 0
    assert told["embedding_bytes"] == sum(part.bytes for part in found.parts if part.part == "embeddings")
    assert accuracy(tmp_path / "delta", tiny) == pytest.approx(manifest["metrics"]["eval/accuracy"], abs=1e-9)

    assert ctl("inspect", first["name"])["parts"] == as_json(found.parts), "without downloading it"
    sides = ctl("compare", tmp_path / "delta", first["name"])
    assert sides["artifacts"][0]["digest"] == sides["artifacts"][1]["digest"] == found.digest
    assert sides["options"] == {}


@pytest.mark.slow
def test_int8_activations(ctl: Ctl, tiny: Tiny, tmp_path: Path) -> None:
    folder = tmp_path / "int8"
    asked = ("--density", 0.25, "--pattern", "1x4", "--activations", "int8", "--gate", "delta_accuracy>=-100")
    job = submit(ctl, tiny, *asked, "--download", folder)
    assert ctl("get", job["name"])["spec"]["activations"] == "int8"
    found = ctl("evaluate", folder, "--data", tiny.validation)
    assert (found["activations"], found["metrics"]) == ("int8", found["recorded"])
    assert found["notes"][-1] == "activations are int8, simulated on the dense model, as the artifact says"
    assert ctl("evaluate", folder, "--data", tiny.validation, "--activations", "fp32")["activations"] == "fp32"
    gate, metrics = job["gate_results"][0], found["metrics"]
    dense = json.loads((folder / "manifest.json").read_text())["metrics"]["dense/accuracy"]
    assert gate["observed"] == pytest.approx(metrics["accuracy"] - dense)
