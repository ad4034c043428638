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
_PRODUCTS = ("query", "key", "value", "out", "gate", "up", "down")


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
        *((name, _Normal) for name in ("attention_norm", "feed_norm")),
        *((name, _Affine) for name in _PRODUCTS),
        *((name, _Normal) for name in ("query_norm", "key_norm")),
        ("heads", ctypes.c_int64),
        ("groups", ctypes.c_int64),
        ("size", ctypes.c_int64),
        ("scale", ctypes.c_float),
        ("activation", ctypes.c_int32),
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
    """A block that normalizes before each part.

    a = x + out(attention(query(n), key(n), value(n))) with n = attention_norm(x), and a + down(activation(gate(m)) *
    up(m)) with m = feed_norm(a), or down(activation(up(m))) without a gate.

    Attributes:
        key, value: None: the rows of query are those of all three.
        query_norm, key_norm: of each head, None for none.
        heads, groups: of queries, and of keys and values.
        size: of a head.
        scale: of the scores.
    """

    attention_norm: Normal
    query: Affine
    key: Affine | None
    value: Affine | None
    out: Affine
    feed_norm: Normal
    gate: Affine | None
    up: Affine
    down: Affine
    query_norm: Normal | None
    key_norm: Normal | None
    heads: int
    groups: int
    size: int
    scale: float
    activation: Gate


class Decoder:
    """Blocks one after another, and the norm after them.

    Raises:
        ValueError: the shapes do not fit each other.
    """

    def __init__(self, blocks: Sequence[Block], last: Normal) -> None:
        self._blocks = tuple(blocks)  # the structures refer to their memory
        self._hidden = blocks[0].down.weight.rows
        for block in blocks:
            self._check(block)
        self._structures = (_Block * len(blocks))(*map(_structure, blocks))
        self._last = _normal(last)

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
            turn: cosines and sines of the rotation, (texts, size), or 0 for none.
            kept: (texts, length + 1) of bool, the tokens that are attended to, or 0 for all.
            threads: at most, the caller's among them; they do not change the result.

        Returns:
            False if a number on the way is not finite. y, and the keys and values of this token, then hold nothing.

        Raises:
            MemoryError: no memory for what is between the blocks.
        """
        count = len(self._blocks)
        pointers = [ctypes.cast((ctypes.c_void_p * count)(*one), ctypes.c_void_p) for one in (keys, values)]
        step = _Step(texts, length, capacity, *pointers, *turn, kept)
        run = kernel.library().mvprune_decode
        return taken(run(self._structures, count, ctypes.byref(self._last), ctypes.byref(step), x, y, threads))

    def _check(self, block: Block) -> None:
        hidden, attended, inner = self._hidden, block.heads * block.size, block.up.weight.rows
        grouped = block.groups * block.size
        packed = block.key is None or block.value is None
        wanted = {
            "query": (attended + 2 * grouped if packed else attended, hidden),
            "key": (grouped, hidden),
            "value": (grouped, hidden),
            "out": (hidden, attended),
            "gate": (inner, hidden),
            "up": (inner, hidden),
            "down": (hidden, inner),
        }
        parts: dict[str, Affine | None] = {name: getattr(block, name) for name in _PRODUCTS}
        found = {name: (part.weight.rows, part.weight.columns) for name, part in parts.items() if part}
        fit = all(wanted[name] == shape for name, shape in found.items())
        if not fit or (block.key is None) != (block.value is None) or block.heads % max(1, block.groups):
            raise ValueError("the shapes of the products do not make a block")


def _structure(block: Block) -> _Block:
    parts: dict[str, Affine | None] = {name: getattr(block, name) for name in _PRODUCTS}
    return _Block(
        _normal(block.attention_norm),
        _normal(block.feed_norm),
        *(_Affine(part.weight.pointer(), part.bias) if part else _Affine(None, None) for part in parts.values()),
        _normal(block.query_norm),
        _normal(block.key_norm),
        block.heads,
        block.groups,
        block.size,
        block.scale,
        _GATES[block.activation],
    )


def _normal(norm: Normal | None) -> Any:
    return _Normal(None, None, 0, 0) if norm is None else _Normal(*norm)
