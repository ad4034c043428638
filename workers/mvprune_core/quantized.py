"""Embeddings in int8, where the task's metric loses next to nothing by it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn

from mvprune.artifact import Coding, round_values
from mvprune.artifact.base import Base
from mvprune.data.tasks import Task
from mvprune_core.state import tensors_of

TOLERANCE = 0.001
"""What the primary metric may lose by int8: 0.1 points; of a perplexity, that fraction."""


def round_matrices(model: nn.Module, pruned: Collection[str], coding: Coding, base: Base | None) -> dict[str, Tensor]:
    """Rounds a model, in place, whose values are rounded to another coding of the matrices that are not pruned.

    Args:
        model, pruned, coding, base: see `round_values`.

    Returns:
        the matrices that it changed, as they were. Those of the base model do not change.
    """
    matrices = {name: tensor for name, tensor in tensors_of(model).items() if tensor.dim() > 1 and name not in pruned}
    before = {name: tensor.clone() for name, tensor in matrices.items()}
    round_values(model, pruned, coding, base)
    return {name: tensor for name, tensor in before.items() if not torch.equal(tensor, matrices[name])}


def is_worth_it(task: Task, before: Mapping[str, float], after: Mapping[str, float]) -> bool:
    """Whether the primary metric loses at most `TOLERANCE` from metrics `before` to `after`."""
    old, new = before[task.primary_metric], after[task.primary_metric]
    if task.higher_is_better:
        return old - new <= TOLERANCE
    return new - old <= TOLERANCE * old
