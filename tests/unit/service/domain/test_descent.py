"""The descent, over every outcome of short ladders."""

from __future__ import annotations

import itertools

import pytest

from mvprune_service.domain.descent import MISSES, Stage, most_stages, most_steps, stages

DENSE = Stage("dense", 1.0)


def descend(densities: list[float], passing: set[float], recovers: bool) -> list[Stage]:
    """All stages, in the order in which they are made."""
    passed: dict[Stage, bool] = {}
    while (found := stages(densities, passed))[-1] not in passed:
        assert list(passed) == found[:-1], "a stage is made once, after those before it"
        stage = found[-1]
        passed[stage] = {"dense": True, "rung": stage.density in passing, "recovery": recovers}[stage.kind]
    return found


@pytest.mark.parametrize("count", range(1, 7))
def test_it_ends_after_two_misses_in_a_row_and_recovers_the_first(count: int) -> None:
    densities = [0.5 / 1.5**index for index in range(count)]
    for outcome in itertools.product((False, True), repeat=count):
        passing = {density for density, passes in zip(densities, outcome, strict=True) if passes}
        found = descend(densities, passing, recovers=True)
        assert found[0] == DENSE
        assert len(found) <= most_stages(count)
        rungs = [stage.density for stage in found if stage.kind == "rung"]
        assert rungs == densities[: len(rungs)]
        missed = [density not in passing for density in rungs]
        ends = [index for index in range(1, len(missed)) if missed[index - 1] and missed[index]]
        assert (len(rungs) == count) or ends == [len(rungs) - 1]
        recovered = [stage.density for stage in found if stage.kind == "recovery"]
        if missed[-1]:
            first = rungs[-MISSES] if ends else rungs[-1]
            assert (recovered, found[-1].kind) == ([first], "recovery")
        else:
            assert recovered == []


def test_the_steps_of_a_stage_are_a_part_of_a_whole_run() -> None:
    assert [Stage(kind, 0.5).steps(600) for kind in ("dense", "rung", "recovery")] == [600, 150, 300]  # type: ignore[arg-type]
    assert most_steps(10, 600) == 600 + 10 * 150 + 300
    assert Stage("rung", 0.5).steps(1) == 1
