"""Products of few tokens beside formulas in numpy and the products of many tokens."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.runtime.instruction_sets import isa, needs_kernel
from tests.unit.runtime.kernel_cases import Array, run

from mvprune.artifact import ArtifactError
from mvprune.artifact.values import Values, rounded
from mvprune.runtime import kernel
from mvprune.runtime._elements import Elements
from mvprune.runtime.masked import Masked, multiplies_few
from mvprune.runtime.quads import for_bytes

pytestmark = needs_kernel
needs_few = pytest.mark.skipif(not multiplies_few(), reason="there are no products of few tokens here")

__all__ = ["isa"]  # a fixture

SHAPES = [(1, 1), (5, 3), (16, 64), (17, 65), (40, 600), (33, 1025), (3, 513), (100, 96)]
"""Within a tile, a group of 64 columns and a block of 512, at their ends, and beyond."""


def weight_of(shape: tuple[int, int], density: float, width: int = 1, seed: int = 0) -> Array:
    source = np.random.default_rng(seed)
    kept = np.repeat(source.random((shape[0], -(-shape[1] // width))) < density, width, 1)[:, : shape[1]]
    return source.standard_normal(shape, np.float32) * kept


def few(matrix: Masked, x: Array, bias: Array | None = None, threads: int = 1) -> Array:
    found = taken(matrix, x, bias, threads)
    assert found is not None
    return found


def taken(matrix: Masked, x: Array, bias: Array | None = None, threads: int = 1) -> Array | None:
    """None: it did not take them."""
    x, y = np.ascontiguousarray(x), np.full((len(x), matrix.rows), np.nan, np.float32)
    place = 0 if bias is None else bias.ctypes.data
    return y if matrix.linear(x.ctypes.data, y.ctypes.data, len(x), bias=place, threads=threads) else None


def close(found: Array, x: Array, weight: Array, bias: Array) -> bool:
    """To the product in float64, by the rounding of sums in float32."""
    exact = x.astype(float) @ weight.T.astype(float) + bias
    size = np.abs(x).astype(float) @ np.abs(weight).T.astype(float) + np.abs(bias)
    return bool((np.abs(found - exact) <= 1e-6 * size + 1e-30).all())


@needs_few
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("density", "width"), [(0.0, 1), (0.1, 1), (0.3, 4), (0.6, 1), (0.9, 4), (1.0, 1)])
def test_int8_activations_are_those_of_many_tokens_bit_for_bit(
    shape: tuple[int, int], density: float, width: int
) -> None:
    source = np.random.default_rng(1)
    elements = Elements.of(weight_of(shape, density, width))
    matrix, many = Masked.pack(elements, "int8"), for_bytes(elements)
    for tokens in (*range(1, 10), 17):
        x = source.standard_normal((tokens, shape[1]), np.float32) * np.geomspace(1e-3, 1e3, tokens)[:, None]
        x, bias = x.astype(np.float32), source.standard_normal(shape[0], np.float32)
        assert np.array_equal(few(matrix, x, bias), run(many, x, bias=bias))


@needs_few
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("values", ["fp32", "fp16", "int8"])
@pytest.mark.parametrize(("density", "width"), [(0.0, 1), (0.1, 1), (0.3, 4), (0.97, 1), (1.0, 1)])
def test_fp32_activations_are_exact_however_values_are_stored(
    shape: tuple[int, int], values: str, density: float, width: int
) -> None:
    source = np.random.default_rng(2)
    weight = rounded(weight_of(shape, density, width), Values(values), sparse=True)
    matrix = Masked.pack(Elements.of(weight))
    if weight.any() and values != "int8":  # a row of one weight is exact in int8 too
        assert matrix.layout[1] in ({"fp32": "float32", "fp16": "float16"}[values], "int8")
    for tokens in range(1, 10):
        x = source.standard_normal((tokens, shape[1]), np.float32)
        bias = source.standard_normal(shape[0], np.float32)
        assert close(few(matrix, x, bias), x, weight, bias)


@needs_few
@pytest.mark.parametrize(
    ("values", "width", "density", "layout"),
    [
        ("fp32", 1, 0.2, ("weights", "float32")),
        ("fp16", 4, 0.2, ("weights", "float16")),
        ("int8", 1, 0.2, ("weights", "int8")),
        ("int8", 4, 0.2, ("quads", "int8")),
        ("int8", 1, 1.0, ("all", "int8")),
        ("fp32", 1, 1.0, ("all", "float32")),
    ],
)
def test_the_layout_is_the_one_with_the_fewest_bytes(
    values: str, width: int, density: float, layout: tuple[str, str]
) -> None:
    weight = rounded(weight_of((256, 512), density, width), Values(values), sparse=True)
    matrix = Masked.pack(Elements.of(weight))
    assert matrix.layout == layout
    bits = {"all": 0, "weights": weight.size / 8, "quads": weight.size / 32}[layout[0]]
    stored = np.count_nonzero(weight) * np.dtype(layout[1]).itemsize
    assert bits + stored <= matrix.nbytes <= 1.02 * (bits + stored) + 4096


@needs_few
@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
@pytest.mark.parametrize("activations", ["fp32", "int8"])
def test_empty_matrices(shape: tuple[int, int], activations: Any) -> None:
    matrix = Masked.pack(Elements.of(np.zeros(shape, np.float32)), activations)
    bias = np.arange(shape[0], dtype=np.float32)
    found = few(matrix, np.ones((3, shape[1]), np.float32), bias)
    assert np.array_equal(found, np.tile(bias, (3, 1)))
    assert few(matrix, np.ones((0, shape[1]), np.float32), bias).shape == (0, shape[0])


@needs_few
@pytest.mark.parametrize("activations", ["fp32", "int8"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_left_to_the_matrix_for_many(activations: Any, bad: float) -> None:
    matrix = Masked.pack(Elements.of(weight_of((20, 600), 0.3)), activations)
    x = np.ones((10, 600), np.float32)
    assert taken(matrix, x) is not None
    for place in [(0, 0), (3, 599), (9, 512)]:
        changed = x.copy()
        changed[place] = bad
        assert taken(matrix, changed) is None


@needs_few
def test_hostile_sizes_stay_those_of_many_tokens() -> None:
    weight = weight_of((40, 600), 0.3)
    weight[3] *= 1e-30
    weight[4] *= 1e30
    weight[5] = 0
    x = np.random.default_rng(3).standard_normal((6, 600)).astype(np.float32)
    x[0], x[1], x[2, :512] = 0, 1e-38, 1e-31
    x[3] *= np.float32(1e30)
    elements = Elements.of(weight)
    with np.errstate(over="ignore"):
        assert np.array_equal(few(Masked.pack(elements, "int8"), x), run(for_bytes(elements), x), equal_nan=True)


@needs_few
@given(st.integers(1, 80), st.integers(1, 700), st.floats(0, 1), st.sampled_from([1, 4]), st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_any_shape(rows: int, columns: int, density: float, width: int, tokens: int) -> None:
    weight = weight_of((rows, columns), density, width, rows + columns)
    x = np.random.default_rng(tokens).standard_normal((tokens, columns), np.float32)
    elements = Elements.of(weight)
    assert np.array_equal(few(Masked.pack(elements, "int8"), x), run(for_bytes(elements), x))
    assert close(few(Masked.pack(Elements.of(weight)), x), x, weight, np.zeros(rows))


@needs_few
@pytest.mark.parametrize("activations", ["fp32", "int8"])
def test_threads_and_copies_change_nothing(activations: Any) -> None:
    matrix = Masked.pack(Elements.of(weight_of((300, 200), 0.2)), activations)
    x = np.random.default_rng(4).standard_normal((11, 200), np.float32)
    wanted = few(matrix, x)
    restored = pickle.loads(pickle.dumps(matrix))  # noqa: S301 (the test's own bytes)
    for other in (copy.deepcopy(matrix), restored):
        assert np.array_equal(few(other, x), wanted)
    for threads in (2, 3, 50):
        assert np.array_equal(few(matrix, x, threads=threads), wanted)


@pytest.mark.parametrize("activations", ["fp32", "int8"])
def test_a_weight_that_is_not_finite_is_refused(activations: Any) -> None:
    with pytest.raises(ArtifactError, match="finite"):
        Masked.pack(Elements.of(np.full((2, 2), np.nan, np.float32)), activations)


def test_only_avx512_has_them(isa: str) -> None:
    assert not multiplies_few() or (isa == "avx512" and kernel.multiplies_bytes())
