"""The formula of a decoder's block in numpy, and the same block as the kernel takes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tests.unit.runtime.kernel_cases import Array

from mvprune.runtime._elements import Elements
from mvprune.runtime.decoder import Affine, Block, Normal
from mvprune.runtime.masked import Masked


def erf(x: Array) -> Array:
    return torch.erf(torch.from_numpy(x)).numpy()


ACTIVATIONS = {
    "gelu": lambda x: x * 0.5 * (1 + erf(x / np.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


class Given:
    """A block of random numbers: as the kernel takes it, and as a formula.

    Args:
        kind: "packed" (GPT-2's: query, key and value in one matrix), "parallel" (GPT-NeoX's: head by head), "gated"
            (Llama's, with norms of heads), "source" (mBART's: with cross-attention) or "after" (BART's: the same with
            norms after the sums).
    """

    def __init__(
        self, hidden: int, inner: int, heads: int, groups: int, size: int, seed: int, *, kind: str, activation: Any
    ) -> None:
        self.source = np.random.default_rng(seed)
        self.heads, self.groups, self.size, self.activation, self.kind = heads, groups, size, activation, kind
        self.gated, self.crosses = kind == "gated", kind in ("source", "after")
        attended, grouped = heads * size, groups * size
        self.shapes = {"query": (attended, hidden), "key": (grouped, hidden), "value": (grouped, hidden)}
        self.packs, self.turned = kind in ("packed", "parallel"), size // 4 * 2 if kind == "parallel" else size
        if self.packs:
            self.shapes = {"query": (attended + 2 * grouped, hidden)}
        self.shapes |= {"out": (hidden, attended), "up": (inner, hidden), "down": (hidden, inner)}
        if self.gated:
            self.shapes["gate"] = (inner, hidden)
        if self.crosses:
            self.shapes |= {"cross_query": (attended, hidden), "cross_out": (hidden, attended)}
        self.weights = {name: self.sparse(shape) for name, shape in self.shapes.items()}
        self.biases = {} if self.gated else {name: self.random(shape[0]) for name, shape in self.shapes.items()}
        names = ("attention_norm", "feed_norm", *(("cross_norm",) * self.crosses))
        self.norms = {name: 1 + self.random(hidden) for name in names}
        if self.gated:
            self.norms |= {name: 1 + self.random(size) for name in ("query_norm", "key_norm")}
        self.norm_biases = {} if self.gated else {name: self.random(hidden) for name in self.norms}
        self.masked = {name: Masked.pack(Elements.of(weight)) for name, weight in self.weights.items()}

    def random(self, *shape: int) -> Array:
        return (0.3 * self.source.standard_normal(shape)).astype(np.float32)

    def sparse(self, shape: tuple[int, int]) -> Array:
        return self.random(*shape) * (self.source.random(shape) < 0.4)

    def block(self) -> Block:
        def affine(name: str) -> Affine:
            bias = self.biases.get(name)
            return Affine(self.masked[name], 0 if bias is None else bias.ctypes.data)

        def norm(name: str) -> Normal:
            bias = self.norm_biases.get(name)
            return Normal(self.norms[name].ctypes.data, 0 if bias is None else bias.ctypes.data, 1e-5, not self.gated)

        parts: dict[str, Any] = {name: affine(name) for name in self.masked} | {name: norm(name) for name in self.norms}
        parts |= {"heads": self.heads, "groups": self.groups, "size": self.size, "scale": 0.7}
        parts |= dict.fromkeys(("goes_by_heads", "is_parallel"), self.kind == "parallel")
        after = self.kind == "after"
        return Block(**parts, turned=self.turned, activation=self.activation, normalizes_after=after)

    def product(self, name: str, x: Array) -> Array:
        bias: Any = self.biases.get(name, 0)
        return x @ self.weights[name].astype(float).T + bias

    def norm(self, name: str, x: Array) -> Array:
        if name not in self.norms:
            return x
        centred = x if self.gated else x - x.mean(-1, keepdims=True)
        bias: Any = self.norm_biases.get(name, 0)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * self.norms[name] + bias

    def part(self, norm: str, x: Array, function: Any) -> Array:
        if self.kind == "after":
            return self.norm(norm, x + function(x))
        return x + function(self.norm(norm, x))

    def context(self, query: Array, keys: Array, values: Array, kept: Array) -> Array:
        each = self.heads // self.groups
        scores = 0.7 * np.einsum("thd,thld->thl", query, keys.repeat(each, 1))
        scores = np.where(kept[:, None], scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return np.einsum("thl,thld->thd", weights, values.repeat(each, 1)).reshape(len(query), -1)

    def expected(
        self, x: Array, past: tuple[Array, Array], turn: Any, kept: Array, source: tuple[Array, Array, Array]
    ) -> tuple[Array, Array, Array]:
        """Of x (texts, hidden), with past keys and values (texts, groups, length, size), and those of the source and
        its mask: y, the new keys and values."""
        texts, size = len(x), self.size
        found: dict[str, Array] = {}

        def attention(n: Array) -> Array:
            if self.packs:
                rows = self.product("query", n)
                if self.kind == "parallel":  # by head, part and feature to by part, head and feature
                    rows = rows.reshape(texts, self.heads, 3, size).swapaxes(1, 2).reshape(texts, -1)
                ends = [self.heads * size, (self.heads + self.groups) * size]
                parts = np.split(rows, ends, axis=1)
            else:
                parts = [self.product(name, n) for name in ("query", "key", "value")]
            query, key, value = (part.reshape(texts, -1, size) for part in parts)
            query, key = self.norm("query_norm", query), self.norm("key_norm", key)
            if turn is not None:
                query, key = turned(query, *turn), turned(key, *turn)
            found.update(key=key, value=value)
            both = (np.concatenate([old, new[:, :, None]], 2) for old, new in zip(past, (key, value), strict=True))
            return self.product("out", self.context(query, *both, kept))

        def cross(n: Array) -> Array:
            query = self.product("cross_query", n).reshape(texts, -1, size)
            return self.product("cross_out", self.context(query, *source))

        def feed(n: Array) -> Array:
            function, inner = ACTIVATIONS[self.activation], self.product("up", n)
            return self.product("down", function(self.product("gate", n)) * inner if self.gated else function(inner))

        y = self.part("attention_norm", x, attention)
        if self.kind == "parallel":
            return self.part("feed_norm", x, feed) + y - x, found["key"], found["value"]
        if self.crosses:
            y = self.part("cross_norm", y, cross)
        return self.part("feed_norm", y, feed), found["key"], found["value"]


def turned(x: Array, cosines: Array, sines: Array) -> Array:
    size = cosines.shape[-1]
    some, rest = x[..., :size], x[..., size:]
    other = np.concatenate([-some[..., size // 2 :], some[..., : size // 2]], axis=-1)
    return np.concatenate([some * cosines[:, None] + other * sines[:, None], rest], axis=-1)
