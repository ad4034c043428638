"""The descent, over every outcome of short ladders."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping

import pytest

from mvprune_service.domain.descent import (
    DENSE,
    LEAST_STEPS,
    MEASURED,
    MEASURED_STEPS,
    MISSES,
    ROUNDED,
    USUAL_RUNGS,
    Result,
    Speed,
    Stage,
    most_stages,
    most_steps,
    seconds_of,
    stages,
    steps_within,
)


def descend(
    densities: list[float], outcome: Mapping[float, Result], recovered: Collection[float], *, rounds: bool
) -> list[Stage]:
    """All stages, in the order in which they are made, where these densities pass in a whole run."""
    results: dict[Stage, Result] = {}
    while (found := stages(densities, results, rounds=rounds))[-1] not in results:
        assert list(results) == found[:-1], "a stage is made once, after those before it"
        stage = found[-1]
        if stage.kind == "rung":
            results[stage] = outcome[stage.density]
        else:
            results[stage] = "passed" if stage == DENSE or stage.density in recovered else "near"
    return found


OUTCOMES: tuple[Result, ...] = ("passed", "near", "missed")


@pytest.mark.parametrize("count", range(1, 6))
@pytest.mark.parametrize("helps", [True, False])
@pytest.mark.parametrize("rounds", [True, False])
def test_it_ends_after_two_misses_in_a_row_and_tries_those_that_are_near_again(
    count: int, helps: bool, rounds: bool
) -> None:
    densities = [0.5 / 1.5**index for index in range(count)]
    for outcomes in itertools.product(OUTCOMES, repeat=count):
        outcome = dict(zip(densities, outcomes, strict=True))
        found = descend(densities, outcome, densities if helps else (), rounds=rounds)
        assert found[: 1 + rounds] == [DENSE, ROUNDED][: 1 + rounds]
        assert len(found) <= most_stages(count, rounds=rounds)
        rungs = [stage.density for stage in found if stage.kind == "rung"]
        assert rungs == densities[: len(rungs)]
        passed = [outcome[density] == "passed" for density in rungs]
        ends = [index for index in range(1, len(passed)) if not passed[index - 1] and not passed[index]]
        assert (len(rungs) == count) or ends == [len(rungs) - 1]
        last = rungs[-MISSES:] if ends else rungs[-1:]
        missed = [density for density in last if outcome[density] != "passed"]
        near = [density for density in missed if outcome[density] == "near"]
        tried = {outcome[stage.density] for stage in found if stage.kind == "rung"}
        start = near[-1:] or ([] if "passed" in tried else missed[:1])
        further = [density for density in missed if start and (density < start[0] if helps else density > start[0])]
        assert [stage.density for stage in found if stage.kind == "whole"] == start + further


def test_the_steps_of_a_stage_are_a_part_of_a_whole_run() -> None:
    assert [Stage(kind, 0.5).steps(600) for kind in ("dense", "rung", "whole")] == [600, 150, 600]
    assert most_steps(10, 600) == 600 + 10 * 150 + 2 * 600
    assert Stage("rung", 0.5).steps(1) == 1


@pytest.mark.parametrize("rounds", [True, False])
@pytest.mark.parametrize("densities", [1, 3, 11])
@pytest.mark.parametrize(("step", "other"), [(0.3, 20.0), (2.0, 5.0)])
def test_a_descent_of_usual_length_fits_into_its_time(step: float, other: float, densities: int, rounds: bool) -> None:
    speed, seconds = Speed(step, other), 1800.0
    whole = steps_within(seconds, speed, densities, rounds=rounds)
    usual = [DENSE, *[ROUNDED] * rounds, *[Stage("rung", 0.5)] * min(densities, USUAL_RUNGS), Stage("whole", 0.5)]
    times = [sum(seconds_of(stage, steps, speed) for stage in usual) for steps in (whole - 4, whole + 8)]
    assert times[0] < seconds < times[1]


def test_a_time_that_is_too_short_gives_the_least_steps() -> None:
    assert steps_within(10, Speed(1.0, 60.0), 11, rounds=True) == LEAST_STEPS > MEASURED_STEPS


def test_a_run_that_is_measured_comes_first() -> None:
    assert stages([0.5], {}, rounds=False, measures=True) == [MEASURED]
    assert stages([0.5], {MEASURED: "passed"}, rounds=False, measures=True) == [MEASURED, DENSE]
    assert most_stages(3, rounds=True, measures=True) == most_stages(3, rounds=True) + 1
