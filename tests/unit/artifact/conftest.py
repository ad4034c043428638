"""What the artifact's tests share."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mvprune.artifact import Accounting, Base, Coding, DatasetSource, LayerCount, ModelSource, ResultInfo, Values
from mvprune.artifact.values import rounded


@pytest.fixture(scope="session")
def result() -> ResultInfo:
    """What a manifest says of a made-up model with one 4 × 8 weight, 8 of whose numbers are kept."""
    return ResultInfo(
        spec={"model": "tiny", "task": "sst2", "target_density": 0.25, "movement": {"schedule": None}},
        model=ModelSource("tiny", "", hashlib.sha256(b"model").hexdigest()),
        dataset=DatasetSource("sst2", hashlib.sha256(b"data").hexdigest(), 256, 64),
        metrics={"eval/accuracy": 0.75, "dense/accuracy": 0.8125, "delta/accuracy": -0.0625},
        primary_metric="accuracy",
        accounting=Accounting(0.25, 0.25, 32, 8, 40, 16, 100, 70, 400),
        layers=(LayerCount("layer.0.weight", (4, 8), 0.25, 8),),
        versions={"mvprune": "0.1.0"},
        seed=7,
    )


@pytest.fixture
def tensors() -> dict[str, np.ndarray]:
    """One tensor of every kind the format has; tests/unit/artifact/golden holds their files."""
    gaps = np.zeros((2, 300), np.float32)
    gaps[0, 3], gaps[0, 4], gaps[1, 0], gaps[1, 299] = 0.5, -1, 2, 0.25
    bits = np.unpackbits(np.frombuffer(hashlib.sha256(b"mask").digest(), np.uint8)).reshape(16, 16)
    embeddings = np.linspace(-1, 1, 33, dtype=np.float32).reshape(11, 3).astype(np.float16)
    trimmed = np.zeros((300, 2), np.float32)
    trimmed[[0, 7, 299]] = [[1, -2], [0.5, 0], [3, 0.25]]
    return {
        "gaps": gaps,
        "mask": bits * np.linspace(1, 4, 16).astype(np.float16).astype(np.float32),
        "empty": np.zeros((3, 5), np.float32),
        "nothing": np.zeros((0, 4), np.float32),
        "embeddings": embeddings,
        "decoder": embeddings,
        "trimmed": trimmed,
        "scale": np.float32(-0.125).reshape(()),
        "ids": np.arange(5),
        "flags": np.array([True, False]),
        "bytes": np.array([[1, 255]], np.uint8),
    }


SPARSE = ("gaps", "mask", "empty", "nothing")


@pytest.fixture
def sparse() -> tuple[str, ...]:
    """Which of `tensors` are stored sparse."""
    return SPARSE


@pytest.fixture
def rounded_tensors(tensors: dict[str, np.ndarray]) -> Callable[[Values], dict[str, np.ndarray]]:
    """`tensors` as they come back from a file in which all matrices have these values."""

    def make(values: Values) -> dict[str, np.ndarray]:
        coding, made = Coding(values, values), {}
        for name, array in tensors.items():
            kind = coding.of(pruned=name in SPARSE, shape=array.shape)
            floats = array.dtype.kind == "f"
            made[name] = rounded(array.astype(np.float32), kind, sparse=name in SPARSE) if floats else array
        return made | {"decoder": made["embeddings"]}

    return make


class NoTokenizer:
    def save_pretrained(self, folder: Path) -> None:
        (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n")


@pytest.fixture
def pruned_model(tmp_path: Path, result: ResultInfo) -> Callable[..., tuple[Any, Path]]:
    """Makes a tiny pruned BERT and its artifact."""
    return pruning(tmp_path, result)


def pruning(within: Path, result: ResultInfo) -> Callable[..., tuple[Any, Path]]:
    """As `pruned_model`, in a folder."""
    import torch
    from tests.unit.artifact.saved_models import bert, prune

    from mvprune.artifact import save_model

    def make(
        kind: str, values: Values = Values.FP16, base: Base | None = None, folder: str = "out"
    ) -> tuple[Any, Path]:
        coding = Coding(values, values)
        model = bert(kind)
        names = prune(model, coding=coding, base=base)
        counts = {name: int(torch.count_nonzero(model.get_parameter(name))) for name in names}
        layers = []
        for weight, count in counts.items():
            shape = tuple(model.get_parameter(weight).shape)
            layers.append(LayerCount(weight, shape, count / (shape[0] * shape[1]), count))
        kept = sum(counts.values())
        accounting = Accounting(0.1, 0.1, 10**6, kept, 10**6, kept, 10**6, kept, 4 * 10**6)
        info = dataclasses.replace(result, accounting=accounting, layers=tuple(layers))
        out = within / folder
        save_model(out, model, NoTokenizer(), pruned=names, result=info, coding=coding, base=base)
        return model, out

    return make


@pytest.fixture
def traced() -> Iterator[None]:
    """tracemalloc is on during the test."""
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.fixture
def craft(tmp_path: Path) -> Callable[..., Path]:
    """Writes a safetensors file from a header, given as an object or as bytes, and its data."""

    def write(header: Any, data: bytes = b"", length: int | None = None) -> Path:
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        path = tmp_path / "weights.safetensors"
        path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
        return path

    return write


@pytest.fixture
def save(tmp_path: Path, result: ResultInfo) -> Callable[..., Path]:
    """Makes an artifact of a model, with the counts that are true of it."""
    return saving(tmp_path, result)


def saving(within: Path, result: ResultInfo) -> Callable[..., Path]:
    """As `save`, in a folder."""
    from tests.unit.artifact.saved_models import Tokenizer, kept

    from mvprune.artifact import save_model

    def write(model: Any, names: list[str], folder: str = "out", tokenizer: Any = None, **coding: Any) -> Path:
        accounting = dataclasses.replace(
            result.accounting,
            prunable_weights=sum(model.get_parameter(name).numel() for name in names),
            kept_weights=kept(model, names),
        )
        info = dataclasses.replace(result, accounting=accounting)
        save_model(within / folder, model, tokenizer or Tokenizer(), pruned=names, result=info, **coding)
        return within / folder

    return write


@pytest.fixture
def saved(save: Callable[..., Path]) -> Path:
    """The artifact of a pruned BERT."""
    from tests.unit.artifact.saved_models import bert, prune

    model = bert()
    return save(model, prune(model))
