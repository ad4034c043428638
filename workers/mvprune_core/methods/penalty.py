"""Penalties that push scores down: λ · mean over matrices, or shared gates, of mean σ(S − shift)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mvprune_core.elementwise import in_pieces
from mvprune_core.matrices import Gates
from mvprune_core.methods.base import Matrix, PruningStep
from mvprune_core.schedule import Schedule

_BERT_BASE_WEIGHTS = 84_934_656


def add_scheduled_penalty(
    matrices: Sequence[Matrix], given: float | None, of_bert_base: float, schedule: Schedule, step: PruningStep
) -> None:
    """Adds the gradient of λ · mean over matrices of mean σ(S), where λ grows to `strength` as the density falls."""
    factor = strength(given, of_bert_base, matrices) * ramp(schedule, step)
    add_sigmoid_gradient(matrices, torch.tensor(factor), shift=0.0)


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


def add_sigmoid_gradient(gates: Sequence[Gates], factor: Tensor, shift: float) -> None:
    """Adds factor · ∂/∂S of the weighted mean over gates of mean σ(S − shift) to the gradient of the scores."""
    total = sum(some.penalty_weight for some in gates)
    for one in gates:
        scores = one.scores
        if scores is not None and scores.grad is not None:
            each = factor / (total / one.penalty_weight * scores.numel())
            for some, grad in in_pieces(scores.detach(), scores.grad):
                opened = torch.sigmoid(some - shift if shift else some)
                grad.add_(opened.mul_(1 - opened).mul_(each))


def mean_sigmoid(gates: Sequence[Gates], shift: float, width: float) -> Tensor:
    """The mean of σ((S − shift) / width) over all weights that the gates open."""
    sums = [
        torch.sigmoid((some.scores.detach() - shift) / width).sum() * (some.weights // some.scores.numel())
        for some in gates
        if some.scores is not None
    ]
    return torch.stack(sums).sum() / sum(some.weights for some in gates)
