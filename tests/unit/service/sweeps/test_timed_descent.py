"""A descent that has a time: a short run is measured, and the steps follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.service.conftest import ScriptedExecutor

from mvprune_service.clock import SECOND
from mvprune_service.db import sweep_results
from mvprune_service.db.engine.database import Database
from mvprune_service.domain.descent import Speed, steps_within

from .gym import Gym, Quality
from .test_descent import LADDER, OBERT, SEARCH, specs_of

# On PostgreSQL, test_sweep_model.py and the other files make all statements that are made here.
pytestmark = pytest.mark.parametrize("new_database", ["sqlite"], indirect=True)


@pytest.fixture
def make(db: Database, executor: ScriptedExecutor) -> Callable[[Quality], Gym]:
    return lambda quality: Gym(db, executor, quality)


TIMED: dict[str, Any] = SEARCH | {
    "search": {"goal": "DENSITY", "time": "600s"},
    "base": {key: value for key, value in OBERT.items() if key != "training"},
}


def _takes(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """A step of a job takes so long."""
    monkeypatch.setattr(sweep_results, "step_us", lambda conn, job_uid: round(seconds * SECOND))


async def test_the_steps_follow_from_a_time_and_a_run_that_is_measured(
    make: Callable[[Quality], Gym], monkeypatch: pytest.MonkeyPatch
) -> None:
    _takes(monkeypatch, 0.5)
    gym = make(lambda spec: 0.9 if spec.target_density >= 0.15 else 0.886)
    sweep = await gym.create(**TIMED)
    assert any("within 10 min: its first point, a run of 24 steps, measures a step" in note for note in sweep.notes)
    await gym.run()
    points, specs = await gym.points(), await specs_of(gym)
    measured, dense, *rungs, smaller, larger = specs
    whole = dense.training.max_steps
    most, least = (steps_within(left, Speed(0.5, 0), len(LADDER), rounds=False) for left in (600, 480))
    assert least <= whole <= most  # the test takes a part of the time
    assert [point.target_density for point in points] == [1.0, 1.0, *LADDER[:6], LADDER[5], LADDER[4]]
    assert (measured.training.max_steps, measured.keep_fine_tuned, dense.keep_fine_tuned) == (24, False, True)
    assert {spec.training.max_steps for spec in rungs} == {whole // 4}
    assert smaller.training.max_steps == larger.training.max_steps == whole
    assert rungs[0].start_from == f"job:{points[1].job}"
    assert {spec.teacher.job for spec in (*rungs, smaller, larger)} == {points[1].job}
    done = await gym.get()
    assert points[done.recommendation.point - 1].target_density == LADDER[3]
    chosen = [note for note in done.notes if note.startswith("a step takes 0.5 s, and a job 0 s beside its steps")]
    assert [f"the dense model has {whole:,} steps" in note for note in chosen] == [True]


@pytest.mark.slow
async def test_no_run_is_begun_that_would_end_after_the_time_but_one_density_is_tried(
    make: Callable[[Quality], Gym], monkeypatch: pytest.MonkeyPatch
) -> None:
    _takes(monkeypatch, 60)
    gym = make(lambda spec: 0.9)
    await gym.create(**TIMED)
    await gym.run()
    assert [point.target_density for point in await gym.points()] == [1.0, 1.0, LADDER[0]]
    done = await gym.get()
    assert done.recommendation.passed
    assert any("these are the least, as the time is too short" in note for note in done.notes)
    assert any(note.startswith("the search ends: density 0.338 would take it to 1") for note in done.notes)


@pytest.mark.parametrize(
    ("given", "field", "rule"),
    [
        (
            {"axes": [{"parameter": "epochs", "values": [1, 2]}]},
            "axes",
            "must be axes of other parameters with a time, from which the steps follow, got 'epochs'",
        ),
        ({"base": OBERT}, "base.training.max_steps", "must be unset with a time, from which the steps follow, got 600"),
        (
            {"search": {"time": "600s", "way": "BISECTION"}},
            "search.time",
            "must be unset where a search is no descent: it is a bisection, got '600 s'",
        ),
        ({"search": {"time": "5s"}}, "search.time", "must be from 1 min to 365 days, got '5 s'"),
        (
            {"base": TIMED["base"] | {"structure": "HEADS"}},
            "search.time",
            "must be unset where a search is no descent: heads, units and layers are pruned from the whole model",
        ),
    ],
)
async def test_a_time_is_for_a_descent_without_steps(
    make: Callable[[Quality], Gym], given: dict[str, Any], field: str, rule: str
) -> None:
    found = await make(lambda spec: 0.9).refused(**TIMED | given)
    assert rule in found[f"sweep.spec.{field}"], found


@pytest.mark.slow
async def test_a_dense_point_beside_the_search_does_not_say_how_long_its_runs_are(
    make: Callable[[Quality], Gym], monkeypatch: pytest.MonkeyPatch
) -> None:
    _takes(monkeypatch, 0.5)
    gym = make(lambda spec: 0.9)
    await gym.create(**TIMED | {"points": [{"density": 1, "max_steps": 7}]})
    await gym.run()
    steps = [spec.training.max_steps for spec in await specs_of(gym)]
    assert (steps[:2], min(steps[2:]) > 50) == ([7, 24], True)


async def test_the_estimate_of_a_descent_with_a_time_is_that_time(make: Callable[[Quality], Gym]) -> None:
    sweep = await make(lambda spec: 0.9).create(validate_only=True, **TIMED)
    assert sweep.estimate.text == f"at most {2 + len(LADDER) + 2} jobs in 10 min"
    assert sweep.estimate.runtime.ToSeconds() == 600
