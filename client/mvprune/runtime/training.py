"""Training with a weight whose zeros stay zeros: its product and both gradients, from the non-zeros."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from mvprune.runtime import kernel
from mvprune.runtime._choice import Choices
from mvprune.runtime._linear import address
from mvprune.runtime.kernel import Packed


class FixedZeros:
    """x Wᵀ + b and its gradients by the native kernel, for a W of which only some entries may differ from 0.

    With G = ∂L/∂y, the gradients are ∂L/∂x = G W, ∂L/∂W = Gᵀ x at the kept positions and 0 elsewhere, and ∂L/∂b, the
    sum of G over the rows. They differ from those of dense products only by rounding. The number of threads, which is
    torch's, does not change them.

    Args:
        kept: where W may differ from 0: bool, the shape of W, on the CPU.
        inputs_first: whether W is stored as (inputs, outputs), as GPT-2's `Conv1D` does, not as (outputs, inputs).

    Raises:
        RuntimeError: the kernel is unavailable; the text says why.
    """

    def __init__(self, kept: Tensor, *, inputs_first: bool = False) -> None:
        if absent := kernel.load():
            raise RuntimeError(absent)
        mask = kept.numpy()
        mask = mask.T if inputs_first else mask
        self._outputs, self._inputs = mask.shape
        self._shape = kept.shape
        # For G W the same positions are stored a second time, with the inputs as rows.
        self._packed, self._turned = (Packed.pack(one.astype(np.float32)) for one in (mask, mask.T))
        places, turned = self._packed.positions(), self._turned.positions()
        width, height = self._inputs, self._outputs
        self._places = places % width * height + places // width if inputs_first else places
        self._turned_places = turned if inputs_first else turned % height * width + turned // height

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """x Wᵀ + b, with gradients; in float32.

        Args:
            x: (…, inputs).
            weight: W; entries that are not kept are not read.
            bias: b, (outputs,).

        Raises:
            RuntimeError: a tensor has another dtype, device or shape.
        """
        shapes = ((x, (*x.shape[:-1], self._inputs)), (weight, self._shape), (bias, (self._outputs,)))
        for tensor, shape in shapes:
            if tensor is not None:
                _check(tensor, shape)
        y: Tensor = _Product.apply(x, weight, bias, self)  # type: ignore[no-untyped-call]
        return y

    def output(self, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """x Wᵀ + b for x of (rows, inputs)."""
        y = torch.empty(len(rows), self._outputs)
        packed = self._packed.with_values(_take(weight, self._places))
        added, threads = None if bias is None else bias.contiguous(), torch.get_num_threads()
        packed.linear(rows.data_ptr(), y.data_ptr(), len(rows), bias=address(added), threads=threads)
        return y

    def input_gradient(self, grad: Tensor, weight: Tensor) -> Tensor:
        """G W for G of (rows, outputs)."""
        found = torch.empty(len(grad), self._inputs)
        packed = self._turned.with_values(_take(weight, self._turned_places))
        packed.linear(grad.data_ptr(), found.data_ptr(), len(grad), threads=torch.get_num_threads())
        return found

    def weight_gradient(self, grad: Tensor, rows: Tensor) -> Tensor:
        """Gᵀ x at the kept positions, 0 elsewhere, in the shape of W."""
        values = np.zeros(len(self._places), np.float32)
        threads = torch.get_num_threads()
        self._packed.sample(grad.data_ptr(), rows.data_ptr(), values.ctypes.data, len(rows), threads=threads)
        found = torch.zeros(self._shape)
        found.view(-1).numpy()[self._places] = values
        return found


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, zeros: FixedZeros) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.zeros = zeros
        y = zeros.output(_rows(x), weight, bias)
        return y.view(*x.shape[:-1], y.shape[-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        zeros, rows = ctx.zeros, _rows(grad)
        needs_x, needs_weight, needs_bias, _ = ctx.needs_input_grad
        return (
            zeros.input_gradient(rows, weight).view(x.shape) if needs_x else None,
            zeros.weight_gradient(rows, _rows(x)) if needs_weight else None,
            rows.sum(0) if needs_bias else None,
            None,
        )


class TrainingChoices(Choices):
    """The faster of "kernel" and "dense" for a layer that is trained: the product and both gradients are timed.

    Args:
        rows: examples × length that a batch is expected to have.
        threads: of torch.
    """

    _purpose: ClassVar[str] = "training"

    def __init__(self, rows: int, threads: int) -> None:
        super().__init__(rows, threads, "fp32")

    def _rivals(self, weight: Tensor, bias: Tensor, density: float) -> dict[str, Callable[[Tensor], object]]:
        rivals: dict[str, Callable[[Tensor], object]] = {"dense": _step(linear, weight, bias)}
        if not kernel.load():
            rivals["kernel"] = _step(FixedZeros(weight != 0), weight, bias)
        return rivals


def _step(product: Callable[..., Tensor], weight: Tensor, bias: Tensor) -> Callable[[Tensor], object]:
    """Computes the product and its gradients."""
    weight, bias = weight.clone().requires_grad_(), bias.clone().requires_grad_()

    def step(x: Tensor) -> None:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = product(x, weight, bias)
            torch.autograd.grad(y, (x, weight, bias), torch.ones_like(y))

    return step


def _check(tensor: Tensor, shape: tuple[int, ...]) -> None:
    """The kernel reads memory without looking at what lies there."""
    if tensor.dtype != torch.float32 or tensor.device.type != "cpu" or tensor.shape != shape:
        found = f"{tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device}"
        raise RuntimeError(
            f"a tensor of a sparse product must be float32 of shape {tuple(shape)} on the CPU, got {found}"
        )


def _rows(x: Tensor) -> Tensor:
    return x.detach().reshape(math.prod(x.shape[:-1]), x.shape[-1]).contiguous()


def _take(weight: Tensor, places: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    taken: npt.NDArray[np.float32] = weight.detach().numpy().reshape(-1).take(places)
    return taken
