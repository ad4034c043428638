"""One sparse layer."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from tests.unit.runtime.pruned_models import BACKENDS, needs_kernel
from torch.nn.functional import gelu, linear, relu

from mvprune.runtime import kernel
from mvprune.runtime._choice import sparse_layer
from mvprune.runtime._elements import Elements
from mvprune.runtime._linear import Int8Linear, KernelLinear


def matrix(rows: int, columns: int) -> np.ndarray:
    source = np.random.default_rng(rows)
    return (source.standard_normal((rows, columns)) * (source.random((rows, columns)) < 0.2)).astype(np.float32)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", [(7, 5), (1, 1), (0, 4), (3, 0), (65, 1030)])
@pytest.mark.parametrize("leading", [(), (1,), (0,), (2, 3), (1, 0, 4), (130,)])
def test_any_shape(backend: str, shape: tuple[int, int], leading: tuple[int, ...]) -> None:
    weight, bias = matrix(*shape), torch.randn(shape[0])
    x = torch.randn(*leading, shape[1])
    found = sparse_layer(backend, Elements.of(weight), bias, "fp32", None)(x)
    torch.testing.assert_close(found, linear(x, torch.from_numpy(weight), bias), rtol=1e-5, atol=5e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_bias_and_from_a_view(backend: str) -> None:
    weight = matrix(20, 30)
    x = torch.randn(30, 2, 9).permute(1, 2, 0)
    found = sparse_layer(backend, Elements.of(weight), None, "fp32", None)(x)
    assert found.is_contiguous()
    torch.testing.assert_close(found, linear(x, torch.from_numpy(weight)), rtol=1e-5, atol=1e-5)


@needs_kernel
def test_activation_comes_before_the_residual() -> None:
    weight, x, residual = matrix(20, 30), torch.randn(2, 9, 30), torch.randn(2, 9, 20)
    layer, y = KernelLinear(Elements.of(weight), None), linear(x, torch.from_numpy(weight))
    for activation, function in (("gelu", gelu), ("relu", relu), ("none", torch.clone)):
        torch.testing.assert_close(layer(x, residual, activation), function(y) + residual, rtol=1e-5, atol=1e-5)


@needs_kernel
@pytest.mark.parametrize(("values", "tolerance"), [("bf16", 2**-8), ("int8", 2**-6)])
def test_fewer_bits_are_smaller(values: kernel.Stored, tolerance: float) -> None:
    weight, x = matrix(64, 128), torch.randn(4, 128)
    exact, rounded = KernelLinear(Elements.of(weight), None), KernelLinear(Elements.of(weight), None, values=values)
    assert rounded.nbytes < exact.nbytes < weight.nbytes
    assert float((rounded(x) - exact(x)).abs().max() / exact(x).abs().max()) < tolerance


@needs_kernel
def test_int8_activations_are_near() -> None:
    weight, bias, x = matrix(64, 600), torch.randn(64), torch.randn(2, 9, 600)
    layer = sparse_layer("int8", Elements.of(weight), bias, "fp32", None)
    wanted = linear(x, torch.from_numpy(weight), bias)
    found = layer(x)
    assert isinstance(layer, Int8Linear)
    assert 0 < float((found - wanted).abs().max() / wanted.abs().max()) < 0.02
    assert torch.equal(copy.deepcopy(layer)(x), found)
    assert repr(layer).endswith("(in_features=600, out_features=64, backend=int8)")


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_refused(backend: str) -> None:
    layer = sparse_layer(backend, Elements.of(matrix(4, 6)), None, "fp32", None)
    with pytest.raises(RuntimeError, match="must have 6 features, got 5"):
        layer(torch.zeros(2, 5))
    with pytest.raises(RuntimeError, match=r"got torch\.float16 on cpu"):
        layer(torch.zeros(2, 6).half())
    assert repr(layer).endswith(f"(in_features=6, out_features=4, backend={backend})")


def test_without_the_kernel_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "load", lambda: "no native kernel: it was not built")
    with pytest.raises(RuntimeError, match="no native kernel: it was not built"):
        sparse_layer("kernel", Elements.of(matrix(4, 6)), None, "fp32", None)
