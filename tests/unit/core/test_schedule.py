from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from mvprune_core import RunTooShort, Schedule


def test_density_at_every_boundary() -> None:
    densities = [Schedule(pruning_start=0.1, cooldown=0.3).density_at(step, 100, 0.03) for step in range(101)]
    assert densities[:11] == [1.0] * 11
    assert densities[11] < 1.0
    assert densities[69] > 0.03
    assert densities[70:] == [0.03] * 31
    assert all(before > after for before, after in pairwise(densities[10:71]))


def test_cubic_between_the_boundaries() -> None:
    # Half-way between steps 20 and 80: v + (1 - v) / 8.
    assert Schedule(pruning_start=0.2, cooldown=0.2).density_at(50, 100, 0.2) == pytest.approx(0.3, abs=1e-12)


def test_linear_between_the_boundaries() -> None:
    schedule = Schedule("linear", pruning_start=0.2, cooldown=0.2)
    assert schedule.density_at(20, 100, 0.2) == 1.0
    assert schedule.density_at(35, 100, 0.2) == pytest.approx(0.8, abs=1e-12)
    assert schedule.density_at(50, 100, 0.2) == pytest.approx(0.6, abs=1e-12)
    assert schedule.density_at(80, 100, 0.2) == 0.2
    assert schedule.pruning_steps(100) == 60


@pytest.mark.parametrize(("pruning_start", "dense"), [(0.0, 0), (0.25, 25), (1.0, 100)])
def test_one_shot_prunes_once(pruning_start: float, dense: int) -> None:
    schedule = Schedule("one_shot", pruning_start=pruning_start)
    schedule.check(1)
    densities = [schedule.density_at(step, 100, 0.1) for step in range(101)]
    assert densities == [1.0] * dense + [0.1] * (101 - dense)
    assert schedule.pruning_end(100) == dense
    assert schedule.pruning_steps(100) == 0


@pytest.mark.parametrize("total", [7, 10, 29, 100, 12345])
@pytest.mark.parametrize(("pruning_start", "cooldown"), [(0.0, 0.2), (0.29, 0.2), (0.1, 0.7)])
def test_starts_dense_and_ends_at_the_target(total: int, pruning_start: float, cooldown: float) -> None:
    schedule = Schedule(pruning_start=pruning_start, cooldown=cooldown)
    schedule.check(total)
    assert schedule.density_at(0, total, 0.1) == 1.0
    assert schedule.density_at(round(pruning_start * total), total, 0.1) == 1.0
    assert schedule.density_at(total - round(cooldown * total), total, 0.1) == 0.1
    assert schedule.density_at(total - 1, total, 0.1) == 0.1
    assert schedule.density_at(total, total, 0.1) == 0.1


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("schedule.pruning_start", {"pruning_start": -0.1}),
        ("schedule.pruning_start", {"pruning_start": float("nan")}),
        ("schedule", {"pruning_start": 1.0}),
        ("schedule.cooldown", {"cooldown": 0.0}),
        ("schedule.cooldown", {"cooldown": 1.5}),
        ("schedule.shape", {"shape": "square"}),
        ("schedule.pruning_start", {"shape": "one_shot", "pruning_start": 1.1}),
        ("schedule.cooldown", {"shape": "linear", "cooldown": 0.0}),
        ("schedule", {"pruning_start": 0.6, "cooldown": 0.4}),
        ("schedule.cooldown", {"shape": "one_shot", "cooldown": 0.5}),
    ],
)
def test_refuses_a_schedule_that_never_reaches_its_target(field: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"^{field} must be .*, got "):
        Schedule(**options)


@pytest.mark.parametrize(("steps", "cooldown"), [(1, 0.2), (2, 0.2), (1, 0.9)])
def test_refuses_a_run_too_short_for_it(steps: int, cooldown: float) -> None:
    with pytest.raises(ValueError, match="steps"):
        Schedule(pruning_start=0.05, cooldown=cooldown).check(steps)


def test_events_prune_a_few_times_and_set_the_learning_rate_back() -> None:
    schedule = Schedule("events", pruning_start=0.1, cooldown=0.4, events=3, first_event=0.7)
    schedule.check(100)
    densities = [schedule.density_at(step, 100, 0.04) for step in range(101)]
    # After the first event 0.3; then 0.04 + 0.26 · (1/2)³; then the target.
    assert densities == [*[1.0] * 10, *[pytest.approx(0.3)] * 25, *[pytest.approx(0.0725)] * 25, *[0.04] * 41]
    assert schedule.pruning_end(100) == 60
    rates = [schedule.lr_decay(step, 100) for step in range(100)]
    assert [rates[step] for step in (0, 10, 35, 60)] == [1.0] * 4
    # Linear, to a tenth at the next event, and to 0 at the end.
    assert rates[22] == pytest.approx(1 - 0.9 * 12 / 25)
    assert rates[80] == pytest.approx(0.5)
    assert Schedule().lr_decay(3, 100) is None


def test_the_first_event_prunes_no_more_than_is_asked_for() -> None:
    schedule = Schedule("events", pruning_start=0.0, cooldown=0.5)
    assert [schedule.density_at(step, 10, 0.5) for step in (0, 5)] == [0.5, 0.5]
    assert schedule.density_at(0, 10, 0.1) == pytest.approx(0.3), "seven tenths, unless it is told"


def test_one_event_prunes_at_the_start_of_the_cooldown() -> None:
    schedule = Schedule("events", events=1)
    assert [schedule.density_at(step, 10, 0.1) for step in (5, 6)] == [1.0, 0.1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"events": 3}, "schedule.events must be unset without the shape events, got 3; give that shape"),
        ({"first_event": 0.5}, "schedule.first_event must be unset without the shape events, got 0.5; give that shape"),
        ({"shape": "events", "events": 0}, "schedule.events must be from 1 to 1,000, got 0"),
        ({"shape": "events", "first_event": 1.0}, "schedule.first_event must be"),
    ],
)
def test_options_of_events_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Schedule(**options)


def test_more_events_than_steps_are_refused() -> None:
    with pytest.raises(RunTooShort, match=r"schedule\.events must be at most 6, one a step .* got 9"):
        Schedule("events", events=9).check(10)
