"""Masks: the model computes with W' = M ⊙ W, and its parameters are W; the scores S are kept beside it.

    scores S ── M = select(S) ──┐            after the backward pass, with G = ∂L/∂W':
                                ⊙── W' ── the layer        ∂L/∂W = G ⊙ M
    weight W ───────────────────┘                          ∂L/∂S = G ⊙ W   (straight-through)

W' exists for one layer at a time: it is formed in the layer's forward pass, and again in its backward pass (see
`MaskedLayers`). For evaluation and for saving, W' is written into the parameters, and the model is a plain model with
zeros.

Compared with dense fine-tuning, fine-pruning needs S, AdamW's two moments of S and a bit of M in addition, 12.1 bytes a
weight, and after the backward pass ∂L/∂S.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from mvprune_core.base.group import ALONE, Group
from mvprune_core.methods.base import Gated, Matrix, Method, PruningStep, generator_of
from mvprune_core.models.prunable import prunable_layers
from mvprune_core.pruning.elementwise import ScorePenalty, in_parallel, multiply, share_gradient
from mvprune_core.pruning.matrices import ALMOST_ZERO, Gates
from mvprune_core.pruning.packed_masks import pack
from mvprune_core.pruning.reconstruction import InputMoments
from mvprune_core.pruning.selectors import WEIGHTS, Selector
from mvprune_core.training.masked_layers import MaskedLayers

_NO_MASK = torch.empty(0, dtype=torch.bool)
# Times the mean over all matrices. The scores of a matrix that starts near 0 would otherwise grow out of proportion.
_LEAST_SCALE = 0.1


class Masks:
    """The masks of all pruned matrices of one model.

    W keeps the values of masked weights. A weight whose score recovers comes back with its old value, changed only by
    momentum and weight decay.

    Args:
        model: pruned in place, on the device that it is trained on.
        method: gives the scores and the schedule, with `for_run` applied.
        density: fraction of the weights to keep at the end of the schedule.
        total_steps: optimizer updates of the run.
        seed: seed of random scores and gates, and of the choice among equal scores.
        layers: the layers to prune; by default `prunable_layers`.
        given: masks that the method is given, by the name of the weight; bool.
        start: the masks to begin with, by the name of the weight; bool; for a method with `takes_start`. None: nothing
            is masked at the start.
        selector: which weights stay at a density, for a method that ranks weights.

    Raises:
        CompressionError: UNSUPPORTED_ARCHITECTURE, see `prunable_layers`.
    """

    def __init__(
        self,
        model: nn.Module,
        method: Method,
        *,
        density: float,
        total_steps: int,
        seed: int,
        layers: Mapping[str, nn.Linear | Conv1D] | None = None,
        given: Mapping[str, Tensor] | None = None,
        start: Mapping[str, Tensor] | None = None,
        selector: Selector = WEIGHTS,
    ) -> None:
        self.method = method
        self._gated = self.method if isinstance(self.method, Gated) else None
        self._step = PruningStep(0, total_steps, selector.nearest(density), seed, selector=selector)
        self._control: dict[str, Tensor] = {}
        chosen = prunable_layers(model) if layers is None else layers
        means = torch.stack([layer.weight.detach().abs().mean() for layer in chosen.values()])
        scales = torch.maximum(means, _LEAST_SCALE * means.mean()).clamp_min(torch.finfo().tiny)
        self.matrices = [
            _matrix(f"{name}.weight", layer, scale, self.method)
            for (name, layer), scale in zip(chosen.items(), scales, strict=True)
        ]
        for matrix in self.matrices:
            matrix.given = given[matrix.name].to(scales.device) if given is not None else None
        self._shared = selector.shared_gates(self.matrices) if self._gated is not None else []
        if method.learned:
            self._add_scores(seed)
        self._layers = MaskedLayers(model, self.matrices)
        if start is not None:
            self._begin_with(start)
        self.update(0)

    @property
    def weight_names(self) -> tuple[str, ...]:
        """Names of the pruned weights in the model."""
        return tuple(matrix.name for matrix in self.matrices)

    @property
    def weights(self) -> list[nn.Parameter]:
        """W of all pruned matrices."""
        return [matrix.weight for matrix in self.matrices]

    @property
    def scores(self) -> list[nn.Parameter]:
        """The learned scores; empty if the method learns none."""
        return [some.scores for some in self._gates if some.scores is not None]

    @property
    def current_density(self) -> float:
        """Fraction of the weights that the masks keep now. Synchronizes with the device for `Gated` methods."""
        return float(self._step.current_density)

    @property
    def scheduled_density(self) -> float:
        """The density that the schedule gives now, or that final masks have. Never synchronizes with the device."""
        if self.final:
            return self.current_density
        return self._step.scheduled_density(self.method.schedule)

    @property
    def final(self) -> bool:
        """Whether the zeros of W' stay until the end, and gradients of masked weights are not used."""
        return not self._dense and self.method.mask_is_final(self._step)

    def score_groups(self) -> list[dict[str, Any]]:
        """Parameter groups of the scores for the optimizer."""
        if not self.scores:
            return []
        return [{"params": self.scores, "lr": self.method.score_learning_rate, "weight_decay": 0.0}]

    def backward(self) -> None:
        """Turns the gradients of W', which the pruned parameters have, into gradients of W and S.

        To be called after one backward pass, or several accumulated ones. Once the masks are final, scores have no
        gradient any more.
        """
        final = self.final
        penalty = self.method.penalty_on_scores(self._gates, self._step, self._control)
        of_scores: dict[str, Tensor] = {}

        def penalty_of(gates: Gates) -> ScorePenalty | None:
            return None if penalty is None else penalty.of(gates)

        def add_penalty(gates: Gates, grad: Tensor | None) -> None:
            if (own := penalty_of(gates)) is not None and grad is not None:
                own.add_to(grad)

        def split_gradient(_: int, matrix: Matrix) -> None:
            grad, weight, bits = matrix.weight.grad, matrix.weight, matrix.applied
            if grad is None:
                return
            self.method.observe(matrix, grad, self._step)
            if self._gated is None and (matrix.scores is None or final):
                if bits is not None:
                    multiply(grad, matrix.kept, grad)
            else:
                found = torch.empty_like(weight, requires_grad=False)
                if self._gated is not None:
                    multiply(grad, weight, found)
                    multiply(found, self._gated.mask_grad(matrix.mask), found)
                    multiply(grad, matrix.mask, grad)
                    add_penalty(matrix, found)
                elif bits is None or self.method.freezes_weights:
                    multiply(grad, weight, found)
                    add_penalty(matrix, found)
                else:
                    share_gradient(grad, weight, bits, found, penalty_of(matrix))
                of_scores[matrix.name] = found
                if matrix.scores is not None:
                    matrix.scores.grad = found
            if self.method.freezes_weights:
                weight.grad = None

        in_parallel(split_gradient, self.matrices)
        for shared in self._shared:
            shared.collect_gradient(of_scores)
            if shared.scores is not None:
                add_penalty(shared, shared.scores.grad)

    def update(self, step: int, report: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Updates masks after `step` optimizer updates. See `Method.update_masks` on synchronization, and
        `PruningStep.report`."""
        self._step = replace(self._step, number=step, report=report)
        with self._room_for_masks():
            if self._gated is not None:
                density = self._gated.update_masks(self._gates, self._step, self._control)
            else:
                density = self.method.update_masks(self.matrices, self._step, self._control)
            self._step = replace(self._step, current_density=density)
            self._apply()
        for matrix in self.matrices:
            matrix.samples.clear()

    def gradient_samples(self, step: int) -> int:
        """How many gradients the method samples before `update(step)`."""
        return self.method.gradient_samples(replace(self._step, number=step))

    @contextmanager
    def sampling(self, group: Group = ALONE) -> Iterator[InputMoments | None]:
        """A context of sampled batches, which the ranks of a group share, in which the inputs of layers are read; None:
        the method does not need them."""
        if not self.method.samples_inputs:
            yield None
            return
        with InputMoments(self._layers.owners, group) as moments:
            yield moments

    def add_sample(self) -> None:
        """Hands the gradient of W' to the method as a sample, and clears it."""
        self.method.add_sample(self.matrices, self._step)
        for matrix in self.matrices:
            matrix.weight.grad = None

    @contextmanager
    def finalized(self) -> Iterator[None]:
        """A context in which the model is plain, with the final form of W', without noise, to be evaluated or saved."""
        noisy = [some.mask.clone() for some in self._gates] if self._gated is not None else []
        self.finalize()
        try:
            yield
        finally:
            for some, mask in zip(self._gates if noisy else (), noisy, strict=True):
                some.mask.copy_(mask)
            self._write_shared()
            self._layers.form()

    def finalize(self) -> None:
        """Writes the final W' into the model. Afterwards it is a plain model with zeros."""
        if self._gated is not None:
            self._gated.finalize_masks(self._gates, self._control)
            self._write_shared()
        self._layers.write()

    def state(self) -> dict[str, Tensor]:
        """The tensors that a checkpoint needs in addition to the model's and the optimizer's state."""
        kept = {f"control.{name}": value for name, value in self._control.items()}
        for matrix in self.matrices:
            kept[f"weight.{matrix.name}"] = matrix.weight.detach()
            if self._gated is None and matrix.applied is not None:
                kept[f"mask.{matrix.name}"] = matrix.applied
            kept |= {f"buffers.{buffer}.{matrix.name}": value for buffer, value in matrix.buffers.items()}
        for some in self._gates:
            if self._gated is not None:
                kept[f"mask.{some.name}"] = some.mask
            if some.scores is not None:
                kept[f"scores.{some.name}"] = some.scores.detach()
        return kept

    def restore(self, state: Mapping[str, Tensor], step: int, current_density: float) -> None:
        """Restores what `state` returned after `step` updates, at `current_density`."""
        prefix = "control."
        device = self.matrices[0].weight.device
        self._control = {
            # Single values are used on the device, lists on the CPU.
            name.removeprefix(prefix): value.to(device) if value.dim() == 0 else value
            for name, value in state.items()
            if name.startswith(prefix)
        }
        density = current_density if self._gated is None else torch.tensor(current_density)
        self._step = replace(self._step, number=step, current_density=density)
        for matrix in self.matrices:
            matrix.weight.detach().copy_(state[f"weight.{matrix.name}"])
            for buffer, value in matrix.buffers.items():
                value.copy_(state[f"buffers.{buffer}.{matrix.name}"])
            if self._gated is None:
                matrix.applied = None if self._dense else state[f"mask.{matrix.name}"].to(device)
        for some in self._gates:
            if self._gated is not None:
                some.mask.copy_(state[f"mask.{some.name}"])
            if some.scores is not None:
                some.scores.detach().copy_(state[f"scores.{some.name}"])
        if self._gated is not None:
            self._apply()

    @property
    def _gates(self) -> Sequence[Gates]:
        """The parts with scores and a mask: the matrices, or the gates that their weights share."""
        return self._shared or self.matrices

    def _begin_with(self, masks: Mapping[str, Tensor]) -> None:
        for matrix in self.matrices:
            matrix.applied = pack(masks[matrix.name].to(matrix.weight.device))
        kept, total = (sum(int(mask.sum()) for mask in masks.values()), sum(matrix.weights for matrix in self.matrices))
        self._step = replace(self._step, start_density=kept / total, current_density=kept / total)

    def _add_scores(self, seed: int) -> None:
        def of(index: int, values: Tensor) -> nn.Parameter:
            return nn.Parameter(self.method.scores(values, generator_of(seed, index, device=values.device)))

        for index, shared in enumerate(self._shared):
            shared.scores = of(index, shared.mask)
        for index, matrix in enumerate([] if self._shared else self.matrices):
            matrix.scores = of(index, matrix.weight.detach())

    @property
    def _dense(self) -> bool:
        density = self._step.current_density
        return not isinstance(density, Tensor) and density == 1

    @contextmanager
    def _room_for_masks(self) -> Iterator[None]:
        """Bool masks exist only while masks are updated, when there are no gradients: they take a byte a weight."""
        if self._gated is not None:
            yield
            return
        for matrix in self.matrices:
            matrix.mask = torch.empty_like(matrix.weight, dtype=torch.bool, requires_grad=False)
        yield
        for matrix in self.matrices:
            matrix.mask = _NO_MASK

    def _apply(self) -> None:
        """Lets the layers compute with the masks."""
        self._write_shared()

        def apply(_: int, matrix: Matrix) -> None:
            if self._dense:
                matrix.applied = None
            elif self._gated is not None:
                matrix.applied = matrix.mask
            elif matrix.applied is None:
                matrix.applied = pack(matrix.mask)
            else:  # new bits would lie in other places every step, between which activations do not fit
                matrix.applied.copy_(pack(matrix.mask))

        in_parallel(apply, self.matrices)

    def _write_shared(self) -> None:
        for shared in self._shared:
            shared.write_masks()


def _matrix(name: str, layer: nn.Linear | Conv1D, scale: Tensor, method: Method) -> Matrix:
    weight = layer._parameters.get("weight")
    if weight is None:
        raise TypeError(f"{name} is computed, not a parameter")
    weight.data = weight.detach().contiguous()
    weight.detach().masked_fill_(weight.detach() == 0, ALMOST_ZERO)
    mask = torch.ones_like(weight, dtype=torch.float32, requires_grad=False) if isinstance(method, Gated) else _NO_MASK
    buffers = {buffer: torch.zeros_like(weight.detach(), dtype=torch.float32) for buffer in method.buffer_names}
    return Matrix(name, weight, None, mask, scale, buffers=buffers, inputs_first=isinstance(layer, Conv1D))
