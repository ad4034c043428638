"""Masked weights: the model's own parameters are W' = M ⊙ W; W and the scores S stand beside it.

    scores S ── M = select(S) ──┐            after the backward pass, with G = ∂L/∂W':
                                ⊙── W' ── the plain model      ∂L/∂W = G ⊙ M
    weight W ───────────────────┘                              ∂L/∂S = G ⊙ W   (straight-through)

The model is not wrapped: its layers multiply by W' as they always do, so that any architecture, autocast, compilation
and gradient checkpointing work as without pruning, and whatever evaluates or saves the model sees the zeros.

Memory is shared: during the optimizer step W' holds ∂L/∂S, and M is where W' is not 0. So fine-pruning needs, beside
what dense fine-tuning does, W, S and AdamW's two moments of S: 16 bytes a weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from mvprune_core.elementwise import in_parallel, multiply, share_gradient
from mvprune_core.families import prunable_layers
from mvprune_core.methods.base import Gated, Matrix, Method, Moment, generator_of

_NO_MASK = torch.empty(0, dtype=torch.bool)
# In place of 0, which would pass for masked: a model that was pruned before may get weights back.
_ALMOST_ZERO = 1e-30
# Of the mean over all matrices. One that starts at 0, or nearly, would be the most important as soon as it moves.
_LEAST_SCALE = 0.1


class Masks:
    """All masks of one model.

    Masked weights keep their value underneath: a weight whose score recovers comes back as it was, moved only by
    momentum and weight decay meanwhile.

    Args:
        model: pruned in place; on the device it is to be trained on.
        method: gives the scores and the schedule.
        target: density at the end of the schedule.
        total_steps: length of the run.
        seed: of random scores and gates, and decides between equal scores.
        layers: which layers are pruned; by default `prunable_layers`.

    Raises:
        CompressionError: UNSUPPORTED_ARCHITECTURE, see `prunable_layers`.
    """

    def __init__(
        self,
        model: nn.Module,
        method: Method,
        *,
        target: float,
        total_steps: int,
        seed: int,
        layers: Mapping[str, nn.Linear | Conv1D] | None = None,
    ) -> None:
        self.method = method.for_run(total_steps)
        self._gated = self.method if isinstance(self.method, Gated) else None
        self._moment = Moment(0, total_steps, target, seed)
        self._control: dict[str, Tensor] = {}
        chosen = prunable_layers(model) if layers is None else layers
        means = torch.stack([layer.weight.detach().abs().mean() for layer in chosen.values()])
        scales = torch.maximum(means, _LEAST_SCALE * means.mean()).clamp_min(torch.finfo().tiny)
        self.matrices = [
            _matrix(f"{name}.weight", layer.weight, scale, self.method, generator_of(seed, index, device=scale.device))
            for index, ((name, layer), scale) in enumerate(zip(chosen.items(), scales, strict=True))
        ]
        self.renew(0)

    @property
    def weight_names(self) -> tuple[str, ...]:
        """Names of the pruned weights in the model."""
        return tuple(matrix.name for matrix in self.matrices)

    @property
    def weights(self) -> Mapping[nn.Parameter, nn.Parameter]:
        """W of every pruned parameter W' of the model."""
        return {matrix.masked: matrix.weight for matrix in self.matrices}

    @property
    def scores(self) -> list[nn.Parameter]:
        """The learned scores; empty where the method learns none."""
        return [matrix.scores for matrix in self.matrices if matrix.scores is not None]

    @property
    def density(self) -> float:
        """Fraction of the weights that the masks keep now. Waits for the device with methods of emergent density."""
        return float(self._moment.density)

    @property
    def scheduled_density(self) -> float:
        """The density that the schedule gives now. Never waits for the device."""
        return self._moment.scheduled(self.method.schedule)

    def score_groups(self) -> list[dict[str, Any]]:
        """The optimizer's groups of the scores."""
        if not self.scores:
            return []
        return [{"params": self.scores, "lr": self.method.score_learning_rate, "weight_decay": 0.0}]

    def take_gradients(self) -> None:
        """Turns the gradients of W', of one backward pass or the sum of several, into those of W and S.

        The model's pruned parameters are without gradient afterwards, and hold no weights until `renew`.
        """

        def take(_: int, matrix: Matrix) -> None:
            grad = matrix.masked.grad
            if grad is None:
                return
            if self._gated is not None:
                multiply(grad, matrix.weight, matrix.masked)
                multiply(matrix.masked, self._gated.slope(matrix.mask), matrix.masked)
                multiply(grad, matrix.mask, grad)
            elif matrix.scores is None:
                if not self._dense:
                    multiply(grad, matrix.kept, grad)
            elif self._dense:
                multiply(grad, matrix.weight, matrix.masked)
            else:
                share_gradient(grad, matrix.weight, matrix.masked)
            if matrix.scores is not None:
                matrix.scores.grad = matrix.masked.detach()
            matrix.weight.grad, matrix.masked.grad = grad, None

        in_parallel(take, self.matrices)
        self.method.add_penalty(self.matrices, self._moment, self._control)

    def renew(self, step: int) -> None:
        """Renews masks and W' after `step` updates. Never waits for the device."""
        self._moment = replace(self._moment, step=step)
        with self._room_for_masks():
            density = self.method.renew(self.matrices, self._moment, self._control)
            self._moment = replace(self._moment, density=density)
            self._write()

    @contextmanager
    def settled(self) -> Iterator[None]:
        """A context to evaluate and to store in: W' is what the method gives in the end, without noise."""
        if self._gated is None:
            yield
            return
        noisy = [matrix.mask.clone() for matrix in self.matrices]
        self._gated.settle(self.matrices, self._control)
        self._write()
        try:
            yield
        finally:
            for matrix, mask in zip(self.matrices, noisy, strict=True):
                matrix.mask.copy_(mask)
            self._write()

    def finish(self) -> None:
        """Writes the final W'. Nothing else is left to do: the model is plain, with zeros."""
        if self._gated is not None:
            self._gated.settle(self.matrices, self._control)
            self._write()

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint needs beside the model's and the optimizer's state, by name."""
        kept = {f"control.{name}": value for name, value in self._control.items()}
        for matrix in self.matrices:
            kept[f"weight.{matrix.name}"] = matrix.weight.detach()
            kept[f"mask.{matrix.name}"] = matrix.kept if self._gated is None else matrix.mask
            if matrix.scores is not None:
                kept[f"scores.{matrix.name}"] = matrix.scores.detach()
        return kept

    def restore(self, state: Mapping[str, Tensor], step: int, density: float) -> None:
        """Takes back what `state` gave after `step` updates, when the density was `density`."""
        prefix = "control."
        device = self.matrices[0].weight.device
        self._control = {
            name.removeprefix(prefix): value.to(device) for name, value in state.items() if name.startswith(prefix)
        }
        self._moment = replace(
            self._moment, step=step, density=density if self._gated is None else torch.tensor(density)
        )
        with self._room_for_masks():
            for matrix in self.matrices:
                matrix.weight.detach().copy_(state[f"weight.{matrix.name}"])
                matrix.mask.copy_(state[f"mask.{matrix.name}"])
                if matrix.scores is not None:
                    matrix.scores.detach().copy_(state[f"scores.{matrix.name}"])
            self._write()

    @property
    def _dense(self) -> bool:
        density = self._moment.density
        return not isinstance(density, Tensor) and density == 1

    @contextmanager
    def _room_for_masks(self) -> Iterator[None]:
        """Hard masks are there while W' is written, when no gradients are; they would cost a byte a weight."""
        if self._gated is not None:
            yield
            return
        for matrix in self.matrices:
            matrix.mask = torch.empty_like(matrix.weight, dtype=torch.bool, requires_grad=False)
        yield
        for matrix in self.matrices:
            matrix.mask = _NO_MASK

    def _write(self) -> None:
        def write(_: int, matrix: Matrix) -> None:
            if self._dense:
                matrix.masked.detach().copy_(matrix.weight.detach())
            else:
                multiply(matrix.weight, matrix.mask, matrix.masked)

        in_parallel(write, self.matrices)


def _matrix(name: str, masked: Tensor, scale: Tensor, method: Method, generator: torch.Generator) -> Matrix:
    if not isinstance(masked, nn.Parameter):
        raise TypeError(f"{name} is computed, not a parameter")
    weight = nn.Parameter(masked.detach().clone(memory_format=torch.contiguous_format))
    weight.detach().masked_fill_(weight.detach() == 0, _ALMOST_ZERO)
    scores = nn.Parameter(method.scores(weight.detach(), generator)) if method.learned else None
    mask = torch.ones_like(weight, dtype=torch.float32, requires_grad=False) if isinstance(method, Gated) else _NO_MASK
    return Matrix(name, weight, masked, scores, mask, scale)
