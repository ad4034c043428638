"""Products of int8 activations beside a formula in numpy, on every instruction set that this machine has."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.runtime.instruction_sets import isa, needs_kernel
from tests.unit.runtime.kernel_cases import (
    ACTIVATIONS,
    EDGES,
    Array,
    address,
    expected_layer,
    kernel_layer,
    layer_of,
    run,
    sparse,
)

from mvprune.artifact.values import Values, encode_values, from_bfloat16, rounded
from mvprune.runtime import kernel, layers
from mvprune.runtime._elements import Elements
from mvprune.runtime.quads import COLUMNS, Full, Quads

pytestmark = needs_kernel

__all__ = ["isa"]  # a fixture


def quantized(x: Array) -> tuple[Array, Array]:
    """Activations of one block as integers, (tokens, columns), and their scales, (tokens, 1): by hand, in float32."""
    most = np.abs(x).max(1, keepdims=True, initial=0)
    used = most >= np.float32(1e-30)
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.where(used, np.float32(127) / most, np.float32(0))
    return np.rint(x * inverse).astype(np.int64), np.where(used, most / np.float32(127), np.float32(0))


def integers(weight: Array, sparse: bool) -> tuple[Array, Array]:
    """Weights as integers, (rows, columns), and the scales of rows, (rows,)."""
    elements = Elements.of(weight)
    counts = np.bincount(elements.rows, minlength=len(weight))
    numbers, scales = encode_values(elements.values, counts, Values.INT8, sparse=sparse)
    assert scales is not None
    whole = np.zeros(weight.shape, np.int64)
    whole[elements.rows, elements.columns] = numbers
    return whole, from_bfloat16(scales)


def formula(x: Array, weight: Array, *, sparse: bool = True) -> Array:
    """The product without bias; float32, and in the order in which the kernel adds."""
    whole, scales = integers(weight, sparse)
    sums = np.zeros((len(x), len(weight)), np.float32)
    for left in range(0, x.shape[1], COLUMNS):
        block = slice(left, left + COLUMNS)
        q, s = quantized(x[:, block])
        exact = q @ whole[:, block].T
        assert np.abs(exact).max(initial=0) < 2**31
        sums = sums + exact.astype(np.float32) * s
    return sums * scales


def sizes(x: Array, weight: Array) -> Array:
    return np.abs(x).astype(float) @ np.abs(weight).astype(float).T + 1


def test_one_block_is_the_formula_bit_for_bit(isa: str) -> None:
    rng = np.random.default_rng(0)
    for rows, columns, tokens in [(50, 40, 1), (33, 512, 70), (600, 511, 130), (16, 3, 128), (7, 129, 65), (300, 1, 5)]:
        for density in (0.05, 0.4, 1):
            weight = sparse(rng, rows, columns, density)
            x = rng.standard_normal((tokens, columns), np.float32)
            x *= np.geomspace(1e-3, 1e3, tokens, dtype=np.float32)[:, None]
            assert np.array_equal(run(Quads.pack(weight), x), formula(x, weight))


def test_sums_of_integers_are_exact(isa: str) -> None:
    """With scales that are powers of two nothing is rounded, whatever the number of blocks; the largest values too."""
    rng = np.random.default_rng(1)
    for rows, columns, tokens in [(40, 1030, 70), (5, 3072, 33), (260, 700, 16)]:
        whole = rng.integers(-127, 128, (rows, columns)) * (rng.random((rows, columns)) < 0.3)
        x = rng.integers(-127, 128, (tokens, columns))
        whole[:, 0], whole[0], x[0], x[1] = 127, 127, 127, -127
        x[:, ::COLUMNS] = 127  # each block's scale is 1
        y = run(Quads.pack(whole.astype(np.float32)), x.astype(np.float32))
        exact = x @ whole.T
        assert np.abs(exact[:2, 0]).max() == 127 * 127 * columns
        small = np.abs(exact) < 2**24
        assert small.any(0).all()
        assert np.array_equal(y[small], exact[small])
        assert np.allclose(y, exact, rtol=1e-6)


@pytest.mark.parametrize("tokens", [1, 33, 64, 100, 128])
def test_all_quads_give_what_those_with_weights_give(isa: str, tokens: int) -> None:
    """Bit for bit, where both round the weights alike; for every number of vectors of tokens."""
    rng = np.random.default_rng(tokens)
    for rows, columns in [(258, 40), (33, 515), (1, 3)]:
        weight = rng.integers(-127, 128, (rows, columns)).astype(np.float32)
        weight[:, 0] = 127
        x, bias = rng.standard_normal((tokens, columns), np.float32), rng.standard_normal(rows, np.float32)
        for threads in (1, 3):
            options: dict[str, Any] = {"bias": bias, "activation": "gelu", "threads": threads}
            assert np.array_equal(run(Full.pack(weight), x, **options), run(Quads.pack(weight), x, **options))


@pytest.mark.parametrize("kind", [Quads, Full])
@pytest.mark.parametrize("threads", [1, 5])
def test_a_matrix_without_columns_gives_the_bias(kind: Any, threads: int) -> None:
    """Whatever is in the memory that it works in: here the scales of tokens that are not finite."""
    bias = np.arange(9, dtype=np.float32)
    run(kind.pack(np.ones((9, 8), np.float32)), np.full((300, 8), np.nan, np.float32), threads=threads)
    y = run(kind.pack(np.ones((9, 0), np.float32)), np.ones((300, 0), np.float32), bias=bias, threads=threads)
    assert (y == bias).all()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_shape_agrees_with_the_formula(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    rows = data.draw(st.sampled_from([*EDGES, 255, 256, 257]))
    tokens = data.draw(st.sampled_from([*EDGES, 127, 128, 129, 200, 300]))
    columns = data.draw(st.sampled_from([*EDGES, 127, 129, 511, 513, 1023, 1024, 1025, 2100]))
    activation: Any = data.draw(st.sampled_from(list(ACTIVATIONS)))
    weight = sparse(rng, rows, columns, data.draw(st.sampled_from([0, 0.03, 0.3, 1])))
    x = rng.standard_normal((tokens, columns), np.float32) * rng.choice([0, 1, 30], (tokens, 1)).astype(np.float32)
    bias = rng.standard_normal(rows, np.float32) if data.draw(st.booleans()) else None
    residual = rng.standard_normal((tokens, rows), np.float32) if data.draw(st.booleans()) else None
    threads = data.draw(st.sampled_from([1, 2, 5]))
    packed = data.draw(st.sampled_from([Quads, Full])).pack(weight)
    y = run(packed, x, bias=bias, residual=residual, activation=activation, threads=threads)
    product = formula(x, weight, sparse=isinstance(packed, Quads))
    expected = ACTIVATIONS[activation](product.astype(float) + (0 if bias is None else bias))
    expected = expected + (0 if residual is None else residual)
    assert y.shape == expected.shape
    assert (np.abs(y - expected) <= 2e-6 * (sizes(x, weight) + np.abs(expected))).all()
    assert (packed.rows, packed.columns) == (rows, columns)


def test_it_is_near_the_product_in_fp32(isa: str) -> None:
    rng = np.random.default_rng(2)
    for columns in (64, 768, 1500):
        weight = sparse(rng, 90, columns, 0.2)
        x = rng.standard_normal((70, columns), np.float32)
        y, exact = run(Quads.pack(weight), x), run(kernel.Packed.pack(weight), x)
        assert 0 < np.abs(y - exact).max() < 0.02 * np.abs(exact).max()


def test_threads_and_other_tokens_change_nothing(isa: str) -> None:
    rng = np.random.default_rng(3)
    weight, x = sparse(rng, 700, 1100, 0.2), rng.standard_normal((130, 1100), np.float32)
    packed = Quads.pack(weight)
    y = run(packed, x, activation="gelu")
    for threads in (2, 3, 8, 40):
        assert np.array_equal(run(packed, x, activation="gelu", threads=threads), y)
    for token in (0, 63, 64, 129):
        assert np.array_equal(run(packed, x[token : token + 1], activation="gelu")[0], y[token])


def test_values_that_are_not_finite_reach_what_has_a_weight_in_their_block(isa: str) -> None:
    weight = np.zeros((4, 2 * COLUMNS + 50), np.float32)
    weight[0, 0], weight[1, COLUMNS + 5], weight[2, -1] = 1, 2, 3
    x = np.ones((5, 2 * COLUMNS + 50), np.float32)
    x[0, 5], x[1, COLUMNS], x[2, -9], x[3, 0] = np.nan, np.inf, -np.inf, np.nan
    y = run(Quads.pack(weight), x)
    reached = {0: [0, 3], 1: [1], 2: [2], 3: []}  # tokens, by row
    assert {row: np.flatnonzero(wrong).tolist() for row, wrong in enumerate(np.isnan(y).T)} == reached
    assert np.isfinite(y[~np.isnan(y)]).all()
    assert np.allclose(y[4], [1, 2, 3, 0], rtol=0.01)


def test_the_largest_and_the_smallest_numbers(isa: str) -> None:
    weight = np.array([[1, 0.5, 0, 0, 0.25], [0, 0, 0, 0, 0]], np.float32)
    x = np.zeros((6, 5), np.float32)
    x[1], x[2], x[3, 0], x[4, 4], x[5] = 3e38, 1e-30, 1e-45, -2e-38, -0.0
    y = run(Quads.pack(weight), x, bias=np.array([0, 7], np.float32))
    assert np.allclose(y[:, 0], [0, np.inf, 1.75e-30, 0, 0, 0], rtol=1e-2)
    assert (y[:, 1] == 7).all()


def test_weights_in_int8_of_an_artifact_are_exact() -> None:
    weight = rounded(sparse(np.random.default_rng(4), 20, 30, 0.5), Values.INT8, sparse=True)
    y = run(Quads.pack(weight), 127 * np.eye(30, dtype=np.float32))
    assert np.array_equal(y, 127 * weight.T)


def test_feed_forward_is_its_two_products(isa: str) -> None:
    """Whichever of the two has int8 activations."""
    rng = np.random.default_rng(5)
    shapes = [(48, 200, 130), (20, 1500, 17), (1100, 90, 64), (3, 0, 5), (16, 2100, 70), (16, 40, 0)]
    for features, inner, tokens in shapes:
        up, down = sparse(rng, inner, features, 0.2), sparse(rng, features, inner, 0.2)
        x, bias = rng.standard_normal((tokens, features), np.float32), rng.standard_normal(inner, np.float32)
        pack = (Quads.pack, kernel.Packed.pack, Full.pack)
        pairs = ((0, 0), (0, 1), (1, 0), (2, 2), (0, 2), (2, 1))
        for first, second in ((pack[i](up), pack[j](down)) for i, j in pairs):
            expected = run(second, run(first, x, bias=bias, activation="gelu"), residual=x)
            for threads in (1, 3):
                y = np.full_like(x, np.nan)
                first.feed_forward(
                    second, address(x), address(y), tokens, bias=address(bias), residual=address(x), threads=threads
                )
                assert np.array_equal(y, expected)


NAMES = ("query", "key", "value", "out", "up", "down")


def layer_with(parts: dict[str, Any], int8: tuple[str, ...], heads: int) -> layers.Layer:
    """A layer of which some products have int8 activations; those of the up product have all quads."""
    made = kernel_layer(parts, heads, "gelu", "fp32")
    return made._replace(
        **{
            name: getattr(made, name)._replace(weight=(Full if name == "up" else Quads).pack(parts["weights"][name]))
            for name in int8
        }
    )


PAIRS = [("query", "value"), ("key", "up"), ("out", "down")]


@pytest.mark.parametrize("int8", [NAMES, *((name,) for name in NAMES), *PAIRS])
def test_layers_use_it_too(isa: str, int8: tuple[str, ...]) -> None:
    rng = np.random.default_rng(6)
    parts = layer_of(rng, 48, 32, 1100, "int8")
    x = rng.standard_normal((3, 130, 48), np.float32)
    kept = np.arange(130) < np.array([[130], [70], [1]])
    wanted = expected_layer(parts, x, kept, 4, "gelu")

    def call(threads: int, given: Array = x, shown: Array | None = kept) -> Array:
        y = np.full_like(given, np.nan)
        shape: dict[str, Any] = {"lengths": np.full(len(given), given.shape[1]), "threads": threads}
        layers.Layers([layer_with(parts, int8, 4)]).run(address(y), x=address(given), kept=address(shown), **shape)
        return y

    y = call(1)
    assert 1e-5 < np.abs(y - wanted).max() < 0.3
    assert np.sqrt(np.mean((y - wanted) ** 2)) < 0.03
    for threads in (2, 3, 8, 40):
        assert np.array_equal(call(threads), y)
    last = np.ascontiguousarray(x[1:2, :70])
    assert np.allclose(call(1, last, None), y[1:2, :70], atol=0.2)  # a sum of attention that is rounded otherwise


@pytest.mark.parametrize(("attended", "heads", "length"), [(32, 4, 130), (21, 3, 33), (12, 12, 1), (140, 1, 66)])
def test_attention_between_products_of_bytes_is_near_that_in_fp32(
    isa: str, attended: int, heads: int, length: int
) -> None:
    """Inputs that int8 holds exactly, so that attention is all that differs; what is masked has no part in it."""
    rng = np.random.default_rng(length)
    parts = layer_of(rng, 48, attended, 64, "int8")
    x = (rng.integers(-127, 128, (3, length, 48)) / 32).astype(np.float32)
    x[..., 0] = 127 / 32
    kept = np.arange(length) < np.array([[length], [length // 2 + 1], [1]])
    exact, rounded = kernel_layer(parts, heads, "gelu", "fp32"), layer_with(parts, ("query", "key", "value"), heads)

    def call(layer: layers.Layer, given: Array) -> Array:
        y = np.full_like(given, np.nan)
        layers.Layers([layer]).run(address(y), x=address(given), kept=address(kept), lengths=np.full(3, length))
        return y

    wanted, found = call(exact, x), call(rounded, x)
    assert np.abs(found - wanted).max() < 0.005 * np.abs(wanted).max()
    for outlier in (1000, np.nan) if kernel.multiplies_bytes() else (1000,):  # elsewhere it is in fp32: 0 NaN is NaN
        other = np.where(kept[..., None], x, outlier * x)
        assert np.array_equal(call(rounded, other)[kept], found[kept])
    x[0, 0, 0] = np.nan
    assert np.isnan(call(rounded, x)[0]).all()


def test_pickles_and_copies() -> None:
    rng = np.random.default_rng(7)
    weight, x = sparse(rng, 40, 1030, 0.1), rng.standard_normal((9, 1030), np.float32)
    for packed in (Quads.pack(weight), Full.pack(weight)):
        for twin in (pickle.loads(pickle.dumps(packed)), copy.deepcopy(packed)):  # noqa: S301
            assert np.array_equal(run(twin, x), run(packed, x))
            assert twin.nbytes == packed.nbytes


def test_a_full_matrix_has_a_byte_for_each_weight_and_parts_that_fit() -> None:
    packed = Full.pack(np.ones((6, 1030), np.float32))
    assert packed.nbytes == 8 * 1032 + 4 * 6 + 4 * 6 * 3  # whole tiles and quads, scales, offsets of three blocks
    for part, broken in ((0, np.zeros((1, 4))), (1, np.zeros(5)), (2, np.zeros(6))):
        parts: list[Any] = [np.zeros((8 * 258, 4)), np.zeros(6), np.zeros(18)]
        Full((6, 1030), *parts)
        parts[part] = broken
        with pytest.raises(ValueError, match="the parts of a full matrix must have the shapes"):
            Full((6, 1030), *parts)


def test_its_size_is_that_of_its_quads() -> None:
    weight = sparse(np.random.default_rng(8), 64, 1200, 0.1)
    quads = np.count_nonzero(weight.reshape(64, 300, 4).any(2))
    runs = 3 * 64  # three blocks of columns, each with 64 rows: where it starts, which it is, its offset
    assert Quads.pack(weight).nbytes == 6 * quads + (8 + 1 + 4) * runs + 8 + 4 * 64


@pytest.mark.parametrize(
    ("part", "broken", "message"),
    [
        (1, np.array([0, 1, 2], np.int64), "3 starts do not fit the shape"),
        (1, np.array([0, 3, 2, 4], np.int64), "do not rise"),
        (2, np.array([0, 1, 2, 1], np.uint16), "an index lies outside"),
        (3, np.zeros((3, 4), np.int8), r"4 indices for numbers of the shape \(3, 4\)"),
        (3, np.zeros(16, np.int8), r"4 indices for numbers of the shape \(16,\)"),
        (4, np.ones(2, np.float32), "there are not 3 scales"),
        (5, np.array([0, 1], np.uint8), "the order is of 2 rows of blocks, not 3"),
        (5, np.array([0, 1, 1], np.uint8), "does not have each row of its band once"),
    ],
)
def test_parts_that_would_read_past_their_end_are_refused(part: int, broken: Array, message: str) -> None:
    parts: list[Any] = [(3, 5), np.array([0, 2, 3, 4]), np.array([0, 1, 0, 1]), np.ones((4, 4)), np.ones(3)]
    parts.append(np.array([2, 0, 1]))
    Quads(*parts)
    parts[part] = broken
    with pytest.raises(ValueError, match=message):
        Quads(*parts)
