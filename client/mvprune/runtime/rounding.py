"""The rounding of int8 activations in torch, on any device: for training, and for metrics without the kernel.

y = Q(x) Q(W)ᵀ + b      Q: whole numbers times scales, as `quads.Quads` and `quads.Full` have them
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad
from transformers.pytorch_utils import Conv1D

from mvprune.artifact.values import SMALLEST_SCALE
from mvprune.runtime._elements import Elements
from mvprune.runtime._linear import may_round
from mvprune.runtime.attention16 import attention16_simulated
from mvprune.runtime.quads import COLUMNS, FILLED, rounded_weight

_LARGEST = 127
_SMALLEST_INPUT = 1e-30  # a token with nothing larger in a block is zero there


class Rounded(NamedTuple):
    """A matrix as the kernel multiplies it.

    Attributes:
        numbers: int8, (…, columns).
        scales: fp32, (…, blocks of columns).
    """

    numbers: Tensor
    scales: Tensor

    def values(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """The numbers times their scales, (…, columns)."""
        columns, scales = self.numbers.shape[-1], self.scales
        if scales.shape[-1] > 1:
            scales = scales.repeat_interleave(COLUMNS, -1)[..., :columns]
        return self.numbers.float().mul_(scales).to(dtype)


def rounded_layers(model: nn.Module) -> list[nn.Linear | Conv1D]:
    """The layers whose inputs and weights may be rounded: the linear ones in numbered blocks, not pooler and head."""
    owners: dict[int, list[tuple[str, Any]]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        if (weight := module._parameters.get("weight")) is not None:
            owners.setdefault(id(weight), []).append((path, module))
    found = [some for some in owners.values() if all(may_round(path, module) for path, module in some)]
    return list(dict.fromkeys(module for some in found for _, module in some))


def round_inputs(x: Tensor) -> Rounded:
    """The inputs of a layer, (…, columns), with a scale for each token and block of columns."""
    x = x.float()
    parts = torch.split(x, COLUMNS, -1)
    most = torch.cat([part.abs().amax(-1, keepdim=True) for part in parts], -1)
    is_zero = most < _SMALLEST_INPUT
    inverses, scales = (ratio.masked_fill(is_zero, 0) for ratio in (_LARGEST / most, most / _LARGEST))
    numbers = torch.empty(x.shape, dtype=torch.int8, device=x.device)
    for part, inverse, into in zip(parts, torch.split(inverses, 1, -1), torch.split(numbers, COLUMNS, -1), strict=True):
        into.copy_((part * inverse).round_())
    return Rounded(numbers, scales)


def round_weight(weight: Tensor) -> Rounded:
    """A weight in fp32, (rows, columns), with a scale for each row.

    As `quads.for_bytes` does it, except for a row of a full matrix that fewer steps represent exactly.
    """
    own = weight.abs().amax(1, keepdim=True) / _LARGEST
    # A sparse matrix has one scale for all rows, divided by the largest power of 4 that keeps a row in range.
    unit = own.amax().bfloat16().double()
    steps = _powers_of_4(unit / own).minimum(_powers_of_4(unit / float(SMALLEST_SCALE))).clamp_min(0)
    quads = pad(weight != 0, (0, -weight.shape[1] % 4)).contiguous().view(torch.int32)
    is_full = quads.count_nonzero() > FILLED * quads.numel()
    scales = torch.where(is_full, own, (unit * 0.25**steps).float()).bfloat16().float()
    scales = scales.masked_fill((own == 0) | (scales < float(SMALLEST_SCALE)), 0)
    numbers = (weight / scales.masked_fill(scales == 0, torch.inf)).round_().clamp_(-_LARGEST, _LARGEST)
    return Rounded(numbers.to(torch.int8), scales)


@contextmanager
def int8_simulated(model: nn.Module) -> Iterator[None]:
    """A context in which a dense model in evaluation mode computes as the sparse runtime with int8 activations does if
    it rounds all layers that it may."""
    layers = rounded_layers(model)
    for layer in layers:
        turned = isinstance(layer, Conv1D)
        weight = layer.weight.detach().t() if turned else layer.weight.detach()
        values = torch.from_numpy(rounded_weight(Elements.of(weight.cpu().numpy()))).to(weight.device)
        layer.forward = partial(_forward, values, layer.bias)  # type: ignore[method-assign]
    try:
        with attention16_simulated(model):
            yield
    finally:
        for layer in layers:
            del layer.forward


def _forward(weight: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    return linear(round_inputs(x).values(), weight, bias)


def _powers_of_4(ratios: Tensor) -> Tensor:
    """The exponent of the largest power of 4 up to each ratio."""
    return (torch.frexp(ratios).exponent - 1).div(2, rounding_mode="floor").double()
