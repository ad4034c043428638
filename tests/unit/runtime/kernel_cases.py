"""What the native kernel's tests share: random matrices, layers and tables, and what numpy makes of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvprune.artifact.values import Values, rounded
from mvprune.runtime import kernel, layers
from mvprune.runtime._nibbles import joined

Array = npt.NDArray[Any]

_erf = np.vectorize(math.erf, otypes=[float])
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "none": lambda v: v,
    "relu": lambda v: np.maximum(v, 0),
    "gelu": lambda v: v * 0.5 * (1 + _erf(v / math.sqrt(2))),
    "gelu_tanh": lambda v: 0.5 * v * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))),
}
KERNEL_TESTS = tuple(f"test_kernel{part}.py" for part in ("", "_layers", "_places", "_embedding", "_quads"))
"""The files that other builds of the library have to pass too: with sanitizers, and of another architecture."""

EDGES = [0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100]


def sparse(rng: np.random.Generator, rows: int, columns: int, density: float) -> Array:
    """Random weights; every third row is empty, the others are uneven."""
    kept = rng.random((rows, columns)) < density * rng.choice([0, 0.5, 2.5], (rows, 1))
    return np.where(kept, rng.standard_normal((rows, columns)), 0).astype(np.float32)


def address(array: Array | None) -> int:
    return 0 if array is None else array.ctypes.data


def run(
    packed: kernel.SparseMatrix, x: Array, *, residual: Array | None = None, bias: Array | None = None, **options: Any
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
    lengths = np.full(examples, length)
    one.run(address(y), x=address(x), kept=address(kept), lengths=lengths, threads=threads)
    return y


class GivenTable(NamedTuple):
    """Rows of numbers as the kernel reads them, and the same as a dense matrix of float32."""

    kind: layers.Numbers
    numbers: Array
    scales: Array | None
    dense: Array


def table_of(kind: layers.Numbers, numbers: Array, scales: Array | None = None) -> GivenTable:
    """A table of (rows, columns) numbers; those of int4 in int8."""
    dense = numbers.astype(np.float32)
    if scales is not None:
        dense = dense * np.repeat(scales, 64 if kind == "int4" else 2**16, axis=1)[:, : numbers.shape[1]]
    return GivenTable(kind, joined(numbers) if kind == "int4" else numbers, scales, dense)


def tables_of(rng: np.random.Generator, rows: list[int], columns: int, kinds: list[Any]) -> list[GivenTable]:
    """Random tables; scales are from a hundredth to 1."""
    made = []
    for count, kind in zip(rows, kinds, strict=True):
        if kind in ("int8", "int4"):
            largest, scaled = (127, count) if kind == "int8" else (7, count * -(-columns // 64))
            scales = np.geomspace(0.01, 1, scaled, dtype=np.float32).reshape(count, -1)
            made.append(table_of(kind, rng.integers(-largest, largest + 1, (count, columns), np.int8), scales))
        else:
            numbers = rng.standard_normal((count, columns), np.float32) * np.float32(2.0 ** rng.integers(-24, 8))
            made.append(table_of(kind, numbers.astype(kind)))
    return made


def embedding_of(tables: list[GivenTable], norm: layers.Norm | None = None) -> layers.Embedding:
    kinds = [layers.Table(len(one.dense), address(one.numbers), address(one.scales), one.kind) for one in tables]
    return layers.Embedding(kinds, tables[0].dense.shape[1], norm)
