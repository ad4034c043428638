"""Results near what a constant answer scores or far below the dense model, and losses that did not fall: signs of a run
that was too short."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from mvprune.artifact.history import Phase
from mvprune.data.gains import KEPT_GAIN, kept_gain
from mvprune.data.tasks import Task

_NEAR_LOSS = 0.05  # relative: a perplexity that is at most so much below that of a constant answer is near it
_FEWEST_POINTS = 20  # of a curve of losses: with fewer its ends say nothing
_REMEDY = "the run was likely too short, or its density too low; take more steps, another method or a higher density"


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
    task: Task,
    metrics: Mapping[str, float],
    constants: Sequence[Mapping[str, float]],
    examples: int,
    dense: Mapping[str, float] | None = None,
    *,
    is_pruned: bool,
) -> Iterator[str]:
    """A note on a result that is near what a constant answer scores, or worse; on a pruned model that keeps less than
    `KEPT_GAIN` of the dense model's gain over a constant answer; or on one of which that is not known.

    Near is less than twice the standard error of a fraction of so many examples, 1 / √examples at most, and for a
    perplexity less than 5 %.

    Args:
        task, metrics, constants: see `above_constant`.
        examples: examples to evaluate on.
        dense: the metrics of the dense model; None: it was not evaluated.
        is_pruned: whether the result is a pruned model, not the dense one.
    """
    found = above_constant(task, metrics, constants)
    if found is None:
        return
    above, constant = found
    name = task.primary_metric
    value, is_loss, of_dense = metrics[name], name in task.kind.losses, None if dense is None else dense.get(name)
    near = _NEAR_LOSS * constant if is_loss else 1 / math.sqrt(examples)
    beside = "" if of_dense is None else f" (dense model {of_dense:.4f})"
    if above < near:
        how = "near" if above >= 0 else "worse than"
        yield f"the result has the {name} {value:.4f}, {how} {constant:.4f} of a constant answer{beside}: {_REMEDY}"
    elif is_pruned and of_dense is None:
        yield f"no dense model was evaluated, so it is not known how much of its {name} the result keeps"
    elif is_pruned and of_dense is not None:
        kept = kept_gain(value, of_dense, constant, is_loss=is_loss)
        compared = f"the {name} is {value:.4f} (dense model {of_dense:.4f}, constant answer {constant:.4f})"
        is_worse = value > of_dense if is_loss else value < of_dense
        if kept is None and is_worse:
            yield (
                f"the dense model is hardly better than a constant answer, so it is not known what pruning lost: "
                f"{compared}; take more steps or another learning rate"
            )
        elif kept is not None and kept < KEPT_GAIN:
            yield f"the result keeps {kept:.0%} of the dense model's gain over a constant answer: {compared}; {_REMEDY}"


def notes_on_loss(curve: Phase) -> Iterator[str]:
    """A note on a loss that did not fall: its mean in the last tenth of the steps is not below that in the first."""
    tenth = len(curve.loss) // 10
    if len(curve.loss) < _FEWEST_POINTS:
        return
    first, last = fmean(curve.loss[:tenth]), fmean(curve.loss[-tenth:])
    if last >= first:
        yield f"the loss did not fall over the run, from {first:.4g} to {last:.4g}: {_REMEDY}"
