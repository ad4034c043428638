"""Feed-forward parts and layers of the native kernel beside numpy, on every instruction set that this machine has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.runtime.instruction_sets import isa, needs_kernel
from tests.unit.runtime.kernel_cases import (
    ACTIVATIONS,
    EDGES,
    address,
    embedding_of,
    expected_layer,
    kernel_layer,
    layer_of,
    run,
    run_layer,
    sparse,
    tables_of,
)

from mvprune.runtime import kernel, layers

pytestmark = needs_kernel

__all__ = ["isa"]  # a fixture


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


def test_a_pass_is_its_layers_one_after_another(isa: str) -> None:
    """Layers of several sizes, as those that lost heads and units are; with embeddings before them and without."""
    rng = np.random.default_rng(11)
    parts = [layer_of(rng, 40, attended, inner, "fp32") for attended, inner in ((32, 100), (8, 30), (24, 1100))]
    heads = (4, 1, 3)
    tables, parameters = tables_of(rng, [50, 2], 40, ["int4", "float32"]), rng.standard_normal((2, 40), np.float32)
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
            shape: dict[str, Any] = {"lengths": np.full(examples, length), "threads": threads}
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
