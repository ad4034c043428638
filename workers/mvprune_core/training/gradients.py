"""The gradients of one batch: in parts, on all ranks, with the terms of a teacher."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mvprune_core.base.group import ALONE, Group, sum_gradients
from mvprune_core.base.settings import Settings
from mvprune_core.base.state import random_states, set_random_states
from mvprune_core.pruning.reconstruction import InputMoments
from mvprune_core.tasks.batching import IGNORED, Examples, Indices, output_mask
from mvprune_core.tasks.losses import Loss, LossOfVectors
from mvprune_core.training.distillation import DistillationLoss
from mvprune_core.training.precision import autocast


@dataclass(kw_only=True, eq=False)
class BatchGradients:
    """Computes gradients of a model on batches of examples.

    Attributes:
        model: receives the gradients.
        forward: computes the model's outputs: the model itself, or compiled.
        examples: the training examples.
        loss: what is minimized, beside the terms of a teacher.
        settings: training settings.
        seed: seed of what is random in a batch.
        distillation: the loss with a teacher.
        group: the ranks that share a batch.
    """

    model: nn.Module
    forward: Callable[..., Any]
    examples: Examples
    loss: Loss
    settings: Settings
    seed: int
    distillation: DistillationLoss | None = None
    group: Group = ALONE

    def compute(self, indices: Indices, step: int, *sample: int, moments: InputMoments | None = None) -> Tensor:
        """Adds the gradients of one batch, of which each rank reads every n-th part. Returns its loss.

        Args:
            indices: the batch.
            step: the number of the training step.
            sample: a number, if several batches are read in one step.
            moments: read the inputs of layers.
        """
        device = next(self.model.parameters()).device
        total = torch.zeros((), device=device)
        whole = self.examples.batch(indices, device, np.random.default_rng((self.seed, step, *sample)))
        group = self.group
        count = min(self.settings.accumulation_steps * group.size, len(indices))
        # Split after padding and masking, so that the parts have the gradients of the whole.
        parts = np.array_split(indices, count)
        columns = (
            torch.split(column, [len(column) // len(indices) * len(part) for part in parts])
            for column in whole.values()
        )
        batches = [dict(zip(whole, values, strict=True)) for values in zip(*columns, strict=True)]
        outputs = {"output_hidden_states": True} if self.distillation and self.distillation.hidden else {}
        shares = _shares(batches, per_token=self.examples.per_token)
        cached = self._cached(self.loss, whole, batches) if isinstance(self.loss, LossOfVectors) and count > 1 else None
        every = [*enumerate(zip(parts, batches, *shares, strict=True))]
        for own, (number, (part, batch, label_share, logits_share)) in enumerate(every[group.rank :: group.size]):
            inputs = self._inputs(batch)
            if moments is not None:
                moments.begin_part(own, batch.get("attention_mask"))
            if cached is not None:
                set_random_states(cached.states[number], device)
            with autocast(device, self.settings.precision):
                output = self.forward(**inputs, **outputs)
                loss = self.loss(output, batch) * label_share if cached is None else cached.part(output, number)
            if self.distillation is not None:
                loss = self.distillation.loss(loss, output, inputs, part, logits_share)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        if moments is not None:
            moments.end_batch(whole["input_ids"].numel())
        if group.size > 1:
            sum_gradients(group, self.model, total)
        return total

    def _inputs(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: column for name, column in batch.items() if name not in self.loss.labels}

    def _cached(
        self, loss: LossOfVectors, whole: Mapping[str, Tensor], batches: Sequence[Mapping[str, Tensor]]
    ) -> _CachedGradients:
        """The loss of a whole batch and its gradients with respect to the vectors, which a first pass over the parts
        finds without keeping what a backward pass needs (GradCache, Gao et al. 2021, https://arxiv.org/abs/2101.06983,
        section 3.2). So the memory is that of a part, and the gradients are those of the whole."""
        device, group = whole["input_ids"].device, self.group
        states, found = dict[int, Mapping[str, Tensor]](), dict[int, Tensor]()
        for number in range(group.rank, len(batches), group.size):
            states[number] = random_states(device)
            with torch.no_grad(), autocast(device, self.settings.precision):
                found[number] = self.forward(**self._inputs(batches[number]))[loss.name].float()
        if group.size > 1:
            of_ranks = group.gather({number: vectors.cpu() for number, vectors in found.items()})
            found = {number: vectors.to(device) for some in of_ranks for number, vectors in some.items()}
        vectors = [found[number] for number in range(len(batches))]
        joined = torch.cat(vectors).requires_grad_()
        value = loss.of_vectors(joined, whole)
        (gradient,) = torch.autograd.grad(value, joined)
        return _CachedGradients(loss.name, value.detach(), torch.split(gradient, [*map(len, vectors)]), states)


@dataclass(frozen=True)
class _CachedGradients:
    """What is known of a batch before its parts have gradients.

    Attributes:
        name: of the model's output that the loss reads.
        value: the loss of the whole batch.
        gradients: of each part: that of the loss with respect to its vectors, shape (texts, width).
        states: by the number of a part that this rank reads, the random states before it, so that both passes have the
            same dropout.
    """

    name: str
    value: Tensor
    gradients: Sequence[Tensor]
    states: Mapping[int, Mapping[str, Tensor]]

    def part(self, output: Any, number: int) -> Tensor:
        """A part's share of the loss, with the gradients that the whole has through this part's vectors."""
        linear: Tensor = (output[self.name].float() * self.gradients[number]).sum()
        return linear - linear.detach() + self.value / len(self.gradients)


def _shares(
    batches: Sequence[Mapping[str, Tensor]], *, per_token: bool
) -> tuple[Sequence[float | Tensor], Sequence[float | Tensor]]:
    """The weights of parts of a batch in its loss: for the loss on labels, and for the loss on a teacher's logits.

    Both losses are means over examples. If tokens have labels, they are means over the labelled tokens and over all
    tokens that the model has an output for.
    """
    if per_token:
        labelled = torch.stack([batch["labels"].ne(IGNORED).sum() for batch in batches])
        attended = torch.stack([output_mask(batch).sum() for batch in batches])
        return list(labelled / labelled.sum()), list(attended / attended.sum())
    sizes = [len(batch["input_ids"]) for batch in batches]
    shares = [size / sum(sizes) for size in sizes]
    return shares, shares
