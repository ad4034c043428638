"""Training with zeros that stay: the product and its gradients beside dense ones in double precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.unit.runtime.pruned_models import needs_kernel
from torch import Tensor
from torch.nn.functional import linear

from mvprune.runtime import _choice, kernel
from mvprune.runtime._choice import Choices
from mvprune.runtime.training import FixedZeros, TrainingChoices

SHAPES = [(16, 16), (5, 7), (300, 130), (40, 1100), (257, 64)]


def layer(shape: tuple[int, int], density: float) -> tuple[Tensor, Tensor]:
    """A random weight, every third row of which is empty, and where it is kept."""
    kept = (torch.rand(shape) < density) & (torch.arange(shape[0]) % 3 > 0)[:, None]
    return torch.randn(shape) * kept, kept


def close(found: Tensor | None, expected: Tensor, sizes: Tensor) -> None:
    """To the rounding of sums in single precision, of terms of these sizes."""
    assert found is not None
    assert found.shape == expected.shape
    assert ((found - expected).abs() <= 1e-6 * (sizes + 1)).all()


@needs_kernel
@pytest.mark.parametrize("inputs_first", [False, True], ids=["linear", "conv1d"])
@pytest.mark.parametrize("density", [0, 0.03, 0.3, 1])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_product_and_gradients_are_those_of_double_precision(
    shape: tuple[int, int], density: float, inputs_first: bool
) -> None:
    weight, kept = layer(shape, density)
    for leading in ((1,), (3, 5), (130,), (2, 2, 40), (0,)):
        x, bias, grad = torch.randn(*leading, shape[1]), torch.randn(shape[0]), torch.randn(*leading, shape[0])
        stored, where = (weight.t().contiguous(), kept.t().contiguous()) if inputs_first else (weight, kept)
        given = [tensor.clone().requires_grad_() for tensor in (x, stored, bias)]
        y = FixedZeros(where, inputs_first=inputs_first)(*given)
        y.backward(grad)
        exact_x, exact_weight, exact_bias = (tensor.double().requires_grad_() for tensor in (x, weight, bias))
        exact = linear(exact_x, exact_weight, exact_bias)
        exact.backward(grad.double())
        rows, grads = x.double().abs().reshape(-1, shape[1]), grad.double().abs().reshape(-1, shape[0])
        assert exact_x.grad is not None
        assert exact_weight.grad is not None
        assert exact_bias.grad is not None
        close(y.detach(), exact.detach(), linear(x.double().abs(), weight.double().abs()))
        close(given[0].grad, exact_x.grad, grad.double().abs() @ weight.double().abs())
        found = given[1].grad
        assert found is not None
        found = found.t() if inputs_first else found
        close(found, exact_weight.grad * kept, grads.t() @ rows)
        assert (found[~kept] == 0).all()
        close(given[2].grad, exact_bias.grad, grads.sum(0))


@needs_kernel
def test_gradients_are_differences_of_the_loss() -> None:
    """The loss is linear in x, in W and in b, so its difference over a step of any length is its gradient."""
    weight, kept = layer((30, 20), 0.3)
    x, bias, grad = torch.randn(50, 20), torch.randn(30), torch.randn(50, 30)
    product = FixedZeros(kept)
    given = [tensor.clone().requires_grad_() for tensor in (x, weight, bias)]
    product(*given).backward(grad)
    for index, tensor in enumerate(given):
        step = torch.randn_like(tensor) * (kept if index == 1 else 1)
        moved = [other.detach() + (step if other is tensor else 0) for other in given]
        difference = ((product(*moved) - product(x, weight, bias)).double() * grad).sum()
        assert tensor.grad is not None
        assert (tensor.grad.double() * step).sum() == pytest.approx(difference.item(), rel=1e-4, abs=1e-3)


@needs_kernel
def test_only_the_wanted_gradients_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, kept = layer((30, 20), 0.3)
    product, x = FixedZeros(kept), torch.randn(8, 20)
    monkeypatch.setattr(product, "input_gradient", None)
    trained = weight.clone().requires_grad_()
    product(x, trained).sum().backward()
    assert trained.grad is not None
    monkeypatch.setattr(product, "weight_gradient", None)
    bias = torch.zeros(30, requires_grad=True)
    product(x, weight, bias).sum().backward()
    assert bias.grad is not None
    assert bias.grad.tolist() == [8.0] * 30
    with torch.no_grad():
        torch.testing.assert_close(product(x, trained), linear(x, weight))


@needs_kernel
def test_values_of_the_weight_are_read_at_each_call() -> None:
    weight, kept = layer((30, 20), 0.3)
    product, x = FixedZeros(kept), torch.randn(8, 20, requires_grad=True)
    product(x, weight)
    weight.mul_(2)
    y = product(x, weight)
    torch.testing.assert_close(y, linear(x, weight))
    y.sum().backward()
    torch.testing.assert_close(x.grad, weight.sum(0).expand(8, -1))


@needs_kernel
def test_views_and_expanded_gradients_are_read_rightly() -> None:
    weight, kept = layer((30, 20), 0.3)
    whole = torch.randn(6, 40, requires_grad=True)
    trained = weight.clone().requires_grad_()
    FixedZeros(kept)(whole[:, ::2], trained).sum().backward()  # the gradient of a sum is one number, expanded
    expected, dense = whole.detach().clone().requires_grad_(), weight.clone().requires_grad_()
    linear(expected[:, ::2], dense).sum().backward()
    assert dense.grad is not None
    torch.testing.assert_close(whole.grad, expected.grad)
    torch.testing.assert_close(trained.grad, dense.grad * kept)


@needs_kernel
def test_what_the_kernel_cannot_read_is_refused() -> None:
    weight, kept = layer((30, 20), 0.3)
    product, x, bias = FixedZeros(kept), torch.randn(8, 20), torch.zeros(30)
    for given in (
        (x.double(), weight, bias),
        (x[:, :19], weight, bias),
        (x, weight.bfloat16(), bias),
        (x, weight.t(), bias),
        (x, weight, bias[:29]),
        (x.to("meta"), weight, None),
    ):
        with pytest.raises(RuntimeError, match="a tensor of a sparse product must be float32 of shape"):
            product(*given)


@needs_kernel
def test_the_number_of_threads_changes_nothing() -> None:
    weight, kept = layer((600, 300), 0.1)
    x, grad, before, found = torch.randn(200, 300), torch.randn(200, 600), torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            given = [tensor.clone().requires_grad_() for tensor in (x, weight)]
            y = FixedZeros(kept)(*given)
            y.backward(grad)
            found.append([y, *(tensor.grad for tensor in given)])
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(one, two) for one, two in zip(found[0], other, strict=True))


def test_without_the_kernel_there_is_no_such_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "load", lambda: "no native kernel: switched off")
    with pytest.raises(RuntimeError, match="no native kernel: switched off"):
        FixedZeros(torch.ones(3, 4, dtype=torch.bool))
    assert TrainingChoices(64, 1).times((32, 16), 0.05).keys() == {"dense"}
    assert TrainingChoices(64, 1).backend((32, 16), 0.05) == "dense"


@needs_kernel
def test_the_choice_times_product_and_gradients_apart_from_those_of_inference(monkeypatch: pytest.MonkeyPatch) -> None:
    before, calls = torch.get_num_threads(), []

    def fastest(rivals: Any, seconds: float) -> dict[str, float]:
        for rival in rivals.values():
            rival()
        calls.append(set(rivals))
        return {name: {"kernel": 1.0, "dense": 2.0, "csr": 3.0}[name] for name in rivals}

    steps = []
    monkeypatch.setattr(_choice, "fastest", fastest)
    monkeypatch.setattr(FixedZeros, "weight_gradient", lambda *_: steps.append(1) or torch.zeros(96, 64))
    assert TrainingChoices(128, 1).backend((96, 64), 0.04) == "kernel"
    assert calls == [{"dense", "kernel"}]
    assert steps == [1]
    Choices(128, 1, "fp32").backend((96, 64), 0.04)
    assert len(calls) == 2  # measured of its own
    assert TrainingChoices(128, 1).backend((96, 64), 0.05) == "kernel"
    assert len(calls) == 2  # from the file
    assert torch.get_num_threads() == before


@needs_kernel
def test_real_times() -> None:
    times = TrainingChoices(64, 1).times((96, 64), 0.05)
    assert times.keys() == {"dense", "kernel"}
    assert all(seconds > 0 for seconds in times.values())
