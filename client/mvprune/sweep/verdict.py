"""The recommendation of a sweep's results, and its reason, in words."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mvprune.common.metrics import ABOVE_CONSTANT, INT8_LATENCY_RATIO, TESTED, VALIDATION, Names, bounds, bounds_text
from mvprune.common.units import percent
from mvprune.data.tasks import LOSSES
from mvprune.spec.gate import Gate, GateResult, size_ratio
from mvprune.spec.gates import gate_text, observed_text
from mvprune.sweep.analysis import Choice, Group, Objective, Outcome, front, groups, missed, recommend

_DENSE = "dense/"
_MAX_EQUALS = 8
_COUNTS = ("density", "kept_weights", "encoder_nonzero", "dense_flops", "sparse_flops", "dense_bytes", "sparse_bytes")


@dataclass(frozen=True)
class Question:
    """The question of a sweep.

    Attributes:
        gates: what a recommended point must reach.
        objectives: what is to be large or small, the most important first; (): the most of the task's primary metric,
            the fewest bytes.
        worst: whether the worst of several seeds is compared with the gates, in place of their mean.
    """

    gates: tuple[Gate, ...] = ()
    objectives: tuple[Objective, ...] = ()
    worst: bool = False

    def objectives_for(self, primary_metric: str) -> tuple[Objective, ...]:
        """The objectives, or the default ones of a task."""
        return self.objectives or (
            Objective(f"eval/{primary_metric}", primary_metric not in LOSSES),
            Objective("bytes", maximize=False),
        )


@dataclass(frozen=True)
class Verdict:
    """The verdict on results.

    Attributes:
        front: numbers of the points that no other point dominates.
        choice: None without a result.
        text: what is recommended and why; "" without a result.
    """

    front: tuple[int, ...] = ()
    choice: Choice | None = None
    text: str = ""

    @property
    def passed(self) -> bool:
        """Whether a result passes all gates."""
        return self.choice is not None and self.choice.passed


def outcome(number: int, cell: Mapping[str, Any], result: Mapping[str, Any]) -> Outcome:
    """The values of one point.

    Args:
        result: its metrics, accounting and total_bytes, as of its artifact.
    """
    counts = result["accounting"]
    values = dict(result["metrics"]) | {name: counts[name] for name in _COUNTS if counts.get(name)}
    values["bytes"] = result["total_bytes"]
    return Outcome(number, cell, values | size_ratio(counts, values["bytes"]))


def with_differences(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes, those of dense models with their differences (delta/…) too. A job with density 1 has no dense model
    beside it: it is compared with the mean of the dense models of the points of the base model, or of all points where
    the model differs from point to point."""
    pruned = [one for one in outcomes if any(name.startswith(_DENSE) for name in one.values)]
    of_base = [one for one in pruned if "model" not in one.cell] or pruned
    found: dict[str, list[float]] = {}
    for one in of_base:
        for name, value in one.values.items():
            if name.startswith(_DENSE):
                found.setdefault(name.removeprefix(_DENSE), []).append(value)
    means = {metric: statistics.fmean(values) for metric, values in found.items()}
    compared = []
    for one in outcomes:
        missing = {
            f"delta/{metric}": one.values[f"eval/{metric}"] - mean
            for metric, mean in means.items()
            if f"delta/{metric}" not in one.values and f"eval/{metric}" in one.values
        }
        compared.append(replace(one, values={**one.values, **missing}))
    return compared


def judge(question: Question, outcomes: Sequence[Outcome], primary_metric: str) -> Verdict:
    """The front, and the point that is recommended.

    Args:
        primary_metric: of the task.
    """
    found = groups(with_differences(outcomes))
    objectives = question.objectives_for(primary_metric)
    choice = recommend(found, question.gates, objectives, worst=question.worst)
    if choice is None:
        return Verdict()
    best = tuple(sorted(one.number for group in front(found, objectives) for one in group.outcomes))
    equals = _about_equals(choice, found, primary_metric)
    text = _text(choice, question, primary_metric) + equals + _about_test(choice, primary_metric)
    return Verdict(best, choice, text)


def passes(question: Question, outcomes: Sequence[Outcome]) -> bool:
    """Whether the seeds of one cell pass all gates."""
    (group,) = groups(outcomes)
    return not missed(group, question.gates, worst=question.worst)


def _text(choice: Choice, question: Question, metric: str) -> str:
    """density 3.0 %, method movement: accuracy 0.8124, 1.30 points below dense, 4.2 MB; passes delta_accuracy>=-2"""
    group = choice.group
    cell = ", ".join(f"{name} {_shown(name, value)}" for name, value in group.cell.items()) or "the base"
    facts = [
        *_quality(group, metric),
        *_about_constant(group),
        *([f"{size / 1e6:.1f} MB"] if (size := group.mean("bytes")) is not None else []),
        *_speed(group),
    ]
    return f"{cell}: {', '.join(facts)}; {_about_gates(choice, question)}{_about_artifact(choice, metric)}"


def _about_constant(group: Group) -> list[str]:
    """Whether it has learned nothing, which gates on differences from a dense model that has not either cannot tell."""
    above = group.mean(ABOVE_CONSTANT)
    return ["no better than a constant answer"] if above is not None and above <= 0 else []


def _speed(group: Group) -> list[str]:
    """Whether it is faster than the unpruned model in int8, which is had without any training."""
    ratio = group.mean(INT8_LATENCY_RATIO)
    if ratio is None:
        return []
    rival = "the unpruned model in torch's int8"
    return [
        f"{ratio:.2f} times as fast as {rival}" if ratio > 1 else f"not faster than {rival} ({ratio:.2f} times as fast)"
    ]


def _about_artifact(choice: Choice, metric: str) -> str:
    """Whose artifact is downloaded, and what it reaches, where the values before are those of several seeds."""
    best = choice.outcome
    if len(choice.group.outcomes) == 1:
        return ""
    seed = f", seed {best.cell['seed']}" if "seed" in best.cell else ""
    quality = ", ".join(_quality(Group(best.cell, (best,)), metric))
    return f"; the artifact is of the best seed, point {best.number}{seed}: {quality}"


def _about_test(choice: Choice, metric: str) -> str:
    """What the artifact reaches on examples that the choice has not seen."""
    facts = _quality(Group(choice.group.cell, (choice.outcome,)), metric, TESTED)
    return f"; on the test examples {', '.join(facts)}" if facts else ""


def _quality(group: Group, metric: str, names: Names = VALIDATION) -> list[str]:
    value, difference = group.mean(f"{names.own}/{metric}"), group.mean(f"{names.delta}/{metric}")
    if value is None:
        return []
    facts = [f"{metric} {value:.4g}"]
    if difference is not None:
        side = "below" if difference < 0 else "above"
        is_loss = metric in LOSSES
        text = f"{abs(difference):.4g} {side}" if is_loss else f"{abs(100 * difference):.2f} points {side}"
        (best, *others), within = group.outcomes, ""
        if not others:  # the interval of a mean over seeds is not known
            form: dict[str, Any] = {} if is_loss else {"scale": 100, "digits": 2}
            within = bounds_text(best.values, metric, names, **form)
        facts.append(f"{text} dense{within}")
    return facts


def _about_equals(choice: Choice, found: Sequence[Group], metric: str) -> str:
    """The points whose difference from dense the examples cannot tell from that of the chosen one: theirs differ by no
    more than both intervals together allow. Differences from one dense model vary together, so that this is rather too
    many than too few."""
    own = _spread(choice.group, metric)
    others = [(one.outcomes[0].number, _spread(one, metric)) for one in found if one is not choice.group]
    equal = [number for number, of in others if own and of and abs(own[0] - of[0]) <= math.hypot(own[1], of[1])]
    if not equal:
        return ""
    shown = ", ".join(map(str, equal[:_MAX_EQUALS])) + ", …" * (len(equal) > _MAX_EQUALS)
    return f"; equal in {metric} as far as the examples tell (95 %): point{'s' * (len(equal) > 1)} {shown}"


def _spread(group: Group, metric: str) -> tuple[float, float] | None:
    """The difference from dense and half the width of its interval; None where it has none."""
    best, *others = group.outcomes
    within = bounds(best.values, metric)
    return None if others or within is None else (best.values[f"delta/{metric}"], (within[1] - within[0]) / 2)


def _about_gates(choice: Choice, question: Question) -> str:
    count = len(choice.group.outcomes)
    compared = "" if count == 1 else f" ({'worst' if question.worst else 'mean'} of {count} seeds)"
    if not question.gates:
        return f"the best result, without gates{compared}"
    if choice.passed:
        return f"passes {', '.join(map(gate_text, question.gates))}{compared}"
    misses = ", ".join(
        f"{gate_text(gate)} (got {observed_text(GateResult(gate, value, passed=False)) or 'nothing'})"
        for gate, value in choice.misses
    )
    return f"misses {misses}{compared}"


def _shown(name: str, value: Any) -> str:
    return (
        percent(value)
        if name == "density"
        else "default"
        if value is None
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )
