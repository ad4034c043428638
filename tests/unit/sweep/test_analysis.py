"""Means over seeds, gates, the front and the recommended point."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvprune.spec.gate import Gate
from mvprune.sweep.analysis import Group, Objective, Outcome, excess, front, groups, missed, recommend

QUALITY, SIZE, SPEED = "eval/accuracy", "bytes", "latency_ms"
OBJECTIVES = (Objective(QUALITY, maximize=True), Objective(SIZE, maximize=False))
GATE = Gate("delta/accuracy", min=-0.01)


def outcome(number: int, cell: dict[str, Any] | None = None, **values: float) -> Outcome:
    """A result; `quality`, `size`, `speed` and `loss` are short for the names of metrics."""
    names = {"quality": QUALITY, "size": SIZE, "speed": SPEED, "delta": GATE.metric}
    return Outcome(number, {"density": number} if cell is None else cell, {names[key]: v for key, v in values.items()})


def alone(*outcomes: Outcome) -> list[Group]:
    """Each outcome as a group of one seed."""
    return [Group(one.cell, (one,)) for one in outcomes]


_LEVELS = st.integers(0, 4).map(lambda level: level / 4)
_VALUES = st.fixed_dictionaries({}, optional={QUALITY: _LEVELS, SIZE: _LEVELS, SPEED: _LEVELS, GATE.metric: _LEVELS})


@st.composite
def results(draw: st.DrawFn) -> list[Group]:
    """Cells with one to three seeds; values repeat, and some are unknown."""
    counts = draw(st.lists(st.integers(1, 3), max_size=8))
    numbers = iter(range(1, 100))
    return groups(
        Outcome(next(numbers), {"density": cell, "seed": seed}, draw(_VALUES))
        for cell, count in enumerate(counts)
        for seed in range(count)
    )


objectives = st.lists(
    st.builds(Objective, st.sampled_from([QUALITY, SIZE, SPEED]), st.booleans()),
    min_size=1,
    max_size=3,
    unique_by=lambda one: one.metric,
)
gates = st.lists(
    st.one_of(
        st.builds(lambda metric, bound: Gate(metric, min=bound), st.sampled_from([QUALITY, GATE.metric]), _LEVELS),
        st.builds(lambda metric, bound: Gate(metric, max=bound), st.sampled_from([SIZE, SPEED]), _LEVELS),
    ),
    max_size=3,
)


def is_better(one: Group, other: Group, wanted: Sequence[Objective]) -> bool:
    """Whether a group is as good in all objectives and better in one."""
    signs = [-1 if objective.maximize else 1 for objective in wanted]
    pairs = [(one.mean(objective.metric), other.mean(objective.metric)) for objective in wanted]
    gaps = [sign * (a - b) for sign, (a, b) in zip(signs, pairs, strict=True) if a is not None and b is not None]
    return all(gap <= 0 for gap in gaps) and any(gap < 0 for gap in gaps)


@given(results(), objectives)
def test_no_group_of_the_front_is_dominated_and_every_other_is(found: list[Group], wanted: list[Objective]) -> None:
    best = front(found, wanted)
    known = [group for group in found if all(group.mean(one.metric) is not None for one in wanted)]
    assert all(group in known for group in best)
    for group in known:
        dominated = any(is_better(other, group, wanted) for other in known)
        assert (group in best) is not dominated


@given(results(), gates, objectives, st.booleans())
def test_a_passing_group_is_recommended_exactly_if_there_is_one(
    found: list[Group], asked: list[Gate], wanted: list[Objective], worst: bool
) -> None:
    passing = [group for group in found if not missed(group, asked, worst=worst)]
    choice = recommend(found, asked, wanted, worst=worst)
    if choice is None:
        assert found == []
        return
    assert choice.passed is bool(passing)
    assert choice.group in (passing or found)
    assert choice.outcome in choice.group.outcomes
    assert choice.misses == (() if passing else missed(choice.group, asked, worst=worst))


@given(results(), gates, objectives)
def test_the_recommended_group_is_the_smallest_of_those_that_pass(
    found: list[Group], asked: list[Gate], wanted: list[Objective]
) -> None:
    choice = recommend(found, asked, wanted)
    first = next((one for one in wanted if not one.maximize), wanted[0]) if asked else wanted[0]
    if choice is None or not choice.passed:
        return
    sign = -1 if first.maximize else 1
    values = [group.mean(first.metric) for group in found if not missed(group, asked)]
    known = [sign * value for value in values if value is not None]
    mine = choice.group.mean(first.metric)
    assert (mine is None) is (known == [])
    if mine is not None:
        assert sign * mine == min(known)


@given(results(), gates, objectives)
def test_no_other_group_misses_the_gates_by_less_than_the_closest_miss(
    found: list[Group], asked: list[Gate], wanted: list[Objective]
) -> None:
    def total(group: Group) -> float:
        misses = missed(group, asked)
        return sum(float("inf") if value is None else excess(gate, value) for gate, value in misses)

    choice = recommend(found, asked, wanted)
    if choice is not None and not choice.passed:
        assert total(choice.group) == min(total(group) for group in found)


@given(st.permutations([outcome(n, {"density": n // 3, "seed": n % 3}, quality=n / 10) for n in range(9)]))
def test_groups_do_not_depend_on_the_order_of_the_results(shuffled: list[Outcome]) -> None:
    found = groups(shuffled)
    assert [group.cell for group in found] == [{"density": 0}, {"density": 1}, {"density": 2}]
    assert [[one.number for one in group.outcomes] for group in found] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


def test_a_mean_over_seeds_has_its_sample_deviation() -> None:
    (group,) = groups(outcome(n, {"density": 0.1, "seed": n}, quality=value) for n, value in enumerate((0.8, 0.9, 0.7)))
    assert group.mean(QUALITY) == pytest.approx(0.8)
    assert group.deviation(QUALITY) == pytest.approx(statistics.stdev([0.8, 0.9, 0.7]))
    assert Group({}, group.outcomes[:1]).deviation(QUALITY) is None


def test_a_mean_is_unknown_where_one_seed_has_no_value() -> None:
    (group,) = groups([outcome(1, {"seed": 0}, quality=0.8), outcome(2, {"seed": 1}, size=4)])
    assert group.mean(QUALITY) is None
    assert group.values(QUALITY) == [0.8]
    assert missed(group, [Gate(QUALITY, min=0.1)], worst=True) == ((Gate(QUALITY, min=0.1), None),)


def test_the_mean_or_the_worst_of_the_seeds_is_compared_with_a_gate() -> None:
    (group,) = groups(outcome(n, {"seed": n}, delta=value, size=n) for n, value in enumerate((0.0, -0.015)))
    smaller = Gate(SIZE, max=0.7)
    assert missed(group, [GATE]) == ()
    assert missed(group, [GATE], worst=True) == ((GATE, -0.015),)
    assert missed(group, [smaller]) == ()
    assert missed(group, [smaller], worst=True) == ((smaller, 1),)


def test_a_difference_that_is_only_nearly_exact_passes() -> None:
    (group,) = alone(outcome(1, delta=0.85 - 0.87))
    assert 0.85 - 0.87 < -0.02
    assert missed(group, [Gate(GATE.metric, min=-0.02)]) == ()


def test_bytes_are_missed_relative_to_the_bound_and_fractions_absolutely() -> None:
    assert excess(Gate(SIZE, max=10e6), 11e6) == pytest.approx(0.1)
    assert excess(Gate(QUALITY, min=0.9), 0.8) == pytest.approx(0.1)
    assert excess(Gate(QUALITY, min=0.9), 0.95) == pytest.approx(-0.05)


def test_of_equal_sizes_the_better_quality_is_recommended() -> None:
    found = alone(outcome(1, quality=0.8, size=5), outcome(2, quality=0.9, size=5), outcome(3, quality=0.95, size=6))
    choice = recommend(found, [Gate(QUALITY, min=0.5)], OBJECTIVES)
    assert choice is not None
    assert (choice.outcome.number, choice.passed) == (2, True)


def test_a_tie_in_everything_is_decided_by_the_number() -> None:
    found = alone(outcome(1, quality=0.8, size=5), outcome(2, quality=0.8, size=5))
    choice = recommend(found, [], OBJECTIVES)
    assert choice is not None
    assert choice.outcome.number == 1
    assert front(found, OBJECTIVES) == found


def test_without_gates_the_first_objective_decides() -> None:
    found = alone(outcome(1, quality=0.8, size=1), outcome(2, quality=0.9, size=5))
    best, smallest = recommend(found, [], OBJECTIVES), recommend(found, [], OBJECTIVES[::-1])
    assert best is not None
    assert smallest is not None
    assert (best.outcome.number, smallest.outcome.number) == (2, 1)


def test_the_closest_miss_adds_up_all_gates() -> None:
    asked = [Gate(QUALITY, min=0.9), Gate(SIZE, max=100)]
    found = alone(outcome(1, quality=0.89, size=150), outcome(2, quality=0.8, size=110), outcome(3, quality=0.95))
    choice = recommend(found, asked, OBJECTIVES)
    assert choice is not None
    assert (choice.outcome.number, choice.passed) == (2, False)
    assert choice.misses == ((asked[0], 0.8), (asked[1], 110))


def test_of_the_seeds_the_best_one_is_recommended() -> None:
    seeds = (0.89, 0.93, 0.91)
    found = groups(outcome(n, {"seed": n}, quality=value, size=5) for n, value in enumerate(seeds))
    choice = recommend(found, [Gate(QUALITY, min=0.9)], OBJECTIVES)
    assert choice is not None
    assert (choice.outcome.number, choice.passed) == (1, True)
