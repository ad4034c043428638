"""Results near what a constant answer scores, and losses that did not fall: signs of a run that was too short."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from mvprune.artifact.history import Phase
from mvprune.data.tasks import Task

_NEAR_LOSS = 0.05  # relative: a perplexity that is at most so much below that of a constant answer is near it
_FEWEST_POINTS = 20  # of a curve of losses: with fewer its ends say nothing
_REMEDY = "the run was likely too short, or its density too low; take more steps, or a higher density"


def above_constant(
    task: Task, metrics: Mapping[str, float], constants: Sequence[Mapping[str, float]]
) -> tuple[float, float] | None:
    """By how much a result is better than the best constant answer, and what that answer scores, in the unit of the
    task's primary metric; None where that is not known.

    Args:
        task: the task.
        metrics: of the result.
        constants: metrics of the constant answers, of `Objective.constant_metrics`.
    """
    name = task.primary_metric
    scores = [found[name] for found in constants if name in found]
    if name not in metrics or not scores:
        return None
    if name in task.kind.losses:
        best = min(scores)
        return best - metrics[name], best
    best = max(scores)
    return metrics[name] - best, best


def notes_on_result(
    task: Task, metrics: Mapping[str, float], constants: Sequence[Mapping[str, float]], examples: int
) -> Iterator[str]:
    """A note on a result that is near what a constant answer scores, or worse.

    Near is less than twice the standard error of a fraction of so many examples, 1 / √examples at most, and for a
    perplexity less than 5 %.

    Args:
        task, metrics, constants: see `above_constant`.
        examples: examples to evaluate on.
    """
    found = above_constant(task, metrics, constants)
    if found is None:
        return
    above, constant = found
    near = _NEAR_LOSS * constant if task.primary_metric in task.kind.losses else 1 / math.sqrt(examples)
    if above < near:
        name, how = task.primary_metric, "near" if above >= 0 else "worse than"
        yield f"the result has the {name} {metrics[name]:.4f}, {how} {constant:.4f} of a constant answer: {_REMEDY}"


def notes_on_loss(curve: Phase) -> Iterator[str]:
    """A note on a loss that did not fall: its mean in the last tenth of the steps is not below that in the first."""
    tenth = len(curve.loss) // 10
    if len(curve.loss) < _FEWEST_POINTS:
        return
    first, last = fmean(curve.loss[:tenth]), fmean(curve.loss[-tenth:])
    if last >= first:
        yield f"the loss did not fall over the run, from {first:.4g} to {last:.4g}: {_REMEDY}"
