"""Results of a sweep: means over seeds, gates, the front, and the point that they recommend."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mvprune.common.metrics import LATENCY_MS
from mvprune.spec.gate import Gate, excess, is_passed

_SEED = "seed"


@dataclass(frozen=True)
class Outcome:
    """The result of one point.

    Attributes:
        number: of the point.
        cell: parameter to value.
        values: what gates and objectives are about, by name: eval/accuracy, bytes, latency_ms, …
    """

    number: int
    cell: Mapping[str, Any]
    values: Mapping[str, float]


@dataclass(frozen=True)
class Objective:
    """A value to make large, or small."""

    metric: str
    maximize: bool

    @property
    def tolerance(self) -> float:
        """The fraction of the best value within which others are equal to it: times vary from run to run."""
        return 0.05 if self.metric == LATENCY_MS else 0.0


@dataclass(frozen=True)
class Group:
    """The results of points that differ only in the seed.

    Attributes:
        cell: parameter to value, without the seed.
        outcomes: by number, at least one.
    """

    cell: Mapping[str, Any]
    outcomes: tuple[Outcome, ...]

    def values(self, metric: str) -> list[float]:
        """The value of each seed that has one."""
        return [outcome.values[metric] for outcome in self.outcomes if metric in outcome.values]

    def mean(self, metric: str) -> float | None:
        """The mean over seeds, None where one of them has no value."""
        found = self.values(metric)
        return statistics.fmean(found) if len(found) == len(self.outcomes) else None

    def deviation(self, metric: str) -> float | None:
        """The sample standard deviation over seeds, None for fewer than two."""
        found = self.values(metric)
        return statistics.stdev(found) if len(found) > 1 else None

    def compared(self, gate: Gate, *, worst: bool) -> float | None:
        """The value that is compared with a gate: the mean over seeds, or the worst of them."""
        found = self.values(gate.metric)
        if not worst or len(found) < len(self.outcomes):
            return self.mean(gate.metric)
        return min(found) if gate.min is not None else max(found)


@dataclass(frozen=True)
class Choice:
    """The recommendation of a sweep.

    Attributes:
        group: the cell.
        outcome: the best of its seeds.
        passed: whether it passes all gates; if not, it is the closest miss.
        misses: the gates that it misses, each with what was compared with it.
    """

    group: Group
    outcome: Outcome
    passed: bool
    misses: tuple[tuple[Gate, float | None], ...]


def groups(outcomes: Iterable[Outcome]) -> list[Group]:
    """Outcomes by their cell without the seed, in the order of their first point."""
    found: dict[str, list[Outcome]] = {}
    for outcome in sorted(outcomes, key=lambda one: one.number):
        found.setdefault(group_key(outcome.cell), []).append(outcome)
    return [Group(without_seed(members[0].cell), tuple(members)) for members in found.values()]


def group_key(cell: Mapping[str, Any]) -> str:
    """A text that is the same for cells that differ only in the seed."""
    return json.dumps(without_seed(cell), sort_keys=True)


def front(found: Sequence[Group], objectives: Sequence[Objective]) -> list[Group]:
    """The groups that no other group dominates: is as good in all objectives, and better in one (Pareto). Means over
    seeds are compared. A group without a value for an objective is left out."""
    scored = [(group, scores) for group in found if (scores := _scores(group, objectives)) is not None]
    return [group for group, scores in scored if not any(_dominates(other, scores) for _, other in scored)]


def missed(group: Group, gates: Sequence[Gate], *, worst: bool = False) -> tuple[tuple[Gate, float | None], ...]:
    """The gates that a group misses, each with the value that was compared with it. A gate about a value that is not
    known is missed."""
    compared = [(gate, group.compared(gate, worst=worst)) for gate in gates]
    return tuple((gate, value) for gate, value in compared if not is_passed(gate, value))


def recommend(
    found: Sequence[Group], gates: Sequence[Gate], objectives: Sequence[Objective], *, worst: bool = False
) -> Choice | None:
    """The group that is recommended; None where there is no result.

    Of those that pass all gates: the best one in the first objective that is to be small, or, without gates, in the
    first objective. Ties are decided by the other objectives in their order. Where none passes: the group that misses
    the gates by the least, all gates added up.

    Args:
        gates: what it must reach.
        objectives: what is to be large or small, the most important first.
        worst: whether the worst of several seeds is compared with the gates, in place of their mean.
    """
    rated = [(group, missed(group, gates, worst=worst)) for group in found]
    passing = [group for group, misses in rated if not misses]
    small_first = sorted(objectives, key=lambda one: one.maximize) if gates else objectives
    if passing:
        chosen = _best(passing, small_first)
        return Choice(chosen, _best_seed(chosen, gates, objectives), passed=True, misses=())
    if not rated:
        return None
    chosen, misses = min(rated, key=lambda one: (_total(one[1]), _rank(one[0], small_first)))
    return Choice(chosen, _best_seed(chosen, gates, objectives), passed=False, misses=misses)


def without_seed(cell: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a cell that those of other seeds share."""
    return {name: value for name, value in cell.items() if name != _SEED}


def _scores(group: Group, objectives: Sequence[Objective]) -> tuple[float, ...] | None:
    """The means, negated where large is good: less is better."""
    means = [(objective, group.mean(objective.metric)) for objective in objectives]
    if any(mean is None for _, mean in means):
        return None
    return tuple(-mean if objective.maximize else mean for objective, mean in means if mean is not None)


def _dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    return one != other and all(mine <= theirs for mine, theirs in zip(one, other, strict=True))


def _rank(group: Group, objectives: Sequence[Objective]) -> tuple[float, ...]:
    """Less is better; a value that is not known is the worst."""
    means = [(objective, group.mean(objective.metric)) for objective in objectives]
    return tuple(math.inf if mean is None else -mean if objective.maximize else mean for objective, mean in means)


def _best(found: Sequence[Group], objectives: Sequence[Objective]) -> Group:
    for objective in objectives:
        ranks = [_rank(group, [objective])[0] for group in found]
        if math.isfinite(best := min(ranks)):
            limit = best + objective.tolerance * abs(best)
            found = [group for group, rank in zip(found, ranks, strict=True) if rank <= limit]
    return found[0]


def _total(misses: Sequence[tuple[Gate, float | None]]) -> float:
    return sum(math.inf if value is None else excess(gate, value) for gate, value in misses)


def _best_seed(group: Group, gates: Sequence[Gate], objectives: Sequence[Objective]) -> Outcome:
    """Of the seeds that miss the gates by the least, the best one in the objectives."""
    seeds = [Group(group.cell, (outcome,)) for outcome in group.outcomes]
    best = min(seeds, key=lambda one: (_total(missed(one, gates)), _rank(one, objectives)))
    return best.outcomes[0]
