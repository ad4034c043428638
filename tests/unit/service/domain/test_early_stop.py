"""Which runs cannot become the best of their density any more."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mvprune_service.domain.early_stop import MARGIN, Curve, hopeless

FINISHED = [Curve(0.1, {0.6: 0.70, 0.8: 0.78}, final=0.80), Curve(0.1, {0.6: 0.75, 0.8: 0.79}, final=0.80)]
FRACTIONS = st.sampled_from([0.6, 0.7, 0.8, 0.9])
VALUES = st.floats(0, 1)
CURVES = st.builds(
    Curve, st.sampled_from([0.1, 0.2]), st.dictionaries(FRACTIONS, VALUES, min_size=1), st.none() | VALUES
)


def test_a_run_that_would_have_to_gain_more_than_any_other_is_hopeless() -> None:
    # The others gained at most 0.10 from 0.6 on, and 0.02 from 0.8 on.
    assert hopeless({1: Curve(0.1, {0.6: 0.68})}, FINISHED) == [1]
    assert hopeless({1: Curve(0.1, {0.6: 0.70})}, FINISHED) == []
    assert hopeless({1: Curve(0.1, {0.6: 0.70, 0.8: 0.76})}, FINISHED) == [1]


def test_runs_of_other_densities_are_not_compared() -> None:
    assert hopeless({1: Curve(0.2, {0.6: 0.1})}, FINISHED) == []


def test_one_finished_run_says_nothing_about_gains() -> None:
    assert hopeless({1: Curve(0.1, {0.6: 0.1})}, FINISHED[:1]) == []


def test_a_run_without_a_comparable_evaluation_goes_on() -> None:
    assert hopeless({1: Curve(0.1, {})}, FINISHED) == []
    assert hopeless({1: Curve(0.1, {0.5: 0.1})}, FINISHED) == []  # nobody was evaluated that early


@given(st.dictionaries(st.integers(1, 5), CURVES, max_size=4), st.lists(CURVES, max_size=6))
def test_a_run_that_is_stopped_is_behind_the_best_by_more_than_the_margin(
    running: dict[int, Curve], others: list[Curve]
) -> None:
    for number in hopeless(running, others):
        curve = running[number]
        best = max(one.final for one in others if one.density == curve.density and one.final is not None)
        assert curve.values[max(curve.values)] + MARGIN < best
