"""The search for the smallest density that passes, over every outcome of short ladders and made-up ones of long."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvprune_service.domain.search import ladder, most_steps, next_step


def search(steps: int, passes: Callable[[int], bool]) -> dict[int, bool]:
    """Measures until the search has ended. Returns what was measured."""
    measured: dict[int, bool] = {}
    while (step := next_step(steps, measured)) is not None:
        assert 0 <= step < steps
        assert step not in measured, "a density is measured twice"
        measured[step] = passes(step)
        assert len(measured) <= most_steps(steps)
    return measured


@pytest.mark.parametrize("steps", [*range(1, 70), 500, 1023, 1024])
def test_a_monotone_outcome_gives_the_smallest_that_passes(steps: int) -> None:
    for smallest in {*range(min(steps, 70) + 1), steps // 2, steps - 1, steps}:  # steps: none passes
        measured = search(steps, lambda index, smallest=smallest: index >= smallest)  # type: ignore[misc]
        found = min((index for index, passed in measured.items() if passed), default=None)
        assert found == (smallest if smallest < steps else None)


@pytest.mark.parametrize("steps", range(1, 11))
def test_any_outcome_ends_with_one_that_passed_or_with_none_that_did(steps: int) -> None:
    for outcome in itertools.product((False, True), repeat=steps):
        measured = search(steps, outcome.__getitem__)
        passed = [index for index, passes in measured.items() if passes]
        if passed:  # and what is below it was measured and failed, or is nothing
            assert min(passed) == 0 or measured[min(passed) - 1] is False
        else:  # nothing is given up before the largest density was measured
            assert measured[steps - 1] is False


@given(st.integers(1, 300), st.randoms(use_true_random=False))
def test_any_outcome_of_a_long_ladder_ends(steps: int, random: object) -> None:
    draw: Callable[[int], int] = random.getrandbits  # type: ignore[attr-defined]
    measured = search(steps, lambda _: bool(draw(1)))
    assert 1 <= len(measured) <= most_steps(steps)


@given(
    st.floats(1e-6, 1.0, exclude_max=True),
    st.floats(1e-6, 1.0),
    st.floats(0.01, 1.0),
)
def test_a_ladder_goes_from_bound_to_bound_in_small_steps(low: float, high: float, tolerance: float) -> None:
    if low >= high:
        low, high = high, low
    if low == high:
        assert ladder(low, high, tolerance) == [low]
        return
    found = ladder(low, high, tolerance)
    assert (found[0], found[-1]) == (low, high)
    for smaller, larger in pairwise(found):
        assert smaller < larger
        assert larger / smaller <= (1 + tolerance) * 1.011  # three digits


def test_the_ladder_of_the_defaults() -> None:
    found = ladder(0.01, 0.5, 0.15)
    assert len(found) == 29
    assert most_steps(len(found)) == 5
    assert found[:3] == [0.01, 0.0115, 0.0132]
