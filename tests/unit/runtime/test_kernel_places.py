"""Layers whose scores depend on places, of any form, beside numpy, on every instruction set that this machine has.

Examples of several lengths lie one behind the other: some share a block of tokens, some have several.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.runtime.instruction_sets import isa, needs_kernel
from tests.unit.runtime.kernel_cases import ACTIVATIONS, Array, address, layer_of, norm, sparse

from mvprune.runtime import kernel, layers
from mvprune.runtime.quads import Quads

pytestmark = needs_kernel

__all__ = ["isa"]  # a fixture

HIDDEN, HEADS, SIZE, INNER = 40, 3, 8, 70
ATTENDED = HEADS * SIZE


class Form(NamedTuple):
    """What a layer has beyond BERT's."""

    bias: bool = False
    window: int = 0
    apart: bool = False
    turns: bool = False
    before: bool = False
    gated: bool = False
    joined: bool = False
    has_norms: bool = True
    has_biases: bool = True


FORMS = {
    "MPNet": Form(bias=True),
    "ModernBERT": Form(window=9, turns=True, before=True, gated=True, joined=True, has_biases=False),
    "its first layer": Form(turns=True, before=True, gated=True, joined=True, has_norms=False, has_biases=False),
    "DeBERTa": Form(apart=True),
    "GPT-2's norms": Form(before=True),
    "all": Form(bias=True, window=5, apart=True, turns=True, before=True, gated=True, joined=True),
}


class Case(NamedTuple):
    """A random layer."""

    form: Form
    parts: dict[str, Any]
    span: int
    tables: dict[str, Array]

    @classmethod
    def of(cls, form: Form, longest: int, seed: int = 0) -> Case:
        rng = np.random.default_rng(seed)
        parts = layer_of(rng, HIDDEN, ATTENDED, INNER, "int8")
        if form.gated:
            parts["weights"]["up"] = sparse(rng, 2 * INNER, HIDDEN, 0.3)
            parts["biases"]["up"] = rng.standard_normal(2 * INNER, np.float32)
        span = longest + layers.SPARE + 3
        shapes = {"bias": (HEADS, 2 * span)} | dict.fromkeys(("to_key", "to_query"), (ATTENDED, 2 * span))
        tables = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
        angles = rng.uniform(0, 7, (SIZE // 2, span))
        tables["turns"] = np.concatenate([np.cos(angles), np.sin(angles)]).astype(np.float32)
        if form.window:
            hidden = np.abs(np.arange(-span, span)) > form.window
            tables["bias"] = np.where(hidden, np.float32(-3e38), tables["bias"] if form.bias else np.float32(0))
            tables["bias"] = np.ascontiguousarray(tables["bias"] if form.bias else tables["bias"][:1])
        by_head = [np.abs(tables[name]).reshape(HEADS, -1).max(1) for name in ("to_key", "to_query")]
        tables["most"] = np.ascontiguousarray(np.stack(by_head, 1))
        return cls(form, parts, span, tables)

    def layer(self, packing: Any = kernel.Packed) -> layers.Layer:
        """As the kernel takes it."""
        form, weights, biases = self.form, self.parts["weights"], self.parts["biases"]
        if form.joined:
            names = ("query", "key", "value")
            weights = weights | {"query": np.concatenate([weights[name] for name in names])}
            biases = biases | {"query": np.concatenate([biases[name] for name in names])}
            weights = {name: weight for name, weight in weights.items() if name not in ("key", "value")}
            self.parts["held"] = biases
        products: dict[str, Any] = dict.fromkeys(("key", "value"))
        for name, weight in weights.items():
            products[name] = layers.Affine(packing.pack(weight), address(biases[name]) if form.has_biases else 0)
        rows = {name: self.parts["norms"][name] for name in ("attention_norm", "output_norm")}
        norms = {
            name: layers.Norm(address(row[0]), address(row[1]) * form.has_biases, 1e-5) for name, row in rows.items()
        }
        if not form.has_norms:
            norms["attention_norm"] = layers.NO_NORM
        used = {"bias": form.bias or form.window, "turns": form.turns}
        used |= dict.fromkeys(("to_key", "to_query", "most"), form.apart)
        tables = {name: address(self.tables[name]) for name, is_used in used.items() if is_used}
        places = layers.Places(self.span, form.window, shares_bias=not form.bias, **tables)
        return layers.Layer(
            **products, **norms, activation="gelu", heads=HEADS, normalizes_before=form.before, is_gated=form.gated,
            scale=0.2, places=places,
        )  # fmt: skip

    def run(self, x: Array, lengths: Array, kept: Array | None, threads: int = 1, **packing: Any) -> Array:
        y = np.full_like(x, np.nan)
        layer = self.layer(**packing)
        layers.Layers([layer]).run(address(y), x=address(x), lengths=lengths, kept=address(kept), threads=threads)
        return y

    def expected(self, x: Array, lengths: Array, kept: Array | None) -> Array:
        """In double precision."""
        ends = np.cumsum(lengths)
        shown = np.ones(len(x), bool) if kept is None else kept
        parts = [(slice(end - length, end)) for end, length in zip(ends, lengths, strict=True)]
        return np.concatenate([self._example(x[one].astype(float), shown[one]) for one in parts])

    def _product(self, name: str, v: Array) -> Array:
        y: Array = v @ self.parts["weights"][name].T.astype(float)
        return y + self.parts["biases"][name] if self.form.has_biases else y

    def _norm(self, name: str, v: Array) -> Array:
        if name == "attention_norm" and not self.form.has_norms:
            return v
        weight, bias = self.parts["norms"][name].astype(float)
        return norm(v, weight, bias if self.form.has_biases else 0 * bias, 1e-5)

    def _attended(self, x: Array, shown: Array) -> Array:
        query, key, value = (
            self._product(name, x).reshape(len(x), HEADS, SIZE).swapaxes(0, 1) for name in ("query", "key", "value")
        )
        if self.form.turns:
            cosines, sines = np.split(self.tables["turns"][:, : len(x)].T.astype(float), 2, axis=1)
            query, key = (
                np.concatenate([low * cosines - high * sines, high * cosines + low * sines], 2)
                for low, high in (np.split(one, 2, axis=2) for one in (query, key))
            )
        distances = self.span + np.arange(len(x))[:, None] - np.arange(len(x))
        scores = query @ key.swapaxes(1, 2)
        if self.form.apart:
            to_key, to_query = (
                self.tables[name].reshape(HEADS, SIZE, -1)[:, :, distances].astype(float)
                for name in ("to_key", "to_query")
            )
            scores += np.einsum("hqd,hdqk->hqk", query, to_key) + np.einsum("hkd,hdqk->hqk", key, to_query)
        scores *= 0.2
        if self.form.bias:
            scores += self.tables["bias"][:, distances]
        within = np.abs(distances - self.span) <= (self.form.window or math.inf)
        powers = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf)) * (within & shown)
        sums = powers.sum(-1, keepdims=True)
        context = np.divide(powers, sums, out=np.zeros_like(powers), where=sums > 0) @ value
        return self._product("out", context.swapaxes(0, 1).reshape(len(x), ATTENDED))

    def _fed(self, x: Array) -> Array:
        inner = self._product("up", x)
        halves = np.split(inner, 2, axis=1) if self.form.gated else (inner, np.ones_like(inner))
        return self._product("down", ACTIVATIONS["gelu"](halves[0]) * halves[1])

    def _example(self, x: Array, shown: Array) -> Array:
        if not self.form.before:
            a = self._norm("attention_norm", x + self._attended(x, shown))
            return self._norm("output_norm", a + self._fed(a))
        a = x + self._attended(self._norm("attention_norm", x), shown)
        return a + self._fed(self._norm("output_norm", a))


def seen(case: Case, lengths: Array, kept: Array | None) -> Array:
    """The tokens that attend to any: the others give what is not defined."""
    if kept is None or not case.form.window:
        return np.ones(lengths.sum(), bool)
    found = []
    for end, length in zip(np.cumsum(lengths), lengths, strict=True):
        near = np.abs(np.arange(length)[:, None] - np.arange(length)) <= case.form.window
        found.append((near & kept[end - length : end]).any(1))
    return np.concatenate(found)


LENGTHS = np.array([5, 1, 40, 0, 17, 16, 3, 200, 129, 8])
ENDS = list(zip(np.cumsum(LENGTHS), LENGTHS, strict=True))


@pytest.mark.parametrize("name", FORMS)
def test_examples_of_any_length_agree_with_numpy(isa: str, name: str) -> None:
    rng = np.random.default_rng(3)
    case = Case.of(FORMS[name], 200)
    x = rng.standard_normal((LENGTHS.sum(), HIDDEN), np.float32)
    for kept in (None, rng.random(len(x)) < 0.7):
        y, some = case.run(x, LENGTHS, kept), seen(case, LENGTHS, kept)
        wanted = case.expected(x, LENGTHS, kept)
        assert np.abs(y - wanted)[some].max() < 2e-5 * (1 + np.abs(wanted).max())
        for threads in (2, 3, 8, 40):
            assert np.array_equal(case.run(x, LENGTHS, kept, threads), y)
    alone = [case.run(x[end - length : end], np.array([length]), None) for end, length in ENDS]
    assert np.array_equal(np.concatenate(alone), case.run(x, LENGTHS, None))


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_any_lengths_and_forms(data: st.DataObject) -> None:
    lengths = np.array(data.draw(st.lists(st.integers(0, 150), min_size=1, max_size=8)))
    form = data.draw(st.builds(Form, window=st.sampled_from([0, 1, 20, 400])))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    case = Case.of(form, int(lengths.max()), 1)
    x = rng.standard_normal((lengths.sum(), HIDDEN), np.float32)
    kept = rng.random(len(x)) < 0.6 if data.draw(st.booleans()) else None
    y, wanted, some = case.run(x, lengths, kept), case.expected(x, lengths, kept), seen(case, lengths, kept)
    assert (np.abs(y - wanted) <= 2e-4 * (1 + np.abs(wanted)))[some].all()


@pytest.mark.parametrize("name", FORMS)
def test_products_of_bytes_are_near_and_do_not_depend_on_the_batch(isa: str, name: str) -> None:
    """Attention is in int16 then, where the instruction set has products of them."""
    rng = np.random.default_rng(4)
    case = Case.of(FORMS[name], 200)
    x = rng.standard_normal((LENGTHS.sum(), HIDDEN), np.float32)
    kept = rng.random(len(x)) < 0.7
    y, wanted, some = (
        case.run(x, LENGTHS, kept, packing=Quads),
        case.expected(x, LENGTHS, kept),
        seen(case, LENGTHS, kept),
    )
    assert 1e-5 < np.abs(y - wanted)[some].max() / np.abs(wanted).max() < 0.1
    assert np.sqrt(np.mean((y - wanted)[some] ** 2) / np.mean(wanted[some] ** 2)) < 0.04
    for threads in (2, 3, 8):
        assert np.array_equal(case.run(x, LENGTHS, kept, threads, packing=Quads), y)
    for end, length in ENDS:
        one = slice(end - length, end)
        alone = case.run(
            np.ascontiguousarray(x[one]), np.array([length]), np.ascontiguousarray(kept[one]), packing=Quads
        )
        assert np.array_equal(alone, y[one])


def test_what_is_out_of_sight_has_no_part(isa: str) -> None:
    """Of a window: not even what is not a number. Of examples that share a block: neither."""
    case = Case.of(FORMS["ModernBERT"], 120)
    lengths = np.array([120, 20, 30])
    x = np.random.default_rng(5).standard_normal((170, HIDDEN), np.float32)
    y = case.run(x, lengths, None)
    x[0] = x[145] = np.nan
    found = case.run(x, lengths, None)
    touched = np.isnan(found).any(1)
    assert touched[0]
    assert touched[140:].any()
    assert not touched[64:140].any()  # the kernel may read up to a vector and the queries of a group more
    assert np.array_equal(found[~touched], y[~touched])


def test_what_does_not_fit_is_refused() -> None:
    case = Case.of(FORMS["all"], 50)
    x = np.zeros((90, HIDDEN), np.float32)
    with pytest.raises(ValueError, match="examples may have up to 53 tokens, got 60"):
        case.run(x, np.array([30, 60]), None)
    layer = case.layer()
    for wrong in ({"is_gated": False}, {"key": layer.out}, {"heads": 5}, {"down": layer.up}):
        with pytest.raises(ValueError, match="do not make a layer"):
            layers.Layers([layer._replace(**wrong)])
