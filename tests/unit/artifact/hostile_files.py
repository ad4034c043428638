"""Weights files with any header and any content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from mvprune.artifact import ArtifactError, read_weights

HALF = {"dtype": "F16", "shape": [2], "data_offsets": [0, 4]}
BASE = {"dtype": "F32", "name": "a", "sha256": "0" * 64, "shape": [2]}
SHAPE_2 = {"count": 2, "layout": "gap", "shape": [2], "values": "F16"}
ITEMS = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I8": "|i1", "U8": "|u1"}


def metadata(
    packed: Any = None, aliases: Any = None, version: Any = 3, base: Any = None, **more: Any
) -> dict[str, str]:
    fields = {"aliases": aliases or {}, "base": base or {}, "packed": packed or {}, "version": version, **more}
    return {"mvprune": json.dumps(fields)}


def crafted(
    description: dict[str, Any], base: dict[str, Any] | None = None, **parts: tuple[str, Any]
) -> tuple[dict[str, Any], bytes]:
    """A file with one packed tensor w, of parts given as dtype and content."""
    header: dict[str, Any] = {"__metadata__": metadata({"w": description}, base=base)}
    data = b""
    for part, (dtype, content) in parts.items():
        array = np.asarray(content, ITEMS[dtype])
        offsets = [len(data), len(data) + array.nbytes]
        header[f"w::{part}"] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": offsets}
        data += array.tobytes()
    return header, data


def packed_bytes(content: bytes) -> tuple[str, np.ndarray]:
    return "U8", np.frombuffer(zstandard.compress(content), np.uint8)


def one_sparse(shape: list[Any], gaps: bytes, values: list[float], layout: str = "gap") -> tuple[dict[str, Any], bytes]:
    description = {"count": len(values), "layout": layout, "shape": shape, "values": "F16"}
    return crafted(description, values=("F16", values), positions=packed_bytes(gaps))


def refused(path: Path, reason: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        read_weights(path)
    assert str(caught.value).startswith(f"{path.name}: ")
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 1000


def full(dtype: str, count: int = 4, shape: tuple[int, ...] = (2, 2)) -> dict[str, Any]:
    return {"count": count, "layout": "full", "shape": list(shape), "values": dtype}


ONES = ("BF16", [0x3F80, 0x3F80])
