"""The kernel of another architecture, run by an emulator: in place of the library that kernel.py loads."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from mvprune.runtime import kernel
from mvprune.runtime._layout import blocks

_SIZES = {0: 4, 1: 2, 2: 1, 3: 2, 5: 4}  # of a number, by kind; of a quad
_INT4 = 4


def library(command: Sequence[str]) -> Any:
    """What takes the place of kernel._library: it chooses anew after cache_clear(), as that does."""
    driver = Emulated(command)

    @lru_cache(maxsize=1)
    def loaded() -> tuple[Any, str]:
        wanted = os.environ.get("MVPRUNE_KERNEL", "")
        chosen = driver.mvprune_choose(wanted.encode())
        if chosen is None:
            raise kernel._UnavailableError(f"the emulated machine has no {wanted}")
        return driver, chosen.decode()

    return loaded


class Emulated:
    """Has the library's functions. Each call sends what its addresses lead to, and stores the answer at y."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._lock = threading.Lock()

    def mvprune_choose(self, name: bytes) -> bytes | None:
        """The name, where the emulated machine has that instruction set; for b"" the name of its only one."""
        with self._lock:
            return (name or b"neon") if self._ask(_number(ord("c")), _array(name + b"\0"), 0)[0] else None

    def mvprune_has_dots(self) -> int:
        """NEON has no such instruction here."""
        return 0

    def mvprune_linear(self, product: Any, x: int, tokens: int, threads: int) -> int:
        wanted = product._obj
        matrix = wanted.matrix.contents
        size = tokens * matrix.rows
        request = [_number(ord("p")), _number(size), _product(wanted, size), _floats(x, tokens * matrix.columns)]
        return self._call(request, (tokens, threads), wanted.y, size)

    def mvprune_sample(self, matrix: Any, grad: int, x: int, values: int, tokens: int, threads: int) -> int:
        given = matrix._obj
        weights = _weights(given)
        request = [_number(ord("s")), _number(weights), _matrix(given), _floats(values, weights)]
        request += [_floats(grad, tokens * given.rows), _floats(x, tokens * given.columns)]
        return self._call(request, (tokens, threads), values, weights)

    def mvprune_feed_forward(self, up: Any, down: Any, x: int, tokens: int, threads: int) -> int:
        size = tokens * down._obj.matrix.contents.rows
        request = [_number(ord("f")), _number(size), _product(up._obj, 0), _product(down._obj, size)]
        request.append(_floats(x, tokens * up._obj.matrix.contents.columns))
        return self._call(request, (tokens, threads), down._obj.y, size)

    def mvprune_embed(self, embedding: Any, ids: Any, y: int, tokens: int) -> int:
        size = tokens * embedding._obj.columns
        request = [_number(ord("e")), _number(size), _embedding(embedding._obj), _ids(ids, tokens)]
        return self._call(request, (tokens,), y, size)

    def mvprune_layers(
        self,
        layers: Any,
        count: int,
        embedding: Any,
        ids: Any,
        last: Any,
        x: int,
        kept: int,
        lengths: int,
        y: int,
        examples: int,
        threads: int,
    ) -> int:
        tokens = int(np.frombuffer(ctypes.string_at(lengths, 8 * examples), np.int64).sum())
        hidden = layers[0].down.matrix.contents.rows
        size = tokens * hidden
        request = [_number(ord("l")), _number(size), _number(count), *map(_layer, layers)]
        request.append(_number(embedding is not None))
        if embedding is not None:
            request += [_embedding(embedding._obj), _ids(ids, tokens)]
        request += [_norm(last._obj, hidden), _floats(x, size), _at(kept, tokens), _at(lengths, 8 * examples)]
        return self._call(request, (examples, threads), y, size)

    def _call(self, request: list[bytes], numbers: tuple[int, ...], y: int, size: int) -> int:
        with self._lock:
            status, answer = self._ask(b"".join(request), b"".join(map(_number, numbers)), size)
        if not status:
            ctypes.memmove(y, answer, len(answer))
        return status

    def _ask(self, request: bytes, rest: bytes, floats: int) -> tuple[int, bytes]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(request + rest)
        self._process.stdin.flush()
        (status,) = struct.unpack("<q", self._process.stdout.read(8))
        return status, self._process.stdout.read(4 * floats)


def _number(value: int) -> bytes:
    return struct.pack("<q", value)


def _array(content: bytes) -> bytes:
    return _number(len(content)) + content


def _float(value: float) -> bytes:
    return _array(struct.pack("<f", value))


def _at(address: int | None, size: int) -> bytes:
    return _array(ctypes.string_at(address, size)) if address else _number(-1)


def _floats(address: int | None, count: int) -> bytes:
    return _at(address, 4 * count)


def _starts(matrix: Any) -> bytes | None:
    if not matrix.starts:
        return None
    runs = matrix.rows * blocks(matrix.columns, matrix.block)
    return ctypes.string_at(matrix.starts, 8 * (runs + 1))


def _weights(matrix: Any) -> int:
    """Non-zeros, or quads."""
    starts = _starts(matrix)
    if starts is None:
        return -(-matrix.rows // 4) * 4 * -(-matrix.columns // 4)
    return int(np.frombuffer(starts, np.int64)[-1])


def _matrix(matrix: Any) -> bytes:
    weights, starts = _weights(matrix), _starts(matrix)
    return b"".join(
        [
            *map(_number, (matrix.rows, matrix.columns, matrix.block, matrix.kind)),
            _number(-1) if starts is None else _array(starts),
            _at(matrix.order, matrix.rows * blocks(matrix.columns, matrix.block)),
            _at(matrix.indices, 2 * weights),
            _at(matrix.values, _SIZES[matrix.kind] * weights),
            _floats(matrix.scales, matrix.rows),
            _floats(matrix.offsets, matrix.rows * blocks(matrix.columns, matrix.block)),
        ]
    )


def _product(product: Any, residual: int) -> bytes:
    matrix = product.matrix.contents
    return b"".join(
        [
            _matrix(matrix),
            _floats(product.bias, matrix.rows),
            _floats(product.residual, residual),
            _number(product.activation),
        ]
    )


def _norm(norm: Any, features: int) -> bytes:
    return _floats(norm.weight, features) + _floats(norm.bias, features) + _float(norm.epsilon)


def _layer(layer: Any) -> bytes:
    hidden = layer.down.matrix.contents.rows
    attended = layer.query.matrix.contents.rows // (1 if layer.key.matrix else 3)
    optional = (_number(1) + _product(one, 0) if one.matrix else _number(0) for one in (layer.key, layer.value))
    products = [_product(layer.query, 0), *optional, *(_product(one, 0) for one in (layer.out, layer.up, layer.down))]
    norms = (_norm(norm, hidden) for norm in (layer.attention_norm, layer.output_norm))
    forms = (_number(layer.normalizes_before), _number(layer.is_gated), _number(bool(layer.places)))
    places = _places(layer.places.contents, layer.heads, attended) if layer.places else b""
    return b"".join([*products, *norms, _number(layer.heads), _float(layer.scale), *forms, places])


def _places(places: Any, heads: int, attended: int) -> bytes:
    columns = 2 * places.span
    return b"".join(
        [
            _number(places.span),
            _number(places.window),
            _floats(places.bias, columns * (heads if places.bias_stride else 1)),
            _number(places.bias_stride),
            _floats(places.to_key, columns * attended),
            _floats(places.to_query, columns * attended),
            _floats(places.most, 2 * heads),
            _floats(places.turns, places.span * attended // heads),
        ]
    )


def _embedding(embedding: Any) -> bytes:
    content = [_number(embedding.count)]
    for place in range(embedding.count):
        table = embedding.tables[place]
        if table.kind == _INT4:
            size, scales = 16 * -(-embedding.columns // 32), -(-embedding.columns // 64)
        else:
            size, scales = embedding.columns * _SIZES[table.kind], 1
        content += [
            _number(table.rows),
            _number(table.kind),
            _at(table.numbers, table.rows * size),
            _floats(table.scales, table.rows * scales),
        ]
    content += [_number(embedding.columns), _number(bool(embedding.norm))]
    if embedding.norm:
        content.append(_norm(embedding.norm.contents, embedding.columns))
    return b"".join(content)


def _ids(ids: Any, tokens: int) -> bytes:
    return b"".join(_at(address, 8 * tokens) for address in ids)
