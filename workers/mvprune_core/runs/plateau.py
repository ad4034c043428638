"""Results near what a constant answer scores or far below the dense model, and losses that did not fall: signs of a run
that was too short."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from mvprune.artifact.history import Phase
from mvprune.data.gains import KEPT_GAIN, MOST_GAIN, kept_gain
from mvprune.data.run_length import needed_steps
from mvprune.data.tasks import Task
from mvprune.spec.method_choice import choose_method
from mvprune_core.runs.resolved import ResolvedRun

_OF_METHODS = ("pattern", "structure", "structure_density")
_NEAR_LOSS = 0.05  # relative: a perplexity that is at most so much below that of a constant answer is near it
_FEWEST_POINTS = 20  # of a curve of losses: with fewer its ends say nothing
_CAUSE = "the run was likely too short, or its density too low"


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
    remedy: str,
) -> Iterator[str]:
    """A note on a result that is near what a constant answer scores, or worse; on a pruned model that keeps less than
    `MOST_GAIN` of the dense model's gain over a constant answer; or on one of which that is not known.

    Near is less than twice the standard error of a fraction of so many examples, 1 / √examples at most, and for a
    perplexity less than 5 %.

    Args:
        task, metrics, constants: see `above_constant`.
        examples: examples to evaluate on.
        dense: the metrics of the dense model; None: it was not evaluated.
        is_pruned: whether the result is a pruned model, not the dense one.
        remedy: what would help, see `what_helps`.
    """
    found = above_constant(task, metrics, constants)
    if found is None:
        return
    above, constant = found
    name = task.primary_metric
    value, is_loss, of_dense = metrics[name], name in task.kind.losses, None if dense is None else dense.get(name)
    error = 1 / math.sqrt(examples)  # twice that of a fraction, at most
    near = _NEAR_LOSS * constant if is_loss else error
    beside = "" if of_dense is None else f" (dense model {of_dense:.4f})"
    if above < near:
        how = "near" if above >= 0 else "worse than"
        compared = f"{how} {constant:.4f} of a constant answer{beside}"
        yield f"the result has the {name} {value:.4f}, {compared}: {_CAUSE}; {remedy}"
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
        elif kept is not None and (kept < KEPT_GAIN or (kept < MOST_GAIN and not is_loss and of_dense - value > error)):
            cause = f"{_CAUSE}; " if kept < KEPT_GAIN else ""
            yield (
                f"the result keeps {kept:.0%} of the dense model's gain over a constant answer: {compared}; "
                f"{cause}{remedy}"
            )


def what_helps(run: ResolvedRun) -> str:
    """What would make a pruned model better, by the knowledge that chooses methods and judges run lengths."""
    spec, settings, data = run.spec, run.settings, run.data
    needed = needed_steps(
        run.density, settings.batch_size, has_pairs=data.task.kind.has_pairs(data), fine_tuned=run.fine_tuned
    )
    steps = f"more steps (about {needed:,})" if run.total_steps < needed else "more steps"
    helps = [steps, "a higher density" if run.density < 1 else "another learning rate"]
    if run.given_mask is None and run.density < 1:
        given = {name: value for name in _OF_METHODS if (value := getattr(spec, name)) is not None}
        given |= {"density": run.density, "batch_size": settings.batch_size}
        best = choose_method(given, data.task, run.total_steps).method
        helps += [f"the method {best}"] if best != run.method.name else []
        if spec.pattern is None and spec.structure is None:
            helps.append("the pattern 1x4, with which three times the density is about as fast")
    return f"what helps: {', '.join(helps)}"


def notes_on_loss(curve: Phase, remedy: str) -> Iterator[str]:
    """A note on a loss that did not fall: its mean in the last tenth of the steps is not below that in the first."""
    tenth = len(curve.loss) // 10
    if len(curve.loss) < _FEWEST_POINTS:
        return
    first, last = fmean(curve.loss[:tenth]), fmean(curve.loss[-tenth:])
    if last >= first:
        yield f"the loss did not fall over the run, from {first:.4g} to {last:.4g}: {_CAUSE}; {remedy}"
