"""Positions to bytes and back."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from mvprune.artifact import ArtifactError
from mvprune.artifact.coding import (
    GAP,
    MASK,
    decode_gaps,
    decode_mask,
    decode_positions,
    encode_gaps,
    encode_mask,
    encode_positions,
)
from mvprune.artifact.values import Values, encode_values

DOCUMENT = Path(__file__).parents[3] / "docs" / "artifact-format.md"


def frame(content: bytes, **options: bool) -> np.ndarray:
    return np.frombuffer(zstandard.ZstdCompressor(**options).compress(content), np.uint8)


@st.composite
def positions(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    elements = draw(st.integers(0, 5000))
    density = draw(st.sampled_from([0, 0.001, 0.03, 0.125, 0.3, 0.9, 1]))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return np.flatnonzero(random.random(elements) < density), elements


@given(positions())
def test_every_coding_gives_the_positions_back(case: tuple[np.ndarray, int]) -> None:
    expected, elements = case
    count = len(expected)
    assert np.array_equal(decode_gaps(encode_gaps(expected), count, elements), expected)
    assert np.array_equal(decode_mask(encode_mask(expected, elements), count, elements), expected)
    coding, content = encode_positions(expected, elements)
    assert np.array_equal(decode_positions(coding, content, count, elements), expected)


@pytest.mark.parametrize("gap", [0, 1, 253, 254, 255, 256, 509, 510, 511, 255 * 255])
def test_gaps_around_the_escape(gap: int) -> None:
    expected = np.array([0, gap + 1, 2 * gap + 2])
    stream = encode_gaps(expected)
    assert len(stream) == 3 + 2 * (gap // 255)
    assert np.array_equal(decode_gaps(stream, 3, 2 * gap + 3), expected)


def test_the_document_has_the_right_example(tensors: dict[str, np.ndarray]) -> None:
    rows = dict(re.findall(r"^\| ([^|]+) \| `?([^|`]+)`? \|$", DOCUMENT.read_text(), re.MULTILINE))
    found = np.flatnonzero(tensors["gaps"])
    assert rows["positions"] == ", ".join(str(position) for position in found)
    assert rows["gap bytes before zstd"] == encode_gaps(found).tobytes().hex(" ")
    values = tensors["gaps"].ravel()[found]
    halves = values.astype("<f2")
    assert rows["values, F16"] == halves.tobytes().hex(" ")
    assert rows["byte planes before zstd"] == halves.view(np.uint8).reshape(-1, 2).T.tobytes().hex(" ")
    for kind in (Values.INT8, Values.INT4):
        numbers, scales = encode_values(values, np.array([2, 2]), kind, sparse=True)
        assert scales is not None
        assert rows[f"values, {kind.dtype}"] == numbers.tobytes().hex(" ")
        assert rows[f"scales of {kind.dtype}, BF16"] == scales.tobytes().hex(" ")


@pytest.mark.parametrize("density", [0.03, 0.05, 0.10])
def test_gaps_come_near_the_entropy_of_the_positions(density: float) -> None:
    elements = 768 * 768
    expected = np.flatnonzero(np.random.default_rng(0).random(elements) < density)
    coding, content = encode_positions(expected, elements)
    kept = len(expected) / elements
    entropy = -elements * (kept * np.log2(kept) + (1 - kept) * np.log2(1 - kept)) / 8
    assert coding == GAP
    assert len(content) < 1.03 * entropy


@pytest.mark.parametrize("density", [0.3, 0.5, 0.9])
def test_a_mask_is_taken_where_it_is_smaller(density: float) -> None:
    elements = 256 * 256
    coding, content = encode_positions(np.flatnonzero(np.random.default_rng(0).random(elements) < density), elements)
    assert coding == MASK
    assert len(content) <= elements / 8 + 32


def test_a_stream_longer_than_the_window_is_read() -> None:
    expected = np.flatnonzero(np.random.default_rng(0).random(4_000_000) < 0.5)
    assert np.array_equal(
        decode_positions(GAP, frame(encode_gaps(expected).tobytes()), len(expected), 4_000_000), expected
    )


@pytest.mark.parametrize(
    ("coding", "content", "count", "elements", "reason"),
    [
        ("rle", frame(b""), 0, 8, "the coding must be 'gap' or 'mask', got 'rle'"),
        (GAP, np.zeros(0, np.uint8), 0, 8, "must be one zstd frame"),
        (GAP, np.frombuffer(b"not zstd", np.uint8), 1, 8, "must be one zstd frame"),
        (GAP, frame(b"\x01\x01")[:-1], 2, 8, "must be one zstd frame"),
        (GAP, np.concatenate([frame(b"\x01"), frame(b"\x01")]), 1, 8, "must be one zstd frame"),
        (GAP, frame(b"\x01\xff"), 1, 600, "must end with a position"),
        (GAP, frame(b"\x01\x01"), 3, 8, "positions must be 3, one for each value, got 2"),
        (GAP, frame(b"\x01\xff\x01"), 1, 600, "positions must be 1, one for each value, got 2"),
        (GAP, frame(b"\x01\x06"), 2, 8, "positions must be less than 8, the number of elements, got 8"),
        (MASK, frame(b"\x03\x00"), 2, 8, "at most 1 bytes unpacked"),
        (MASK, frame(b""), 2, 8, "one bit for each of 8 elements, got 0 bytes"),
        (MASK, frame(b"\x03"), 3, 8, "positions must be 3, one for each value, got 2"),
        (MASK, frame(b"\x81"), 2, 7, "beyond the end"),
        (
            MASK,
            frame(bytes(125)),
            249,
            1000,
            "a mask must not be larger than gaps would be, got 1000 elements for 249 values",
        ),
    ],
)
def test_hostile_positions_are_refused(
    coding: str, content: np.ndarray, count: int, elements: int, reason: str
) -> None:
    with pytest.raises(ArtifactError, match=re.escape(reason)):
        decode_positions(coding, content, count, elements)


def test_positions_beyond_32_bits_are_refused() -> None:
    count = 2**24
    with pytest.raises(ArtifactError, match=f"must be less than {count}, the number of elements"):
        decode_positions(GAP, frame(b"\xfe" * count), count, count)


@pytest.mark.parametrize(
    ("states_its_size", "reason"),
    [(True, "must have at most 14 bytes unpacked"), (False, "that states its unpacked size")],
)
def test_a_bomb_is_not_unpacked(states_its_size: bool, reason: str) -> None:
    bomb = frame(bytes(1 << 26), write_content_size=states_its_size)
    assert len(bomb) < 1 << 13
    with pytest.raises(ArtifactError, match=reason):
        decode_positions(GAP, bomb, 10, 1024)


def test_a_frame_that_lies_about_its_size_is_refused() -> None:
    lying = frame(bytes(100)).copy()
    assert lying[5] == 100
    lying[5] = 8
    with pytest.raises(ArtifactError, match="must be one zstd frame"):
        decode_positions(GAP, lying, 8, 8)
