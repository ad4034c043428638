"""Penalties that push scores down: λ · mean over matrices, or shared gates, of mean σ(S − shift)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mvprune_core.methods.base import PruningStep
from mvprune_core.pruning.elementwise import SigmoidPenalty
from mvprune_core.pruning.matrices import Gates
from mvprune_core.pruning.schedule import Schedule

_BERT_BASE_WEIGHTS = 84_934_656


def scheduled_penalty(
    gates: Sequence[Gates], given: float | None, of_bert_base: float, schedule: Schedule, step: PruningStep
) -> SigmoidPenalty | None:
    """λ · mean over matrices of mean σ(S), where λ grows to `strength` as the density falls; None while it is 0."""
    factor = strength(given, of_bert_base, gates) * ramp(schedule, step)
    return SigmoidPenalty.over(gates, torch.tensor(factor), 0.0) if factor else None


def strength(given: float | None, of_bert_base: float, gates: Sequence[Gates]) -> float:
    """λ: `given`, or by default `of_bert_base` scaled so that the penalty per weight is that of BERT-base."""
    if given is not None:
        return given
    return of_bert_base * sum(some.weights for some in gates) / _BERT_BASE_WEIGHTS


def ramp(schedule: Schedule, step: PruningStep) -> float:
    """Rises from 0 to 1 as the density falls from 1 to its final value."""
    if step.density == 1:
        return 0.0
    return (1 - step.scheduled_density(schedule)) / (1 - step.density)


def mean_sigmoid(gates: Sequence[Gates], shift: float, width: float) -> Tensor:
    """The mean of σ((S − shift) / width) over all weights that the gates open."""
    sums = [
        torch.sigmoid((some.scores.detach() - shift) / width).sum() * (some.weights // some.scores.numel())
        for some in gates
        if some.scores is not None
    ]
    return torch.stack(sums).sum() / sum(some.weights for some in gates)
