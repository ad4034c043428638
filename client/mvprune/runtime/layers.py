"""Layers of a Transformer one after another, and the embeddings before them, as calls of the native kernel.

Knows addresses, not torch; see `kernel`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from mvprune.runtime import kernel
from mvprune.runtime.kernel import Activation, Product, SparseMatrix

Numbers = Literal["float32", "float16", "int8", "int4"]

_KINDS = MappingProxyType({"float32": 0, "int8": 2, "float16": 3, "int4": 4})
_PRODUCTS = ("query", "key", "value", "out", "up", "down")


class _Norm(ctypes.Structure):
    _fields_ = (("weight", ctypes.c_void_p), ("bias", ctypes.c_void_p), ("epsilon", ctypes.c_float))


class _Places(ctypes.Structure):
    _fields_ = (
        ("span", ctypes.c_int64),
        ("window", ctypes.c_int64),
        ("bias", ctypes.c_void_p),
        ("bias_stride", ctypes.c_int64),
        ("to_key", ctypes.c_void_p),
        ("to_query", ctypes.c_void_p),
        ("most", ctypes.c_void_p),
        ("turns", ctypes.c_void_p),
    )


class _Layer(ctypes.Structure):
    _fields_ = (
        *((name, Product) for name in _PRODUCTS),
        *((name, _Norm) for name in ("attention_norm", "output_norm")),
        ("heads", ctypes.c_int64),
        ("scale", ctypes.c_float),
        ("normalizes_before", ctypes.c_int32),
        ("is_gated", ctypes.c_int32),
        ("places", ctypes.POINTER(_Places)),
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
    """A layer normalization: addresses of weight and bias, (features,) each; a bias of 0 for none.

    A weight of 0 is for no normalization.
    """

    weight: int
    bias: int
    epsilon: float


NO_NORM = Norm(0, 0, 0.0)


class Places(NamedTuple):
    """What the scores of a layer's attention know of where its tokens are: addresses of float32, or 0 for none.

    Columns of tables of distances are those of a query's place minus a key's, from -span up to span - 1.

    Attributes:
        span: at least `SPARE` more than the tokens of any example.
        window: the distance beyond which `bias` hides all keys, which are then not computed; 0 for none.
        bias: (heads, 2 span) of distances, added to the scores.
        shares_bias: whether it is (1, 2 span), for all heads.
        to_key: (heads times size, 2 span) of distances: each query's products with them are added to those with keys.
        to_query: the same of each key's products with queries. There are both or none.
        most: (heads, 2), the greatest magnitudes in a head's rows of to_key and to_query.
        turns: (size, span) of places: cosines, then sines, which turn the features of queries and keys; the first half
            of a head's features with the second.
    """

    span: int
    window: int = 0
    bias: int = 0
    shares_bias: bool = False
    to_key: int = 0
    to_query: int = 0
    most: int = 0
    turns: int = 0


SPARE = 32
"""By how much the span of tables exceeds the tokens of an example, at least: the kernel reads whole vectors."""


class Layer(NamedTuple):
    """A Transformer's block. One that normalizes after each sum, as BERT's:

    a = attention_norm(x + out(attention(query(x), key(x), value(x)))), and output_norm(a + down(activation(up(a)))).

    One that normalizes before: with n = attention_norm(x), a = x + out(attention(query(n), key(n), value(n))), and
    a + down(activation(up(output_norm(a)))).

    Attributes:
        key, value: None: the rows of query are those of all three, one after the other.
        normalizes_before: which of the two.
        is_gated: up has two halves: down(activation(first) * second).
        scale: of the scores; None for 1 / sqrt(a head's size).
        places: None: scores do not depend on them.
    """

    query: Affine
    key: Affine | None
    value: Affine | None
    out: Affine
    up: Affine
    down: Affine
    attention_norm: Norm
    output_norm: Norm
    activation: Activation
    heads: int
    normalizes_before: bool = False
    is_gated: bool = False
    scale: float | None = None
    places: Places | None = None

    @property
    def attended(self) -> int:
        """Features of the queries of all heads."""
        return self.query.weight.rows // (3 if self.key is None else 1)


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
        last: a normalization of what the last layer gives.

    Raises:
        ValueError: the shapes do not fit each other.
    """

    def __init__(self, layers: Sequence[Layer], embedding: Embedding | None = None, last: Norm = NO_NORM) -> None:
        self._layers, self._embedding = tuple(layers), embedding  # the structures refer to their memory
        self._hidden = layers[0].query.weight.columns
        for layer in layers:
            self._check(layer)
        if embedding is not None and embedding.columns != self._hidden:
            raise ValueError(f"the embedding has {embedding.columns} columns, not {self._hidden}")
        self._places = [None if layer.places is None else _places_of(layer.places) for layer in layers]
        self._structures = (_Layer * len(layers))(*map(_structure, layers, self._places))
        self._last = _Norm(*last)
        self._longest = min((layer.places.span - SPARE for layer in layers if layer.places), default=None)

    def run(
        self,
        y: int,
        *,
        lengths: npt.NDArray[np.int64],
        x: int = 0,
        ids: Sequence[int] = (),
        kept: int = 0,
        threads: int = 1,
    ) -> None:
        """On addresses of contiguous arrays: the tokens of all examples, one example behind the other.

        Args:
            y: (tokens, hidden) of float32, written; must not overlap x.
            lengths: of each example, (examples,) in any order.
            x: as y; not read if there is an embedding.
            ids: of each table of the embedding, (tokens,) of int64.
            kept: (tokens,) of bool, those that others may attend to, or 0 for all.
            threads: at most, the caller's among them; they do not change the result.

        Raises:
            IndexError: a table has no such row.
            MemoryError: no memory for the transposed values.
            ValueError: ids are not as many as tables, or an example is longer than the layers' places.
        """
        if self._longest is not None and lengths.max(initial=0) > self._longest:
            raise ValueError(f"examples may have up to {self._longest} tokens, got {lengths.max()}")
        lengths = np.ascontiguousarray(lengths, np.int64)
        embedding = None if self._embedding is None else self._embedding.address()
        pointers = None if self._embedding is None else self._embedding.pointers(ids)
        given = (self._structures, len(self._layers), embedding, pointers, ctypes.byref(self._last), x, kept)
        run = kernel._library()[0].mvprune_layers
        kernel.done(run(*given, lengths.ctypes.data, y, len(lengths), threads))

    def _check(self, layer: Layer) -> None:
        hidden, attended, inner = self._hidden, layer.attended, layer.down.weight.columns
        rows = {"out": hidden, "up": inner * (2 if layer.is_gated else 1), "down": hidden}
        rows |= {"query": 3 * attended} if layer.key is None else dict.fromkeys(("query", "key", "value"), attended)
        columns = dict.fromkeys(("query", "key", "value", "up"), hidden) | {"out": attended, "down": inner}
        for name in _PRODUCTS:
            part: Affine | None = getattr(layer, name)
            found = None if part is None else (part.weight.rows, part.weight.columns)
            if found != ((rows[name], columns[name]) if name in rows else None) or attended % layer.heads:
                raise ValueError("the shapes of the products do not make a layer")


def _places_of(places: Places) -> _Places:
    stride = 0 if places.shares_bias else 2 * places.span
    tables = (places.to_key, places.to_query, places.most, places.turns)
    return _Places(places.span, places.window, places.bias, stride, *tables)


def _structure(layer: Layer, places: _Places | None) -> _Layer:
    parts: dict[str, Affine | None] = {name: getattr(layer, name) for name in _PRODUCTS}
    products = (
        Product()
        if part is None
        else part.weight.product(part.bias, 0, 0, layer.activation if name == "up" else "none")
        for name, part in parts.items()
    )
    return _Layer(
        *products,
        _Norm(*layer.attention_norm),
        _Norm(*layer.output_norm),
        layer.heads,
        (layer.attended // layer.heads) ** -0.5 if layer.scale is None else layer.scale,
        layer.normalizes_before,
        layer.is_gated,
        None if places is None else ctypes.pointer(places),
    )
