"""Masked weights: which matrices are pruned, and how a mask stands between a weight and the layer that uses it.

    weight W ──────┐
                   ⊙── W' ── F.linear(x, W', b)        mask M = select(S), renewed once a step
    scores S ─ M ──┘

The layer is wrapped by `torch.nn.utils.parametrize`, never rewritten, so any model made of `nn.Linear` (or of GPT-2's
`Conv1D`) can be pruned.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from transformers.pytorch_utils import Conv1D

from mvprune_core.errors import CompressionError, Reason
from mvprune_core.methods import Method
from mvprune_core.selection import kept_count, select_top


def in_block(name: str) -> bool:
    """Whether a dotted name lies inside a numbered block, as in `encoder.layer.0.output.dense`: the encoder."""
    return any(part.isdecimal() for part in name.split("."))


def prunable_layers(model: nn.Module) -> dict[str, nn.Linear | Conv1D]:
    """The layers whose weights are pruned: every `nn.Linear` and `Conv1D` inside a numbered block, by name.

    Embeddings, norms, biases, pooler and task head are outside. A layer used several times (ALBERT) counts once.

    Raises:
        CompressionError: UNSUPPORTED_ARCHITECTURE, the model has no such layer.
    """
    layers = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear | Conv1D) and in_block(name)
    }
    if not layers:
        raise CompressionError(
            Reason.UNSUPPORTED_ARCHITECTURE,
            f"{type(model).__name__} has no nn.Linear inside a numbered block (such as encoder.layer.0), so there is "
            "nothing to prune; give a Transformer encoder or decoder",
        )
    return layers


class _StraightThrough(torch.autograd.Function):
    """W' = M ⊙ W. With G = ∂L/∂W': ∂L/∂W = G ⊙ M and ∂L/∂S = G ⊙ W, as though selecting were the identity."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, scores: Tensor | None, mask: Tensor | None) -> Tensor:
        ctx.save_for_backward(weight, mask)
        return weight.view_as(weight) if mask is None else weight * mask

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        weight, mask = ctx.saved_tensors
        to_weight, to_scores, _ = ctx.needs_input_grad
        grad_scores = grad * weight if to_scores else None
        if not to_weight:
            return None, grad_scores, None
        return grad if mask is None else grad * mask, grad_scores, None


class MaskedWeight(nn.Module):
    """The parametrization of one weight.

    `mask` has the shape of the weight; it is float32, which multiplies faster than bool, and not in the state dict.
    """

    mask: Tensor

    def __init__(self, weight: Tensor, method: Method) -> None:
        super().__init__()
        self.scores = nn.Parameter(method.scores(weight)) if method.learned else None
        self.register_buffer("mask", torch.ones_like(weight, dtype=torch.float32), persistent=False)
        self.dense = True  # nothing is masked: the multiplication is left out

    def forward(self, weight: Tensor) -> Tensor:
        masked: Tensor = _StraightThrough.apply(  # type: ignore[no-untyped-call]
            weight, self.scores, None if self.dense else self.mask
        )
        return masked


class Masks:
    """All masks of one model.

    Masked weights keep their value underneath: a weight whose score recovers comes back as it was, moved only by
    momentum and weight decay meanwhile. Zeros are made by `fold`, and the forward pass sees zeros all along.

    Args:
        model: wrapped in place.
        method: gives the scores and the schedule.
        target: density at the end of the schedule.
        seed: decides between equal scores.

    Attributes:
        density: fraction of the weights that the masks keep now.

    Raises:
        CompressionError: UNSUPPORTED_ARCHITECTURE, see `prunable_layers`.
    """

    def __init__(self, model: nn.Module, method: Method, *, target: float, seed: int) -> None:
        self.method = method
        self.target = target
        self.seed = seed
        self.density = 1.0
        self._matrices = [_wrap(name, layer, method) for name, layer in prunable_layers(model).items()]

    @property
    def weight_names(self) -> tuple[str, ...]:
        """Names of the pruned weights in the plain model."""
        return tuple(f"{matrix.layer_name}.weight" for matrix in self._matrices)

    @property
    def scores(self) -> list[nn.Parameter]:
        """The learned scores; empty where the method learns none."""
        return [matrix.masked.scores for matrix in self._matrices if matrix.masked.scores is not None]

    def follow_schedule(self, step: int, total_steps: int) -> None:
        """Renews every mask for the density due after `step` of `total_steps` updates."""
        self.select(self.method.schedule.density(step, total_steps, self.target))

    def select(self, density: float) -> None:
        """Renews every mask: ⌊density · n⌋ weights of each matrix are kept. Never waits for the device."""

        def renew(index: int, matrix: _Matrix) -> None:
            weight, masked = matrix.weight, matrix.masked
            count = kept_count(weight.numel(), density)
            masked.dense = count == weight.numel()
            if not masked.dense:
                scores = self.method.scores(weight) if masked.scores is None else masked.scores
                select_top(scores, count, masked.mask, self.seed + index)

        # numpy's selection runs on one core and releases the interpreter: matrices are shared out among the cores.
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            for job in [pool.submit(renew, index, matrix) for index, matrix in enumerate(self._matrices)]:
                job.result()
        self.density = density

    def once_per_pass(self) -> AbstractContextManager[None]:
        """A context for one forward pass, within which a layer that is used several times is masked once."""
        return parametrize.cached()

    def fold(self) -> None:
        """Writes W ← M ⊙ W and removes the wrapping: a plain model with zeros is left."""
        for matrix in self._matrices:
            if not matrix.masked.dense:
                with torch.no_grad():
                    matrix.weight.mul_(matrix.masked.mask)
            parametrize.remove_parametrizations(matrix.layer, "weight", leave_parametrized=False)


@dataclass(frozen=True)
class _Matrix:
    """One pruned weight: the layer that has it, the weight underneath, and its parametrization."""

    layer_name: str
    layer: nn.Module
    weight: Tensor
    masked: MaskedWeight


def _wrap(name: str, layer: nn.Linear | Conv1D, method: Method) -> _Matrix:
    weight = layer.weight
    masked = MaskedWeight(weight, method)
    parametrize.register_parametrization(layer, "weight", masked)
    return _Matrix(name, layer, weight, masked)
