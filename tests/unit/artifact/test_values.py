"""Whole numbers with scales, against the formulas of the document, number by number."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvprune.artifact import Coding, Values, read_weights, write_weights
from mvprune.artifact.header import GROUP, open_header
from mvprune.artifact.values import (
    STEPS,
    bfloat16_bits,
    decode_values,
    encode_values,
    rounded,
    row_counts,
    scaled_counts,
)

LARGEST = {Values.INT8: 127, Values.INT4: 7}


def bfloat16(value: float) -> float:
    """The nearest bfloat16 number, ties to even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    upper, lower = divmod(bits, 1 << 16)
    upper += lower > 1 << 15 or (lower == 1 << 15 and upper % 2 == 1)
    (found,) = struct.unpack("<f", struct.pack("<I", upper << 16))
    return float(found)


def by_hand(numbers: list[float], kind: Values, scale: float | None = None, most: int | None = None) -> list[float]:
    """What numbers that share a scale become."""
    most = most or LARGEST[kind]
    if scale is None:
        scale = bfloat16(float(np.float32(max(map(abs, numbers)) / most)))
    if scale == 0:
        return [0.0] * len(numbers)
    return [scale * max(-most, min(most, round(float(np.float32(number / scale))))) for number in numbers]


def shared_by_hand(rows: list[list[float]]) -> list[list[float]]:
    """What the non-zeros of a sparse int8 tensor become: scales are those of the largest magnitude over powers of 4."""
    unit = bfloat16(float(np.float32(max(abs(number) for row in rows for number in row) / 127)))
    found = []
    for row in rows:
        scale = unit
        while row and max(map(abs, row)) <= 127 * scale / 4:
            scale /= 4
        found.append(by_hand(row, Values.INT8, scale) if row else [])
    return found


@pytest.mark.parametrize("kind", [Values.INT4, Values.INT8])
@pytest.mark.parametrize("columns", [1, GROUP - 1, GROUP, GROUP + 1, 3 * GROUP])
def test_full_tensors(kind: Values, columns: int) -> None:
    table = np.random.default_rng(0).normal(0, 0.05, (5, columns)).astype(np.float32)
    table[1], table[2, 0] = 0, 2.0
    group = GROUP if kind is Values.INT4 else columns
    expected = [
        [value for start in range(0, columns, group) for value in by_hand(row[start : start + group], kind)]
        for row in table.tolist()
    ]
    assert rounded(table, kind).tolist() == expected
    assert len(scaled_counts(table.shape, kind)) == 5 * math.ceil(columns / group)


def test_rows_of_fewer_steps(tmp_path: Path) -> None:
    """A file has them in the fewest bits, and they are read as they were rounded."""
    random = np.random.default_rng(0)
    table = (random.normal(0, 0.05, (200, 90)) * np.exp(random.normal(0, 3, (200, 1)))).astype(np.float32)
    table[7] = 0
    steps = random.choice(STEPS, 200)
    coarse = rounded(table, Values.INT8, steps=steps)
    assert coarse.tolist() == [
        by_hand(row, Values.INT8, most=most) for row, most in zip(table.tolist(), steps.tolist(), strict=True)
    ]

    numbers, scales = encode_values(coarse.reshape(-1), row_counts(coarse.shape), Values.INT8)
    assert scales is not None
    largest = np.abs(numbers.reshape(coarse.shape).astype(int)).max(1)
    assert largest.tolist() == [0 if row == 7 else most for row, most in enumerate(steps.tolist())]
    assert np.array_equal(decode_values(numbers, scales, row_counts(coarse.shape), Values.INT8), coarse.reshape(-1))
    assert np.array_equal(rounded(coarse, Values.INT8), coarse)

    sizes = []
    for name, each in (("all", rounded(table, Values.INT8)), ("fewer", coarse)):
        write_weights(tmp_path / name, {"table": each}, (), Coding(embeddings=Values.INT8))
        assert np.array_equal(read_weights(tmp_path / name)["table"], each)
        sizes.append((tmp_path / name).stat().st_size)
    assert sizes[1] < 0.9 * sizes[0]


@given(st.integers(0, 2**32 - 1), st.sampled_from(STEPS), st.sampled_from([0, 18]))
def test_rounding_to_fewer_steps_twice_changes_nothing(seed: int, steps: int, spread: float) -> None:
    random = np.random.default_rng(seed)
    shape = int(random.integers(1, 20)), int(random.integers(1, 150))
    array = (random.normal(0, 1, shape) * np.exp(random.normal(0, spread, (shape[0], 1)))).astype(np.float32)
    once = rounded(array, Values.INT8, steps=np.full(len(array), steps))
    assert np.array_equal(rounded(once, Values.INT8), once)
    assert np.array_equal(rounded(once, Values.INT8, steps=np.full(len(array), steps)), once)
    largest = np.abs(array).max(1, keepdims=True)
    assert (np.abs(once - array) <= 1.02 * largest / (2 * steps) + 2.0**-126 * steps).all()


def test_sparse_int8_rows_share_a_scale() -> None:
    random = np.random.default_rng(0)
    rows = [
        random.normal(0, size, count).tolist() for size, count in ((1, 20), (0.2, 20), (0.01, 5), (1e-5, 3), (1, 0))
    ]
    rows = [[float(np.float32(value)) for value in row] for row in rows]
    values = np.array([value for row in rows for value in row], np.float32)
    counts = np.array([len(row) for row in rows])
    numbers, scales = encode_values(values, counts, Values.INT8, sparse=True)
    found = decode_values(numbers, scales, counts, Values.INT8)
    assert found.tolist() == [value for row in shared_by_hand(rows) for value in row]
    assert scales is not None
    for row, end in zip(rows, np.cumsum(counts), strict=True):  # at least 31 steps for the largest of a row
        assert not row or 31 <= np.abs(numbers[end - len(row) : end].astype(int)).max() <= 127


def test_a_row_that_is_exactly_a_power_of_4_smaller_has_that_scale() -> None:
    """What rounding makes of a row whose largest number is about 127 scales. Also where 32 bits of logarithms differ by
    a little less than the power."""
    for unit in (bfloat16((128 + mantissa) * 2.0**exponent) for mantissa in range(128) for exponent in range(-20, -6)):
        rows = np.array([[127 * unit / 4**power, unit / 4**power] for power in range(6)], np.float32)
        numbers, scales = encode_values(rows.reshape(-1), np.full(6, 2), Values.INT8, sparse=True)
        assert numbers.tolist() == [127, 1] * 6
        assert np.array_equal(decode_values(numbers, scales, np.full(6, 2), Values.INT8), rows.reshape(-1))


@given(
    st.sampled_from([Values.INT8, Values.INT4]),
    st.booleans(),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0, 1, 5, 18]),
)
def test_rounding_twice_changes_nothing(kind: Values, sparse: bool, seed: int, spread: float) -> None:
    random = np.random.default_rng(seed)
    shape = int(random.integers(1, 20)), int(random.integers(1, 150))
    sizes = np.exp(random.normal(0, spread, (shape[0], 1)))
    array = (random.normal(0, 1, shape) * sizes * (random.random(shape) < random.random())).astype(np.float32)
    once = rounded(array, kind, sparse=sparse)
    assert np.array_equal(rounded(once, kind, sparse=sparse), once)
    largest = np.abs(array).max(1, keepdims=True)
    step = 1 / 14 if kind is Values.INT4 else 1 / 62 if sparse else 1 / 254
    assert (np.abs(once - array) <= 1.02 * step * largest + 2.0**-126 * LARGEST[kind]).all()


@pytest.mark.parametrize("zero_rows", [0, 30])
def test_an_int4_file_is_read_as_it_was_written(tmp_path: Path, zero_rows: int) -> None:
    """Full, and with rows that are left out."""
    table = np.random.default_rng(0).normal(0, 0.05, (100, 150)).astype(np.float32)
    table[40 : 40 + zero_rows] = 0
    table = rounded(table, Values.INT4)
    write_weights(tmp_path / "w", {"table": table}, (), Coding(embeddings=Values.INT4))
    assert np.array_equal(read_weights(tmp_path / "w")["table"], table)
    packed = open_header(tmp_path / "w").packed["table"]
    assert (packed.layout, packed.dtype) == ("rows" if zero_rows else "full", "I4")
    assert packed.scale_count == (100 - zero_rows) * 3
    assert packed.values is not None
    assert packed.values.shape[0] < 0.5 * packed.count  # less than four bits a number


def test_every_tie_of_bfloat16_goes_to_the_even_number() -> None:
    finite = np.arange(0x7F7F, dtype="<u4")
    kept = np.concatenate([finite, finite | 0x8000])
    for rest, up in ((0, 0), (1, 0), (0x7FFF, 0), (0x8000, kept % 2), (0x8001, 1), (0xFFFF, 1)):
        assert np.array_equal(bfloat16_bits((kept << 16 | rest).view("<f4")), kept + up)
