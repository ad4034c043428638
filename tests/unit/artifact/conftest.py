"""What the artifact's tests share."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mvprune.artifact import Accounting, DatasetSource, LayerCount, ModelSource, ResultInfo


@pytest.fixture
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
    """One tensor of every kind the format has; tests/unit/artifact/golden holds their file."""
    gaps = np.zeros((2, 300), np.float32)
    gaps[0, 3], gaps[0, 4], gaps[1, 0], gaps[1, 299] = 0.5, -1, 2, 0.25
    bits = np.unpackbits(np.frombuffer(hashlib.sha256(b"mask").digest(), np.uint8)).reshape(16, 16)
    embeddings = np.linspace(-1, 1, 33, dtype=np.float32).reshape(11, 3).astype(np.float16)
    return {
        "gaps": gaps,
        "mask": bits * np.linspace(1, 4, 16).astype(np.float16).astype(np.float32),
        "empty": np.zeros((3, 5), np.float32),
        "nothing": np.zeros((0, 4), np.float32),
        "embeddings": embeddings,
        "decoder": embeddings,
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
def craft(tmp_path: Path) -> Callable[..., Path]:
    """Writes a safetensors file from a header, given as an object or as bytes, and its data."""

    def write(header: Any, data: bytes = b"", length: int | None = None) -> Path:
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        path = tmp_path / "weights.safetensors"
        path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
        return path

    return write
