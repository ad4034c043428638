"""How far the outputs of a model are from those that it had before its values were rounded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from mvprune_core.tasks.batching import Indices
from mvprune_core.tasks.outputs import DistilledOutput
from mvprune_core.training.distillation import STARTS

SAMPLED = 512
"""Examples that outputs are compared on, at most: all logits count, so that far fewer are needed than for a metric."""

_TOGETHER = 64  # examples


def sample(count: int) -> Indices:
    """Indices of at most `SAMPLED` of `count` examples, evenly spaced."""
    return np.linspace(0, count - 1, min(count, SAMPLED)).round().astype(np.int64)


def divergence(found: Mapping[str, Tensor], before: Mapping[str, Tensor], outputs: Sequence[DistilledOutput]) -> float:
    """The mean, over examples and outputs, of KL(softmax(t) ‖ softmax(s)) in nats, for logits s now and t before. For
    regression it is the mean of (t − s)².

    Args:
        found: what `compute_teacher_logits` returns for the model now.
        before: the same, for the same examples, before its values were rounded.
        outputs: those that both were computed for.
    """
    total, examples = 0.0, 0
    for each in outputs:
        starts = before[each.name + STARTS]
        counts = starts.diff()
        for indices in torch.split(counts.nonzero().flatten(), _TOGETHER):
            now, then = (_padded(of[each.name], starts, indices) for of in (found, before))
            attended = torch.arange(then.shape[1]) < counts[indices, None]
            rows = (now, then) if each.per_token else (now[:, 0], then[:, 0])
            total += each.loss(*rows, attended, temperature=1.0).item() * len(indices)
            examples += len(indices)
    return total / examples


def _padded(rows: Tensor, starts: Tensor, indices: Tensor) -> Tensor:
    """Float32, shape (examples, most rows of one, …)."""
    parts = [rows[starts[index] : starts[index + 1]] for index in indices]
    return nn.utils.rnn.pad_sequence(parts, batch_first=True).float()
