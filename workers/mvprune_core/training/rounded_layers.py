"""Training for int8 activations: layers compute with rounded inputs and weights, as the sparse runtime will.

Gradients are straight-through: with G = ∂L/∂y of y = Q(x) Q(W')ᵀ + b, they are ∂L/∂x = G Q(W') and ∂L/∂W' = Gᵀ Q(x).
For the backward pass a layer keeps Q(x) and Q(W') as int8.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear
from transformers.pytorch_utils import Conv1D

from mvprune.runtime.rounding import Rounded, round_inputs, round_weight, rounded_layers


class RoundedLayers:
    """The layers of a model that the runtime may round. They need not compute so from the start.

    Args:
        model: a plain model, before masks change the classes of its layers.
    """

    def __init__(self, model: nn.Module) -> None:
        self._layers = rounded_layers(model)
        self._on = False

    def begin(self) -> None:
        """From now on the layers round, whether their weights are masked or not."""
        if self._on:
            return
        self._on = True
        for layer in self._layers:
            layer.forward = partial(_forward, layer, isinstance(layer, Conv1D))  # type: ignore[method-assign]

    def end(self) -> None:
        """Restores the layers."""
        for layer in self._layers if self._on else ():
            del layer.forward
        self._on = False


def _forward(layer: Any, inputs_first: bool, x: Tensor) -> Tensor:
    weight = layer.weight  # formed once
    y: Tensor = _Product.apply(x, weight.t() if inputs_first else weight, layer.bias)  # type: ignore[no-untyped-call]
    return y


class _Product(torch.autograd.Function):
    """In the dtype in which autocast computes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        device = x.device.type
        lower = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if lower else weight.dtype
        inputs, weights = round_inputs(x), round_weight(weight)
        ctx.save_for_backward(*inputs, *weights)
        ctx.dtype, ctx.dtypes = dtype, (x.dtype, weight.dtype)
        return linear(inputs.values(dtype), weights.values(dtype), None if bias is None else bias.to(dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        numbers, scales, weight_numbers, weight_scales = ctx.saved_tensors
        grad = grad.to(ctx.dtype)
        rows = grad.reshape(-1, grad.shape[-1])
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        of_x = of_weight = None
        if needs_x:
            of_x = (grad @ Rounded(weight_numbers, weight_scales).values(ctx.dtype)).to(ctx.dtypes[0])
        if needs_weight:
            inputs = Rounded(numbers, scales).values(ctx.dtype)
            of_weight = (rows.t() @ inputs.reshape(len(rows), -1)).to(ctx.dtypes[1])
        return of_x, of_weight, rows.sum(0, dtype=torch.float32) if needs_bias else None
