"""The passes of a training step beside numpy, on every instruction set that this machine has."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from tests.unit.runtime.instruction_sets import EMULATOR, isa, needs_kernel

from mvprune.runtime import passes
from mvprune.runtime.passes import Bits, Floats, Slope

__all__ = ["isa"]  # a fixture

pytestmark = [needs_kernel, pytest.mark.skipif(bool(EMULATOR), reason="the emulator has the products only")]

SIZES = [0, 1, 3, 4, 7, 8, 15, 16, 17, 100, 5000]


def drawn(rng: np.random.Generator, size: int) -> Floats:
    return rng.standard_normal(size).astype(np.float32)


def slope_of(x: Floats) -> Floats:
    """σ′ in double precision."""
    opened = 1 / (1 + np.exp(-x.astype(np.float64)))
    found: Floats = opened * (1 - opened)
    return found


def bits_of(kept: npt.NDArray[np.bool_]) -> Bits:
    return np.packbits(kept, bitorder="little")


@pytest.mark.parametrize("size", SIZES)
def test_gradients_of_weights_and_scores(isa: str, size: int) -> None:
    rng = np.random.default_rng(size)
    grad, weight, scores = drawn(rng, size), drawn(rng, size), 4 * drawn(rng, size)
    kept = rng.random(size) < 0.3
    grads, products = grad.copy(), drawn(rng, size)
    passes.share_gradient(grads, weight, bits_of(kept), products)
    np.testing.assert_array_equal(products, grad * weight)
    np.testing.assert_array_equal(grads, grad * kept)

    grads, products = grad.copy(), drawn(rng, size)
    passes.share_gradient(grads, weight, bits_of(kept), products, Slope(scores, 3.0, 0.5))
    expected = grad.astype(np.float64) * weight + 3.0 * slope_of(scores - np.float32(0.5))
    np.testing.assert_allclose(products, expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(grads, grad * kept)


def test_the_slope_is_exact_for_scores_of_any_size(isa: str) -> None:
    scores = np.concatenate([np.linspace(-30, 30, 3001), [-1e30, -200, -88, 88, 200, 1e30, 0]]).astype(np.float32)
    zeros, found = np.zeros_like(scores), np.ones_like(scores)
    passes.share_gradient(zeros.copy(), zeros, bits_of(zeros > 0), found, Slope(scores, 1.0, 0.0))
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(found, slope_of(scores), rtol=1e-6, atol=1e-13)


def test_a_gradient_that_is_not_finite_stays_so(isa: str) -> None:
    grad, found = np.array([np.nan, np.inf, 1], np.float32), np.zeros(3, np.float32)
    kept = bits_of(np.array([False, True, True]))
    passes.share_gradient(grad, np.full(3, 2, np.float32), kept, found, Slope(np.zeros(3, np.float32), 1.0, 0.0))
    np.testing.assert_array_equal(found, np.array([np.nan, np.inf, 2.25], np.float32))
    np.testing.assert_array_equal(grad, np.array([0, np.inf, 1], np.float32))


@pytest.mark.parametrize("size", [*SIZES, 200_000])
@pytest.mark.parametrize("threads", [1, 3])
def test_masked_weights_are_numpys(isa: str, size: int, threads: int) -> None:
    rng = np.random.default_rng(size)
    weight, kept, out = drawn(rng, size), rng.random(size) < 0.3, drawn(rng, size)
    passes.mask_weights(weight, bits_of(kept), out, threads=threads)
    np.testing.assert_array_equal(out.view(np.int32), (weight * kept).view(np.int32), "the sign of zeros too")


@pytest.mark.parametrize("size", [*SIZES, 200_000])
@pytest.mark.parametrize("threads", [1, 3])
def test_masked_weights_in_bf16_are_torchs(isa: str, size: int, threads: int) -> None:
    rng = np.random.default_rng(size)
    weight, kept = drawn(rng, size), rng.random(size) < 0.6
    weight.view(np.uint32)[::3] |= 0x8000  # in the middle of two values of bf16, or above
    weight.view(np.uint32)[::6] &= 0xFFFF8000
    weight[5::7] = 3.4e38  # rounded to infinity
    out = np.ones(size, np.uint16)
    passes.mask_weights(weight, bits_of(kept), out, threads=threads)
    expected = torch.from_numpy(weight * kept).bfloat16().view(torch.uint16).numpy()
    np.testing.assert_array_equal(out, expected)


def test_a_weight_that_is_not_finite_is_not_hidden_in_bf16(isa: str) -> None:
    weight, out = np.array([np.nan, np.inf, 1], np.float32), np.zeros(3, np.uint16)
    weight.view(np.uint32)[0] = 0x7FFFFFFF  # rounding it as a number would give -0
    passes.mask_weights(weight, np.full(1, 1, np.uint8), out)
    found = torch.from_numpy(out).view(torch.bfloat16).float().numpy()
    np.testing.assert_array_equal(found, np.array([np.nan, np.nan, 0], np.float32))


def test_a_weight_that_is_not_finite_is_not_hidden(isa: str) -> None:
    weight, out = np.array([np.nan, np.inf, 1], np.float32), np.zeros(3, np.float32)
    passes.mask_weights(weight, np.zeros(1, np.uint8), out)
    np.testing.assert_array_equal(out, np.array([np.nan, np.nan, 0], np.float32))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("expected", [0.0, 1.0])
def test_selection_is_numpys(isa: str, size: int, weighted: bool, expected: float) -> None:
    rng = np.random.default_rng(size)
    scores, weights, factor = drawn(rng, size), drawn(rng, size), np.float32(0.7)
    importance = np.abs(weights) * factor + scores if weighted else scores
    low, high = np.quantile(importance, [0.3, 0.6]).astype(np.float32) if size else (0.0, 1.0)
    kept = np.ones(size, np.bool_)
    found = passes.select_above(
        scores, weights if weighted else None, float(factor), float(low), float(high), kept, expected
    )
    inside = np.flatnonzero((importance >= low) & (importance < high))
    np.testing.assert_array_equal(kept, importance >= high)
    assert found.above == np.count_nonzero(importance >= high)
    np.testing.assert_array_equal(found.indices, inside)
    np.testing.assert_array_equal(found.values, importance[inside])


def test_zeros_behind_the_end_are_no_candidates(isa: str) -> None:
    scores, kept = np.full(5, -1, np.float32), np.ones(5, np.bool_)
    found = passes.select_above(scores, None, 0.0, -0.5, -0.25, kept, 1.0)
    assert (found.above, found.indices.size, kept.any()) == (0, 0, False)


@pytest.mark.parametrize(
    "wrong", [np.zeros((2, 2), np.float32), np.zeros(4), np.zeros(5, np.float32), np.zeros(8, np.float32)[::2]]
)
def test_an_array_that_does_not_fit(wrong: Floats) -> None:
    four = np.zeros(4, np.float32)
    with pytest.raises(ValueError, match="must be flat, contiguous, float32"):
        passes.share_gradient(four, wrong, np.zeros(1, np.uint8), four)
    with pytest.raises(ValueError, match="must be flat, contiguous, float32"):
        passes.mask_weights(four, np.zeros(1, np.uint8), wrong)
    with pytest.raises(ValueError, match="must be flat, contiguous, uint16"):
        passes.mask_weights(four, np.zeros(1, np.uint8), np.zeros(5, np.uint16))
    with pytest.raises(ValueError, match="must be"):
        passes.select_above(four, wrong, 1.0, 0.0, 1.0, np.zeros(4, np.bool_), 1.0)
    with pytest.raises(ValueError, match="kept must be"):
        passes.select_above(four, None, 1.0, 0.0, 1.0, wrong.astype(np.int8), 1.0)


@pytest.mark.parametrize("wrong", [np.zeros(2, np.uint8), np.zeros(1, np.int8), np.zeros((1, 1), np.uint8)])
def test_bits_that_do_not_fit(wrong: Bits) -> None:
    four = np.zeros(4, np.float32)
    with pytest.raises(ValueError, match=r"bits must be .* uint8 with 1 values, got"):
        passes.mask_weights(four, wrong, four.copy())
    with pytest.raises(ValueError, match="bits must be"):
        passes.share_gradient(four, four, wrong, four.copy())
