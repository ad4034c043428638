"""Artifacts made without torch: one layer of two pruned matrices, an embedding, a bias."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from tests.sealed import seal

from mvprune.artifact import (
    MANIFEST_FILE,
    WEIGHTS_FILE,
    Accounting,
    Base,
    DatasetSource,
    LayerCount,
    Manifest,
    ModelSource,
    write_weights,
)
from mvprune.artifact.header import open_header
from mvprune.artifact.parts import bytes_by_part

QUERY = "bert.encoder.layer.0.attention.self.query.weight"
OUTPUT = "bert.encoder.layer.0.output.dense.weight"
WORDS = "bert.embeddings.word_embeddings.weight"
PRUNED = (QUERY, OUTPUT)
SHA256 = hashlib.sha256(b"x").hexdigest()


def tensors() -> dict[str, Any]:
    """4 of 16 and 2 of 32 weights are kept."""
    query, output = np.zeros((4, 4), np.float32), np.zeros((4, 8), np.float32)
    query[[0, 1, 2, 3], [3, 0, 1, 2]] = [0.5, -1, 2, 0.25]
    output[[0, 3], [7, 0]] = [1, -2]
    words = np.linspace(-1, 1, 40, dtype=np.float32).reshape(10, 4).astype(np.float16).astype(np.float32)
    return {QUERY: query, OUTPUT: output, WORDS: words, "classifier.bias": np.zeros(2, np.float32)}


def make_artifact(folder: Path, *, base: Base | None = None, **changes: Any) -> Manifest:
    """Writes a small artifact.

    Args:
        changes: fields of the manifest in place of the usual ones.
    """
    folder.mkdir(parents=True)
    arrays = tensors()
    write_weights(folder / WEIGHTS_FILE, arrays, PRUNED, base=base)
    (folder / "vocab.txt").write_text("[PAD]\n")
    by_part = bytes_by_part(open_header(folder / WEIGHTS_FILE))
    total = sum(array.size for array in arrays.values())
    size = (folder / WEIGHTS_FILE).stat().st_size
    counts = (0.125, 0.125, 48, 6, 48, 6, total, 44, 4 * total, size, by_part["encoder"], by_part["embeddings"])
    fields: dict[str, Any] = {
        "spec": {"model": "tiny", "task": "sst2", "movement": {"schedule": {"pruning_start": 0.1}}},
        "model": ModelSource("tiny", "", SHA256),
        "dataset": DatasetSource("sst2", SHA256, 256, 64),
        "metrics": {"eval/accuracy": 0.75, "dense/accuracy": 0.875, "delta/accuracy": -0.125},
        "primary_metric": "accuracy",
        "accounting": Accounting(*counts),
        "layers": (LayerCount(QUERY, (4, 4), 0.25, 4), LayerCount(OUTPUT, (4, 8), 0.0625, 2)),
        "versions": {"mvprune": "0.1.0"},
        "seed": 7,
    }
    manifest = Manifest(**(fields | changes), files=())
    (folder / MANIFEST_FILE).write_bytes(manifest.to_json())
    return seal(folder, manifest)
