"""Layers of a Transformer one after another, and the embeddings before them, as calls of the native kernel.

Knows addresses, not torch; see `kernel`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

from mvprune.runtime import kernel
from mvprune.runtime.kernel import Activation, Product, SparseMatrix

Numbers = Literal["float32", "float16", "int8", "int4"]

_KINDS = MappingProxyType({"float32": 0, "int8": 2, "float16": 3, "int4": 4})
_PRODUCTS = ("query", "key", "value", "out", "up", "down")


class _Norm(ctypes.Structure):
    _fields_ = (("weight", ctypes.c_void_p), ("bias", ctypes.c_void_p), ("epsilon", ctypes.c_float))


class _Layer(ctypes.Structure):
    _fields_ = (
        *((name, Product) for name in _PRODUCTS),
        *((name, _Norm) for name in ("attention_norm", "output_norm")),
        ("heads", ctypes.c_int64),
        ("scale", ctypes.c_float),
    )


class _Table(ctypes.Structure):
    _fields_ = (
        ("rows", ctypes.c_int64),
        ("numbers", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("kind", ctypes.c_int32),
    )


class _Embedding(ctypes.Structure):
    _fields_ = (
        ("tables", ctypes.POINTER(_Table)),
        ("count", ctypes.c_int64),
        ("columns", ctypes.c_int64),
        ("norm", ctypes.POINTER(_Norm)),
    )


class Affine(NamedTuple):
    """x Wᵀ + bias; the address of the bias, or 0 for none."""

    weight: SparseMatrix
    bias: int


class Norm(NamedTuple):
    """A layer normalization: addresses of weight and bias, (features,) each."""

    weight: int
    bias: int
    epsilon: float


class Layer(NamedTuple):
    """A Transformer's block that normalizes after each sum, as BERT's:

    a = norm(x + out(attention(query(x), key(x), value(x)))), and norm(a + down(activation(up(a)))).
    """

    query: Affine
    key: Affine
    value: Affine
    out: Affine
    up: Affine
    down: Affine
    attention_norm: Norm
    output_norm: Norm
    activation: Activation
    heads: int


class Table(NamedTuple):
    """Rows that tokens refer to: addresses of (rows, columns) numbers and of (rows,) float32 scales, or 0 for none.

    int4 numbers are two in a byte, as `_nibbles` joins them, and have (rows, groups of 64 columns) scales.
    """

    rows: int
    numbers: int
    scales: int
    kind: Numbers


class Embedding:
    """norm(the sum of one row of each table).

    Args:
        tables: at least one.
        columns: of all tables.
        norm: None for none.
    """

    def __init__(self, tables: Sequence[Table], columns: int, norm: Norm | None = None) -> None:
        self.columns = columns
        self._count = len(tables)
        self._tables = (_Table * len(tables))(
            *(_Table(table.rows, table.numbers, table.scales, _KINDS[table.kind]) for table in tables)
        )
        self._norm = None if norm is None else _Norm(*norm)
        pointer = None if self._norm is None else ctypes.pointer(self._norm)
        self._structure = _Embedding(self._tables, self._count, columns, pointer)

    def run(self, ids: Sequence[int], y: int, tokens: int) -> None:
        """On addresses of contiguous arrays.

        Args:
            ids: of each table, (tokens,) of int64.
            y: (tokens, columns) of float32, written.
            tokens: of any number.

        Raises:
            IndexError: a table has no such row.
            ValueError: ids are not as many as tables.
        """
        kernel.done(kernel._library()[0].mvprune_embed(self.address(), self.pointers(ids), y, tokens))

    def address(self) -> object:
        """As the library takes it."""
        return ctypes.byref(self._structure)

    def pointers(self, ids: Sequence[int]) -> object:
        """The addresses of the ids, as the library takes them."""
        if len(ids) != self._count:
            raise ValueError(f"there are {len(ids)} arrays of ids for {self._count} tables")
        return (ctypes.c_void_p * len(ids))(*ids)


class Layers:
    """Layers one after another, of an embedding's sums or of a given x.

    Args:
        layers: at least one, of the same hidden size.
        embedding: None: x is given.

    Raises:
        ValueError: the shapes do not fit each other.
    """

    def __init__(self, layers: Sequence[Layer], embedding: Embedding | None = None) -> None:
        self._layers, self._embedding = tuple(layers), embedding  # the structures refer to their memory
        self._hidden = layers[0].query.weight.columns
        for layer in layers:
            self._check(layer)
        if embedding is not None and embedding.columns != self._hidden:
            raise ValueError(f"the embedding has {embedding.columns} columns, not {self._hidden}")
        self._structures = (_Layer * len(layers))(*map(_structure, layers))

    def run(
        self,
        y: int,
        *,
        examples: int,
        length: int,
        x: int = 0,
        ids: Sequence[int] = (),
        kept: int = 0,
        threads: int = 1,
    ) -> None:
        """On addresses of contiguous arrays.

        Args:
            y: (examples, length, hidden) of float32, written; must not overlap x.
            examples, length: of any number.
            x: as y; not read if there is an embedding.
            ids: of each table of the embedding, (examples, length) of int64.
            kept: (examples, length) of bool, the tokens that others may attend to, or 0 for all.
            threads: at most, the caller's among them; they do not change the result.

        Raises:
            IndexError: a table has no such row.
            MemoryError: no memory for the transposed values.
            ValueError: ids are not as many as tables.
        """
        embedding = None if self._embedding is None else self._embedding.address()
        pointers = None if self._embedding is None else self._embedding.pointers(ids)
        run = kernel._library()[0].mvprune_layers
        kernel.done(
            run(self._structures, len(self._layers), embedding, pointers, x, kept, y, examples, length, threads)
        )

    def _check(self, layer: Layer) -> None:
        hidden, attended, inner = self._hidden, layer.query.weight.rows, layer.up.weight.rows
        wanted = [(attended, hidden)] * 3 + [(hidden, attended), (inner, hidden), (hidden, inner)]
        parts: list[Affine] = [getattr(layer, name) for name in _PRODUCTS]
        if [(part.weight.rows, part.weight.columns) for part in parts] != wanted or attended % layer.heads:
            raise ValueError("the shapes of the products do not make a layer")


def _structure(layer: Layer) -> _Layer:
    parts: dict[str, Affine] = {name: getattr(layer, name) for name in _PRODUCTS}
    return _Layer(
        *(
            part.weight.product(part.bias, 0, 0, layer.activation if name == "up" else "none")
            for name, part in parts.items()
        ),
        _Norm(*layer.attention_norm),
        _Norm(*layer.output_norm),
        layer.heads,
        (layer.query.weight.rows // layer.heads) ** -0.5,
    )
