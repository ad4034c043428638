"""A step of a decoder, one more token of each text, in one call of the native kernel. Knows addresses, not torch."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from mvprune.runtime import kernel
from mvprune.runtime.masked import Masked, Structure, taken

Gate = Literal["gelu", "gelu_tanh", "relu", "silu"]

_GATES = MappingProxyType({"gelu": 1, "gelu_tanh": 2, "relu": 3, "silu": 4})
_NORMS = ("attention_norm", "cross_norm", "feed_norm")
_PRODUCTS = ("query", "key", "value", "out", "cross_query", "cross_out", "gate", "up", "down")
_HEAD_NORMS = ("query_norm", "key_norm")
_FLOAT = 4  # bytes


class _Normal(ctypes.Structure):
    _fields_ = (
        ("weight", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("epsilon", ctypes.c_float),
        ("is_centred", ctypes.c_int32),
    )


class _Affine(ctypes.Structure):
    _fields_ = (("matrix", ctypes.POINTER(Structure)), ("bias", ctypes.c_void_p))


class _Block(ctypes.Structure):
    _fields_ = (
        *((name, _Normal) for name in _NORMS),
        *((name, _Affine) for name in _PRODUCTS),
        *((name, _Normal) for name in _HEAD_NORMS),
        ("heads", ctypes.c_int64),
        ("groups", ctypes.c_int64),
        ("size", ctypes.c_int64),
        ("turned", ctypes.c_int64),
        ("scale", ctypes.c_float),
        ("activation", ctypes.c_int32),
        ("normalizes_after", ctypes.c_int32),
        ("goes_by_heads", ctypes.c_int32),
        ("is_parallel", ctypes.c_int32),
    )


class _Step(ctypes.Structure):
    _fields_ = (
        ("texts", ctypes.c_int64),
        ("length", ctypes.c_int64),
        ("capacity", ctypes.c_int64),
        ("keys", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("cosines", ctypes.c_void_p),
        ("sines", ctypes.c_void_p),
        ("kept", ctypes.c_void_p),
        ("source", ctypes.c_int64),
        ("cross_keys", ctypes.c_void_p),
        ("cross_values", ctypes.c_void_p),
        ("source_kept", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
    )


class Normal(NamedTuple):
    """A normalization: addresses of weight and bias, (features,) each; a bias of 0 for none."""

    weight: int
    bias: int
    epsilon: float
    is_centred: bool
    """Whether it is a layer norm; else the mean is not taken away (RMS norm)."""


class Affine(NamedTuple):
    """x Wᵀ + bias; the address of the bias, or 0 for none."""

    weight: Masked
    bias: int


class Block(NamedTuple):
    """Attention, cross-attention if there is one, and feed-forward, each with a norm n before it.

    a = x + out(attention(query(n), key(n), value(n))), then a + cross_out(attention(cross_query(n), the keys and values
    of the source)), then the sum and down(activation(gate(n)) * up(n)), or down(activation(up(n))) without a gate.

    Attributes:
        normalizes_after: each part has its norm after the sum instead.
        is_parallel: the feed-forward part is of x too, not of the sum, and there is no cross-attention.
        key, value: None: the rows of query are those of all three.
        goes_by_heads: the rows of query are those of all three of one head after the other.
        query_norm, key_norm: of each head, None for none.
        heads, groups: of queries, and of keys and values.
        size: of a head.
        turned: of the features of a head, those that are rotated: the first. None: all.
        scale: of the scores.
    """

    attention_norm: Normal
    query: Affine
    out: Affine
    feed_norm: Normal
    up: Affine
    down: Affine
    heads: int
    groups: int
    size: int
    scale: float
    activation: Gate
    normalizes_after: bool = False
    is_parallel: bool = False
    goes_by_heads: bool = False
    turned: int | None = None
    key: Affine | None = None
    value: Affine | None = None
    gate: Affine | None = None
    query_norm: Normal | None = None
    key_norm: Normal | None = None
    cross_norm: Normal | None = None
    cross_query: Affine | None = None
    cross_out: Affine | None = None


class Source(NamedTuple):
    """What the cross-attention of each block attends to.

    Attributes:
        length: tokens.
        keys, values: of each block, the address of (texts, groups, length, size).
        kept: (texts, length) of bool, the tokens that are attended to, or 0 for all.
    """

    length: int
    keys: Sequence[int]
    values: Sequence[int]
    kept: int = 0


class Decoder:
    """Blocks one after another, and the norm after them, if there is one.

    Raises:
        ValueError: the shapes do not fit each other.
    """

    def __init__(self, blocks: Sequence[Block], last: Normal | None = None) -> None:
        self._blocks = tuple(blocks)  # the structures refer to their memory
        self._hidden = blocks[0].down.weight.rows
        for block in blocks:
            self._check(block)
        self._structures = (_Block * len(blocks))(*map(_structure, blocks))
        self._last = None if last is None else ctypes.pointer(_normal(last))

    def run(
        self,
        x: int,
        y: int,
        *,
        texts: int,
        length: int,
        capacity: int,
        keys: Sequence[int],
        values: Sequence[int],
        turn: tuple[int, int] = (0, 0),
        kept: int = 0,
        source: Source = Source(0, (), ()),  # noqa: B008 (immutable)
        threads: int = 1,
    ) -> bool:
        """On addresses of contiguous arrays of float32.

        Args:
            x: (texts, hidden).
            y: (texts, hidden), written.
            texts: of any number.
            length: tokens of each text before this one.
            capacity: more than length; tokens that keys and values have room for.
            keys: of each block, (texts, groups, capacity, size), of which those of this token are written.
            values: as keys.
            turn: cosines and sines of the rotation, (texts, turned), or 0 for none.
            kept: (texts, length + 1) of bool, the tokens that are attended to, or 0 for all.
            source: of blocks with cross-attention.
            threads: at most, the caller's among them; they do not change the result.

        Returns:
            False if a number on the way is not finite. y, and the keys and values of this token, then hold nothing.

        Raises:
            MemoryError: no memory for what is between the blocks.
            ValueError: keys and values are not those of each block.
        """
        count = len(self._blocks)
        if any(len(one) != count for one in (keys, values)) or any(
            block.cross_query and len(source.keys) != count for block in self._blocks
        ):
            raise ValueError(f"there must be keys and values of each of the {count} blocks")
        held = [
            self._of_texts(addresses, texts, tokens)
            for addresses, tokens in (
                (keys, capacity),
                (values, capacity),
                (source.keys, source.length),
                (source.values, source.length),
            )
        ]
        pointers = [ctypes.cast(one, ctypes.c_void_p) for one in held]
        step = _Step(texts, length, capacity, *pointers[:2], *turn, kept, source.length, *pointers[2:], source.kept)
        run = kernel.library().mvprune_decode
        return taken(run(self._structures, count, self._last, ctypes.byref(step), x, y, threads))

    def _of_texts(self, addresses: Sequence[int], texts: int, tokens: int) -> Any:
        """The addresses of each text's (groups, tokens, size) in arrays of all texts', one of each block."""
        starts = [
            first + text * block.groups * tokens * block.size * _FLOAT
            for first, block in zip(addresses, self._blocks, strict=False)
            for text in range(texts)
        ]
        return (ctypes.c_void_p * len(starts))(*starts)

    def _check(self, block: Block) -> None:
        hidden, attended, inner = self._hidden, block.heads * block.size, block.up.weight.rows
        grouped = block.groups * block.size
        packed = block.key is None or block.value is None
        wanted = {
            "query": (attended + 2 * grouped if packed else attended, hidden),
            "key": (grouped, hidden),
            "value": (grouped, hidden),
            "out": (hidden, attended),
            "cross_query": (attended, hidden),
            "cross_out": (hidden, attended),
            "gate": (inner, hidden),
            "up": (inner, hidden),
            "down": (hidden, inner),
        }
        parts: dict[str, Affine | None] = {name: getattr(block, name) for name in _PRODUCTS}
        found = {name: (part.weight.rows, part.weight.columns) for name, part in parts.items() if part}
        fit = all(wanted[name] == shape for name, shape in found.items())
        pairs = ((block.key, block.value), (block.cross_query, block.cross_out), (block.cross_query, block.cross_norm))
        turned = block.turned is None or 0 <= block.turned <= block.size
        by_heads = not block.goes_by_heads or (packed and block.heads == block.groups)
        fit = fit and turned and by_heads and not (block.is_parallel and block.cross_query)
        if not fit or any((a is None) != (b is None) for a, b in pairs) or block.heads % max(1, block.groups):
            raise ValueError("the shapes of the products do not make a block")


def _structure(block: Block) -> _Block:
    parts: dict[str, Affine | None] = {name: getattr(block, name) for name in _PRODUCTS}
    return _Block(
        *(_normal(getattr(block, name)) for name in _NORMS),
        *(_Affine(part.weight.pointer(), part.bias) if part else _Affine(None, None) for part in parts.values()),
        *(_normal(getattr(block, name)) for name in _HEAD_NORMS),
        block.heads,
        block.groups,
        block.size,
        block.size if block.turned is None else block.turned,
        block.scale,
        _GATES[block.activation],
        block.normalizes_after,
        block.goes_by_heads,
        block.is_parallel,
    )


def _normal(norm: Normal | None) -> Any:
    return _Normal(None, None, 0, 0) if norm is None else _Normal(*norm)
