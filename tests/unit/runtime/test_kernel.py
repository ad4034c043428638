"""The native kernel beside numpy in double precision, on every instruction set that this machine has."""

from __future__ import annotations

import copy
import itertools
import math
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.runtime.instruction_sets import ABSENT, isa, needs_kernel

from mvprune.artifact.errors import ArtifactError
from mvprune.artifact.values import Values, rounded
from mvprune.runtime import kernel, layers

Array = npt.NDArray[Any]

pytestmark = needs_kernel

_erf = np.vectorize(math.erf, otypes=[float])
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "none": lambda v: v,
    "relu": lambda v: np.maximum(v, 0),
    "gelu": lambda v: v * 0.5 * (1 + _erf(v / math.sqrt(2))),
    "gelu_tanh": lambda v: 0.5 * v * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))),
}
__all__ = ["isa"]  # a fixture

EDGES = [0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100]


def sparse(rng: np.random.Generator, rows: int, columns: int, density: float) -> Array:
    """Random weights; every third row is empty, the others are uneven."""
    kept = rng.random((rows, columns)) < density * rng.choice([0, 0.5, 2.5], (rows, 1))
    return np.where(kept, rng.standard_normal((rows, columns)), 0).astype(np.float32)


def address(array: Array | None) -> int:
    return 0 if array is None else array.ctypes.data


def run(
    packed: kernel.Packed, x: Array, *, residual: Array | None = None, bias: Array | None = None, **options: Any
) -> Array:
    y = np.full((len(x), packed.rows), np.nan, np.float32)
    packed.linear(address(x), address(y), len(x), bias=address(bias), residual=address(residual), **options)
    return y


def check(y: Array, x: Array, weight: Array, bias: Array | None, residual: Array | None, activation: str) -> None:
    """y against double precision: the rounding of a sum in single precision, and 1e-6 for the activation."""
    sums = x.astype(float) @ weight.astype(float).T + (0 if bias is None else bias)
    expected = ACTIVATIONS[activation](sums) + (0 if residual is None else residual)
    sizes = np.abs(x).astype(float) @ np.abs(weight).astype(float).T + np.abs(expected) + 1
    assert y.shape == expected.shape
    assert (np.abs(y - expected) <= 1e-6 * sizes).all()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_shape_agrees_with_numpy(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    rows = data.draw(st.sampled_from([*EDGES, 255, 256, 257]))
    tokens = data.draw(st.sampled_from([*EDGES, 127, 128, 129, 200, 300]))
    columns = data.draw(st.sampled_from([*EDGES, 127, 129, 257, 1023, 1024, 1025, 2100]))
    stored = data.draw(st.sampled_from(["fp32", "bf16", "int8"]))
    activation = data.draw(st.sampled_from(list(ACTIVATIONS)))
    weight = rounded(
        sparse(rng, rows, columns, data.draw(st.sampled_from([0, 0.03, 0.3, 1]))), Values(stored), sparse=True
    )
    x = rng.standard_normal((tokens, columns), np.float32)
    bias = rng.standard_normal(rows, np.float32) if data.draw(st.booleans()) else None
    residual = rng.standard_normal((tokens, rows), np.float32) if data.draw(st.booleans()) else None
    packed = kernel.Packed.pack(weight, values=stored)
    y = run(
        packed, x, bias=bias, residual=residual, activation=activation, threads=data.draw(st.sampled_from([1, 2, 5]))
    )
    check(y, x, weight, bias, residual, activation)
    assert (packed.rows, packed.columns) == (rows, columns)


@pytest.mark.parametrize(("rows", "columns"), [(0, 0), (3, 0), (0, 5)])
def test_a_matrix_of_nothing_needs_no_memory(rows: int, columns: int) -> None:
    """In threads that have had no memory yet, too."""
    packed = kernel.Packed.pack(np.zeros((rows, columns), np.float32))
    results = []

    def call() -> None:
        results.append(run(packed, np.zeros((127, columns), np.float32), threads=2, activation="none"))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert [result.tolist() for result in results] == [np.zeros((127, rows)).tolist()]


@pytest.mark.parametrize("stored", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_instruction_set_agrees(isa: str, stored: kernel.Stored, activation: kernel.Activation) -> None:
    rng = np.random.default_rng(0)
    for rows, columns, tokens in [(50, 40, 1), (33, 1100, 70), (600, 300, 130), (16, 16, 128)]:
        weight = rounded(sparse(rng, rows, columns, 0.2), Values(stored), sparse=True)
        x, bias = rng.standard_normal((tokens, columns), np.float32), rng.standard_normal(rows, np.float32)
        residual = rng.standard_normal((tokens, rows), np.float32)
        packed = kernel.Packed.pack(weight, values=stored)
        y = run(packed, x, bias=bias, residual=residual, activation=activation)
        check(y, x, weight, bias, residual, activation)
        for threads in (2, 3, 8, 40):
            again = run(packed, x, bias=bias, residual=residual, activation=activation, threads=threads)
            assert np.array_equal(again, y)


def test_the_gradient_of_the_weights_is_that_of_the_dense_product_at_their_positions(isa: str) -> None:
    rng = np.random.default_rng(2)
    shapes = [
        (0, 0, 5),
        (3, 0, 5),
        (0, 5, 9),
        (50, 40, 1),
        (33, 1100, 70),
        (600, 300, 130),
        (257, 16, 0),
        (16, 2100, 64),
    ]
    for (rows, columns, tokens), density in itertools.product(shapes, (0, 0.03, 0.3, 1)):
        weight = sparse(rng, rows, columns, density)
        packed = kernel.Packed.pack(weight)
        grad, x = rng.standard_normal((tokens, rows), np.float32), rng.standard_normal((tokens, columns), np.float32)
        before = rng.standard_normal(np.count_nonzero(weight), np.float32)
        values = before.copy()
        packed.sample(address(grad), address(x), address(values), tokens)
        places = packed.positions()
        expected = (grad.astype(float).T @ x).reshape(-1)[places] + before
        sizes = (np.abs(grad).astype(float).T @ np.abs(x)).reshape(-1)[places] + 1
        assert (np.abs(values - expected) <= 1e-6 * sizes).all()
        for threads in (2, 3, 8):
            again = before.copy()
            packed.sample(address(grad), address(x), address(again), tokens, threads=threads)
            assert np.array_equal(again, values)


@pytest.mark.parametrize("stored", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize(("rows", "columns"), [(0, 0), (3, 0), (0, 5), (5, 7), (600, 300), (257, 2100)])
def test_positions_say_where_the_values_lie(rows: int, columns: int, stored: kernel.Stored) -> None:
    rng = np.random.default_rng(3)
    weight = sparse(rng, rows, columns, 0.1)
    packed = kernel.Packed.pack(weight, values=stored)
    places = packed.positions()
    assert sorted(places) == np.flatnonzero(weight).tolist()
    changed = sparse(rng, rows, columns, 1) * (weight != 0)
    other = packed.with_values(changed.reshape(-1)[places])
    x = rng.standard_normal((9, columns), np.float32)
    check(run(other, x), x, changed, None, None, "none")
    check(run(packed, x), x, rounded(weight, Values(stored), sparse=True), None, None, "none")  # as it was
    with pytest.raises(
        ValueError, match=rf"there are {len(places)} weights for values of the shape \({len(places) + 1},\)"
    ):
        packed.with_values(np.zeros(len(places) + 1, np.float32))


def test_feed_forward_is_its_two_products(isa: str) -> None:
    rng = np.random.default_rng(1)
    for features, inner, tokens in [(48, 200, 130), (20, 1500, 17), (1100, 90, 64), (3, 0, 5), (16, 40, 0)]:
        up, down = sparse(rng, inner, features, 0.2), sparse(rng, features, inner, 0.2)
        x, bias = rng.standard_normal((tokens, features), np.float32), rng.standard_normal(inner, np.float32)
        down_bias = rng.standard_normal(features, np.float32)
        first, second = kernel.Packed.pack(up), kernel.Packed.pack(down, values="int8")
        expected = run(second, run(first, x, bias=bias, activation="gelu"), bias=down_bias, residual=x)
        for threads in (1, 3):
            y = np.full_like(x, np.nan)
            first.feed_forward(
                second, address(x), address(y), tokens, bias=address(bias), down_bias=address(down_bias),
                residual=address(x), threads=threads,
            )  # fmt: skip
            assert np.array_equal(y, expected)


def norm(v: Array, weight: Array, bias: Array, epsilon: float) -> Array:
    centred = v - v.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon) * weight + bias


def layer_of(rng: np.random.Generator, hidden: int, attended: int, inner: int, stored: kernel.Stored) -> dict[str, Any]:
    """Random weights, biases and normalizations of a layer."""
    shapes = dict.fromkeys(["query", "key", "value"], (attended, hidden))
    shapes |= {"out": (hidden, attended), "up": (inner, hidden), "down": (hidden, inner)}
    weights = {name: rounded(sparse(rng, *shape, 0.3), Values(stored), sparse=True) for name, shape in shapes.items()}
    for name in ("query", "key"):
        weights[name] *= np.float32(0.125)  # exact; large scores would make a step of the softmax
    biases = {name: rng.standard_normal(rows, np.float32) for name, (rows, _) in shapes.items()}
    norms = {name: rng.standard_normal((2, hidden), np.float32) for name in ("attention_norm", "output_norm")}
    return {"weights": weights, "biases": biases, "norms": norms}


def expected_layer(parts: dict[str, Any], x: Array, kept: Array | None, heads: int, activation: str) -> Array:
    """The layer in double precision. A query that may attend to nothing gets zeros, as from torch."""

    def product(name: str, v: Array) -> Array:
        return v @ parts["weights"][name].T.astype(float) + parts["biases"][name]

    def by_head(v: Array) -> Array:
        return v.reshape(*v.shape[:2], heads, v.shape[-1] // heads).swapaxes(1, 2)

    query, key, value = (by_head(product(name, x.astype(float))) for name in ("query", "key", "value"))
    scores = query @ key.swapaxes(2, 3) / math.sqrt(query.shape[-1])
    shown = np.ones(x.shape[:2], bool) if kept is None else kept
    powers = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf)) * shown[:, None, None, :]
    sums = powers.sum(-1, keepdims=True)
    context = np.divide(powers, sums, out=np.zeros_like(powers), where=sums > 0) @ value
    attended = product("out", context.swapaxes(1, 2).reshape(*x.shape[:2], query.shape[-1] * heads)) + x
    a = norm(attended, *parts["norms"]["attention_norm"].astype(float), epsilon=1e-5)
    return norm(a + product("down", ACTIVATIONS[activation](product("up", a))), *parts["norms"]["output_norm"], 1e-12)


def kernel_layer(parts: dict[str, Any], heads: int, activation: Any, stored: Any) -> layers.Layer:
    packed = {name: kernel.Packed.pack(weight, values=stored) for name, weight in parts["weights"].items()}
    return layers.Layer(
        **{name: layers.Affine(matrix, address(parts["biases"][name])) for name, matrix in packed.items()},
        attention_norm=layers.Norm(*(address(row) for row in parts["norms"]["attention_norm"]), 1e-5),
        output_norm=layers.Norm(*(address(row) for row in parts["norms"]["output_norm"]), 1e-12),
        activation=activation,
        heads=heads,
    )


def run_layer(
    parts: dict[str, Any], x: Array, kept: Array | None, heads: int, activation: Any, stored: Any, threads: int
) -> Array:
    y = np.full_like(x, np.nan)
    examples, length, _ = x.shape
    one = layers.Layers([kernel_layer(parts, heads, activation, stored)])
    one.run(address(y), x=address(x), kept=address(kept), examples=examples, length=length, threads=threads)
    return y


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_layer_agrees_with_numpy(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    heads, size = data.draw(st.sampled_from([1, 2, 3])), data.draw(st.sampled_from([1, 2, 3, 4, 5, 8, 32]))
    hidden, inner = data.draw(st.sampled_from([2, 5, 48, 257])), data.draw(st.sampled_from([1, 40, 300, 1030]))
    examples, length = data.draw(st.sampled_from([0, 1, 2, 5])), data.draw(st.sampled_from([0, *EDGES, 127, 200]))
    stored = data.draw(st.sampled_from(["fp32", "bf16", "int8"]))
    activation = data.draw(st.sampled_from(list(ACTIVATIONS)))
    parts = layer_of(rng, hidden, heads * size, inner, stored)
    x = rng.standard_normal((examples, length, hidden), np.float32)
    kept = rng.random((examples, length)) < 0.6 if data.draw(st.booleans()) else None
    threads = data.draw(st.sampled_from([1, 2, 5]))
    y = run_layer(parts, x, kept, heads, activation, stored, threads)
    expected = expected_layer(parts, x, kept, heads, activation)
    assert (np.abs(y - expected) <= 2e-4 * (1 + np.abs(expected))).all()


def tables_of(rng: np.random.Generator, rows: list[int], columns: int, kinds: list[str]) -> list[tuple[Array, Any]]:
    """Numbers and scales, those of int8 from 1 to a hundredth."""
    made: list[tuple[Array, Any]] = []
    for count, kind in zip(rows, kinds, strict=True):
        numbers = rng.standard_normal((count, columns), np.float32)
        if kind == "int8":
            scales = np.geomspace(0.01, 1, count, dtype=np.float32)
            made.append((rng.integers(-127, 128, (count, columns), np.int8), scales))
        else:
            made.append(((numbers * np.float32(2.0 ** rng.integers(-24, 8))).astype(kind), None))
    return made


def embedding_of(tables: list[tuple[Array, Any]], norm: layers.Norm | None = None) -> layers.Embedding:
    kinds = [layers.Table(len(n), address(n), address(s), n.dtype.name) for n, s in tables]  # type: ignore[arg-type]
    return layers.Embedding(kinds, tables[0][0].shape[1], norm)


def dense_table(table: tuple[Array, Any]) -> Array:
    numbers, scales = table
    return numbers.astype(np.float32) * (np.float32(1) if scales is None else scales[:, None])


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_embedding_agrees_with_numpy(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    columns, tokens = data.draw(st.sampled_from([*EDGES[1:], 384])), data.draw(st.sampled_from([0, 1, 5, 70]))
    kinds = data.draw(st.lists(st.sampled_from(["float32", "float16", "int8"]), min_size=1, max_size=3))
    rows = [data.draw(st.sampled_from([1, 2, 40])) for _ in kinds]
    tables = tables_of(rng, rows, columns, kinds)
    ids = [rng.integers(0, count, tokens) for count in rows]
    y = np.full((tokens, columns), np.nan, np.float32)
    embedding_of(tables).run([address(one) for one in ids], address(y), tokens)
    sums = np.zeros_like(y)
    for table, one in zip(tables, ids, strict=True):
        sums += dense_table(table)[one]
    assert np.allclose(y, sums, rtol=3e-7 * len(kinds), atol=3e-7 * np.abs(sums).max(initial=0))
    if len(kinds) == 1:
        assert np.array_equal(y, sums)
    parameters = rng.standard_normal((2, columns), np.float32)
    embedding_of(tables, layers.Norm(address(parameters[0]), address(parameters[1]), 1e-5)).run(
        [address(one) for one in ids], address(y), tokens
    )
    expected = norm(sums.astype(float), *parameters.astype(float), epsilon=1e-5)
    assert np.abs(y - expected).max(initial=0) <= 2e-4 * (1 + np.abs(expected).max(initial=0))


def test_every_fp16_number_is_exact(isa: str) -> None:
    numbers = np.arange(2**16, dtype=np.uint16).view(np.float16)
    numbers = numbers[np.isfinite(numbers)][:, None]
    y, ids = np.full(numbers.shape, np.nan, np.float32), np.arange(len(numbers))
    embedding_of([(numbers, None)]).run([address(ids)], address(y), len(ids))
    assert np.array_equal(y, numbers.astype(np.float32))


def test_rows_that_do_not_exist_are_refused(isa: str) -> None:
    tables = tables_of(np.random.default_rng(0), [5, 2], 8, ["int8", "float16"])
    y, embedding = np.full((3, 8), np.nan, np.float32), embedding_of(tables)
    layer = layers.Layers(
        [kernel_layer(layer_of(np.random.default_rng(0), 8, 8, 4, "fp32"), 2, "gelu", "fp32")], embedding
    )
    for wrong in ([0, 5, 1], [0, -1, 1], [2**40, 0, 0]):
        first, second = np.array(wrong), np.zeros(3, np.int64)
        for ids in ((first, second), (second, np.clip(first, -1, 2) if wrong[1] < 0 else np.array([0, 2, 1]))):
            with pytest.raises(IndexError, match="must be that of one of its rows"):
                embedding.run([address(one) for one in ids], address(y), 3)
            with pytest.raises(IndexError, match="must be that of one of its rows"):
                layer.run(address(y), ids=[address(one) for one in ids], examples=1, length=3)
    assert np.isnan(y).all()
    with pytest.raises(ValueError, match="there are 1 arrays of ids for 2 tables"):
        embedding.run([address(second)], address(y), 3)
    with pytest.raises(ValueError, match="the embedding has 8 columns, not 6"):
        layers.Layers([kernel_layer(layer_of(np.random.default_rng(0), 6, 4, 4, "fp32"), 2, "gelu", "fp32")], embedding)


def test_a_pass_is_its_layers_one_after_another(isa: str) -> None:
    """Layers of several sizes, as those that lost heads and units are; with embeddings before them and without."""
    rng = np.random.default_rng(11)
    parts = [layer_of(rng, 40, attended, inner, "fp32") for attended, inner in ((32, 100), (8, 30), (24, 1100))]
    heads = (4, 1, 3)
    tables, parameters = tables_of(rng, [50, 2], 40, ["int8", "float32"]), rng.standard_normal((2, 40), np.float32)
    embedding = embedding_of(tables, layers.Norm(address(parameters[0]), address(parameters[1]), 1e-12))
    made = [kernel_layer(part, count, "gelu", "fp32") for part, count in zip(parts, heads, strict=True)]
    for examples, length in ((1, 1), (3, 17), (2, 130), (5, 64), (0, 4), (4, 0)):
        ids = [rng.integers(0, count, (examples, length)) for count in (50, 2)]
        kept = np.arange(length) < rng.integers(1, length + 2, (examples, 1))
        x = np.zeros((examples, length, 40), np.float32)
        embedding.run([address(one) for one in ids], address(x), examples * length)
        wanted = x
        for part, count in zip(parts, heads, strict=True):
            wanted = run_layer(part, wanted, kept, count, "gelu", "fp32", 1)
        for threads in (1, 2, 3, 8):
            y, z = np.full_like(x, np.nan), np.full_like(x, np.nan)
            whole = layers.Layers(made, embedding)
            shape: dict[str, int] = {"examples": examples, "length": length, "threads": threads}
            whole.run(address(y), ids=[address(one) for one in ids], kept=address(kept), **shape)
            layers.Layers(made).run(address(z), x=address(x), kept=address(kept), **shape)
            assert np.array_equal(y, wanted)
            assert np.array_equal(z, wanted)


def test_layers_agree_on_every_instruction_set(isa: str) -> None:
    rng = np.random.default_rng(7)
    parts = layer_of(rng, 48, 32, 100, "fp32")
    x = rng.standard_normal((3, 130, 48), np.float32)
    kept = np.arange(130) < np.array([[130], [70], [1]])
    y = run_layer(parts, x, kept, 4, "gelu", "fp32", 1)
    assert np.abs(y - expected_layer(parts, x, kept, 4, "gelu")).max() < 5e-5
    for threads in (2, 3, 8, 40):
        assert np.array_equal(run_layer(parts, x, kept, 4, "gelu", "fp32", threads), y)
    x[0, 100] = np.nan
    found = np.isnan(run_layer(parts, x, kept, 4, "gelu", "fp32", 2)).all(-1)
    assert found.all(-1).tolist() == [True, False, False]  # all tokens of its example attend to it
    assert not found[1:].any()


def test_scores_of_any_size_make_weights(isa: str) -> None:
    """The exponential, by attention from one token to two others: weights w and 1 - w, w from 1 down to 0."""
    parts = layer_of(np.random.default_rng(8), 2, 2, 1, "fp32")
    parts["weights"] |= {name: np.eye(2, dtype=np.float32) for name in ("query", "key", "value", "out")}
    parts["weights"] |= {"up": np.zeros((1, 2), np.float32), "down": np.zeros((2, 1), np.float32)}
    parts["biases"] = {name: np.zeros_like(bias) for name, bias in parts["biases"].items()}
    for scale in (0.01, 1, 5, 9, 13, 100, 1e4):
        x = np.array([[[scale, 0], [scale, 1], [0, 1]]], np.float32)
        y = run_layer(parts, x, None, 1, "none", "fp32", 1)
        assert np.abs(y - expected_layer(parts, x, None, 1, "none")).max() < 1e-4


def test_products_that_make_no_layer_are_refused() -> None:
    parts = layer_of(np.random.default_rng(9), 6, 4, 8, "fp32")
    x = np.zeros((1, 2, 6), np.float32)
    with pytest.raises(ValueError, match="do not make a layer"):
        run_layer(parts, x, None, 3, "gelu", "fp32", 1)  # three heads do not divide four rows
    parts["weights"]["out"] = parts["weights"]["out"][:, :3]
    with pytest.raises(ValueError, match="do not make a layer"):
        run_layer(parts, x, None, 2, "gelu", "fp32", 1)


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
def test_gelu_is_within_1e_6(isa: str, activation: kernel.Activation) -> None:
    values = np.concatenate([np.linspace(-12, 12, 20_001), [-1e30, 1e30, 1e-30, -0.0, 1e5, -1e5]]).astype(np.float32)
    y = run(kernel.Packed.pack(np.ones((1, 1), np.float32)), values[:, None], activation=activation)[:, 0]
    with np.errstate(over="ignore"):
        expected = ACTIVATIONS[activation](values.astype(float))
    assert (np.abs(y - expected) <= 1e-6 * np.maximum(1, np.abs(expected))).all()
    assert (y[values <= -9] == 0).all()  # and no error grows with the value


def test_values_that_are_not_finite_reach_only_what_has_a_weight_for_them(isa: str) -> None:
    weight = np.array([[1, 0, 2], [0, 3, 0], [0, 0, 0]], np.float32)
    x = np.array([[np.nan, 1, 1], [1, np.inf, 1], [1, 1, 1]], np.float32)
    for activation in ACTIVATIONS:
        y = run(kernel.Packed.pack(weight), x, activation=activation)  # type: ignore[arg-type]
        assert np.isfinite(y).tolist() == [[False, True, True], [True, False, True], [True, True, True]]
        assert np.isnan(y[0, 0])
        assert y[1, 1] == np.inf


def test_int8_of_an_artifact_is_exact() -> None:
    weight = rounded(sparse(np.random.default_rng(2), 20, 30, 0.5), Values.INT8, sparse=True)
    y = run(kernel.Packed.pack(weight, values="int8"), np.eye(30, dtype=np.float32))
    assert np.array_equal(y, weight.T)


def test_fewer_bytes_with_smaller_values() -> None:
    weight = sparse(np.random.default_rng(3), 64, 1200, 0.1)
    sizes = {stored: kernel.Packed.pack(weight, values=stored).nbytes for stored in ("fp32", "bf16", "int8")}
    count = np.count_nonzero(weight)
    assert sizes["fp32"] - sizes["bf16"] == 2 * count
    assert sizes["bf16"] - sizes["int8"] == count - 4 * 64
    assert sizes["fp32"] == 6 * count + 8 * (10 * 64 + 1) + 10 * 64  # ten blocks of columns, each with 64 rows


def test_pickles_and_copies() -> None:
    rng = np.random.default_rng(4)
    weight, x = sparse(rng, 40, 1030, 0.1), rng.standard_normal((9, 1030), np.float32)
    for stored in ("fp32", "bf16", "int8"):
        packed = kernel.Packed.pack(weight, values=stored)
        for twin in (pickle.loads(pickle.dumps(packed)), copy.deepcopy(packed)):  # noqa: S301
            assert np.array_equal(run(twin, x), run(packed, x))


@pytest.mark.parametrize(
    ("part", "broken", "message"),
    [
        (2, np.array([0, 1, 2], np.int64), "3 starts do not fit the shape"),
        (2, np.array([0, 3, 2, 4], np.int64), "do not rise"),
        (2, np.array([0, 1, 2, 9], np.int64), "do not rise"),
        (2, np.array([-1, 1, 2, 4], np.int64), "do not rise"),
        (3, np.array([0, 1, 5, 1], np.uint16), "an index lies outside"),
        (4, np.zeros(3, np.float32), "4 indices for 3 weights"),
        (5, np.ones(3, np.float32), "there are not 0 scales"),
        (6, np.array([0, 1], np.uint8), "the order is of 2 rows of blocks, not 3"),
        (6, np.array([0, 1, 3], np.uint8), "does not have each row of its band once"),
        (6, np.array([0, 1, 1], np.uint8), "does not have each row of its band once"),
        (7, 100, "blocks of 100 columns: they are of 128, 256, 512, 1024"),
    ],
)
def test_parts_that_would_read_past_their_end_are_refused(part: int, broken: Array | int, message: str) -> None:
    parts: list[Any] = [(3, 5), "fp32", np.array([0, 2, 3, 4]), np.array([1, 4, 0, 1]), np.ones(4), None]
    parts += [np.array([2, 0, 1]), 128]
    kernel.Packed(*parts)
    parts[part] = broken
    with pytest.raises(ValueError, match=message):
        kernel.Packed(*parts)


def test_an_index_past_the_last_narrow_block_is_refused() -> None:
    starts, order = np.array([0, 0, 1]), np.zeros(2)
    kernel.Packed((1, 1030), "fp32", starts, np.array([5]), np.ones(1), None, order, 1024)
    with pytest.raises(ValueError, match="an index lies outside"):
        kernel.Packed((1, 1030), "fp32", starts, np.array([6]), np.ones(1), None, order, 1024)


def test_what_cannot_be_packed_is_refused() -> None:
    with pytest.raises(ArtifactError, match="values must be finite"):
        kernel.Packed.pack(np.array([[np.inf]], np.float32))
    up = kernel.Packed.pack(np.ones((3, 2), np.float32))
    with pytest.raises(ValueError, match="down takes 2 features, not 3"):
        up.feed_forward(up, 0, 0, 0)


def test_many_threads_at_once_get_their_own_results() -> None:
    rng = np.random.default_rng(5)
    packed = kernel.Packed.pack(sparse(rng, 200, 150, 0.3))
    inputs = [rng.standard_normal((tokens, 150), np.float32) for tokens in (1, 40, 130, 64, 17, 200)]
    expected = [run(packed, x) for x in inputs]
    wrong: list[int] = []

    def serve(which: int) -> None:
        for _ in range(30):
            if not np.array_equal(run(packed, inputs[which], threads=3), expected[which]):
                wrong.append(which)

    threads = [threading.Thread(target=serve, args=(which,)) for which in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


def test_a_forked_child_has_threads_of_its_own() -> None:
    rng = np.random.default_rng(6)
    packed, x = kernel.Packed.pack(sparse(rng, 64, 64, 0.3)), rng.standard_normal((128, 64), np.float32)
    expected = run(packed, x, threads=2)  # the parent's threads are running
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(run(packed, x, threads=2), expected) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert np.array_equal(run(packed, x, threads=2), expected)


@pytest.mark.parametrize(
    ("setting", "answer"),
    [
        ("off", "no native kernel: it is turned off by MVPRUNE_KERNEL=off; unset it"),
        (
            ABSENT,
            f"no native kernel: MVPRUNE_KERNEL must be an instruction set of this machine, got {ABSENT}; unset it",
        ),
        ("sse", "no native kernel: MVPRUNE_KERNEL must be one of avx512, avx2, neon, generic or off, got 'sse'"),
    ],
)
def test_the_environment_chooses(setting: str, answer: str) -> None:
    code = "from mvprune.runtime import kernel; print(kernel.load()); print(repr(kernel.isa()))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "MVPRUNE_KERNEL": setting},
    )
    assert done.stdout.splitlines() == [answer, "''"]


def test_a_library_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kernel._library.cache_clear()
    monkeypatch.setattr(kernel, "_LIBRARY", tmp_path / "none.so")
    assert kernel.load() == (
        "no native kernel: it was not built: the installation found no working C++ compiler; "
        "install mvprune from its source on this machine, with g++ or clang++"
    )
    (tmp_path / "none.so").write_bytes(b"not a library")
    assert kernel.load().startswith("no native kernel: it does not load: ")
    with pytest.raises(RuntimeError, match="does not load"):
        run(kernel.Packed.pack(np.ones((1, 1), np.float32)), np.ones((1, 1), np.float32))
