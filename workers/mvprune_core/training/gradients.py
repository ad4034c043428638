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
from mvprune_core.pruning.reconstruction import InputMoments
from mvprune_core.tasks.batching import IGNORED, Examples, Indices, output_mask
from mvprune_core.tasks.losses import Loss
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
        every = [*zip(parts, batches, *shares, strict=True)]
        for part, batch, label_share, logits_share in every[group.rank :: group.size]:
            inputs = {name: column for name, column in batch.items() if name not in self.loss.labels}
            if moments is not None:
                moments.attended = batch.get("attention_mask")
            with autocast(device, self.settings.precision):
                output = self.forward(**inputs, **outputs)
                loss = self.loss(output, batch)
            loss = loss * label_share
            if self.distillation is not None:
                loss = self.distillation.loss(loss, output, inputs, part, logits_share)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        if group.size > 1:
            sum_gradients(group, self.model, total)
        return total


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
