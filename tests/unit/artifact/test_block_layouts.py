"""Non-zeros in blocks of four: one position for each block, and a quarter of the bytes of positions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from tests.unit.artifact.hostile_files import crafted, packed_bytes, refused

from mvprune.artifact import Coding, Values, read_weights, write_weights
from mvprune.artifact.values import rounded
from mvprune.artifact.weights import stream_positions

KEPT = {"gap4": 0.1, "mask4": 0.4}


def in_blocks(kind: Values, density: float, *, shape: tuple[int, ...] = (64, 256)) -> np.ndarray:
    """A tensor with blocks of four as it is stored: some of their values are rounded to 0."""
    random = np.random.default_rng(0)
    blocks = random.random((*shape[:-1], shape[-1] // 4)) < density
    values = random.normal(0, 0.05, shape).astype(np.float32) * np.repeat(blocks, 4, -1)
    return rounded(values, kind, sparse=True)


def packed(path: Path, name: str = "w") -> dict[str, Any]:
    with safe_open(path, framework="numpy") as file:
        found: dict[str, Any] = json.loads(file.metadata()["mvprune"])["packed"][name]
    return found


def position_bytes(path: Path) -> int:
    with safe_open(path, framework="numpy") as file:
        return int(file.get_tensor("w::positions").nbytes)


@pytest.mark.parametrize("kind", Values)
@pytest.mark.parametrize("layout", KEPT)
@pytest.mark.parametrize("shape", [(64, 256), (16, 8, 64)])
def test_blocks_come_back_as_they_were(tmp_path: Path, layout: str, kind: Values, shape: tuple[int, ...]) -> None:
    array = in_blocks(kind, KEPT[layout], shape=shape)
    write_weights(tmp_path / "w", {"w": array}, ["w"], Coding(kind))
    assert np.array_equal(read_weights(tmp_path / "w")["w"], array)
    blocks = np.count_nonzero(array.reshape(-1, 4).any(1))
    description = {"count": 4 * blocks, "nonzero": np.count_nonzero(array), "layout": layout, "shape": list(shape)}
    assert packed(tmp_path / "w") == description | {"values": kind.dtype}
    ((_, positions),) = stream_positions(tmp_path / "w")
    assert np.array_equal(positions, np.flatnonzero(np.repeat(array.reshape(-1, 4).any(1), 4)))


def test_positions_take_a_quarter_of_the_bytes(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    single = np.asarray(random.random((512, 1024)) < 0.03, np.float32)
    blocks = np.repeat(np.asarray(random.random((512, 256)) < 0.03, np.float32), 4, 1)
    sizes = {}
    for name, array in (("single", single), ("blocks", blocks)):
        write_weights(tmp_path / name, {"w": array}, ["w"])
        sizes[name] = position_bytes(tmp_path / name)
    entropy = -(0.03 * np.log2(0.03) + 0.97 * np.log2(0.97)) * 512 * 256 / 8
    assert sizes["blocks"] < min(1.1 * entropy, 0.27 * sizes["single"])


@pytest.mark.parametrize("density", [0.01, 0.2, 0.6, 0.9, 0.99, 1.0])
def test_single_weights_are_not_taken_for_blocks(tmp_path: Path, density: float) -> None:
    array = np.asarray(np.random.default_rng(2).random((64, 256)) < density, np.float32)
    write_weights(tmp_path / "w", {"w": array}, ["w"])
    assert packed(tmp_path / "w")["layout"] == ("gap" if density < 0.25 else "mask")


@pytest.mark.parametrize("shape", [(64, 6), (8,), ()])
def test_rows_that_are_not_of_whole_blocks_have_positions_of_elements(tmp_path: Path, shape: tuple[int, ...]) -> None:
    array = np.zeros(shape, np.float32)
    array.reshape(-1)[:4] = 1
    write_weights(tmp_path / "w", {"w": array}, ["w"])
    assert packed(tmp_path / "w")["layout"] in ("gap", "mask")
    assert np.array_equal(read_weights(tmp_path / "w")["w"], array)


def test_the_bytes_of_the_example(tmp_path: Path, craft: Callable[..., Path]) -> None:
    """As docs/artifact-format.md shows it."""
    array = np.zeros((2, 300), np.float32)
    array[0, 4:8], array[1, 296:] = [0.5, -1, 2, 0.25], [1, 0, 1, 1]
    write_weights(tmp_path / "w", {"w": array}, ["w"])
    description = {"count": 8, "nonzero": 7, "layout": "gap4", "shape": [2, 300], "values": "F16"}
    assert packed(tmp_path / "w") == description
    with safe_open(tmp_path / "w", framework="numpy") as file:
        assert file.get_tensor("w::values").tolist() == [0.5, -1, 2, 0.25, 1, 0, 1, 1]
    description = description | {"values": "F32"}
    values = [0.5, -1, 2, 0.25, 1, 0, 1, 1]
    path = craft(*crafted(description, positions=packed_bytes(bytes([1, 147])), values=("F32", values)))
    assert np.array_equal(read_weights(path)["w"], array)


BLOCK = {"count": 4, "nonzero": 3, "layout": "gap4", "shape": [2, 8], "values": "F32"}


@pytest.mark.parametrize(
    ("changes", "gaps", "values", "reason"),
    [
        ({"nonzero": None}, b"\1", [1, 1, 1, 0], "must have exactly the fields"),
        ({"layout": "gap"}, b"\1", [1, 1, 1, 0], "must have exactly the fields"),
        ({"count": 3}, b"\1", [1, 1, 1], "blocks must have 4 elements of a row"),
        ({"shape": [2, 6]}, b"\1", [1, 1, 1, 0], "blocks must have 4 elements of a row"),
        ({"nonzero": 0}, b"\1", [0, 0, 0, 0], "blocks must have 4 elements of a row"),
        ({"nonzero": 5}, b"\1", [1, 1, 1, 1], "blocks must have 4 elements of a row"),
        ({}, b"\1", [1, 1, 1, 1], "the values must have 3 non-zeros, as the header says, got 4"),
        ({}, b"\4", [1, 1, 1, 0], "positions must be less than 4, the number of elements, got 4"),
        ({}, b"\1\1", [1, 1, 1, 0], "the positions must have at most 1 bytes unpacked"),
        ({"count": 8}, b"\0\0", [1, 1, 1, 0, 0, 0, 0, 0], "a stored block must have a value that is not zero"),
        ({"layout": "mask4", "shape": [8, 8]}, b"\1\0", [1, 1, 1, 0], "a mask must not be larger than gaps would be"),
    ],
)
def test_what_is_refused(
    craft: Callable[..., Path], changes: dict[str, Any], gaps: bytes, values: list[float], reason: str
) -> None:
    description = {name: value for name, value in (BLOCK | changes).items() if value is not None}
    refused(craft(*crafted(description, positions=packed_bytes(gaps), values=("F32", values))), reason)
