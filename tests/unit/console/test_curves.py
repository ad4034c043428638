"""Curves are thinned without losing what stands out, and drawn."""

from __future__ import annotations

from collections.abc import AsyncIterator

from mvprune.client.models import MetricPoint
from mvprune.console.curves import MAX_CURVES, MAX_POINTS, Curve, read, thinned


async def points(values: dict[str, list[float]]) -> AsyncIterator[MetricPoint]:
    for name, steps in values.items():
        for step, value in enumerate(steps):
            yield MetricPoint(name, step, value, None, 1)


async def test_thinning_keeps_ends_and_peaks() -> None:
    values = [0.5] * 50_000
    values[0], values[-1], values[31_234], values[777] = 0.1, 0.2, 9.0, -3.0
    (curve,) = await read(points({"pruning/loss": values}))
    assert len(curve.steps) <= MAX_POINTS
    assert curve.steps == sorted(set(curve.steps))
    assert (curve.steps[0], curve.steps[-1]) == (0, 49_999)
    assert {(31_234, 9.0), (777, -3.0)} <= set(zip(curve.steps, curve.values, strict=True))
    assert thinned(curve, 5000) == curve
    assert len(curve.rows) <= 25


async def test_the_important_curves_come_first_and_what_is_no_number_is_left_out() -> None:
    named = {f"other/{number}": [1.0] for number in range(9)} | {
        "pruning/loss": [1.0, float("nan"), 0.5],
        "x": [float("nan")],
    }
    found = await read(points(named))
    assert len(found) <= MAX_CURVES
    assert found[0] == Curve("pruning/loss", [0, 2], [1.0, 0.5])


async def test_of_a_step_that_was_done_twice_the_last_counts() -> None:
    async def twice() -> AsyncIterator[MetricPoint]:
        for attempt, value in ((1, 1.0), (2, 0.5)):
            yield MetricPoint("pruning/loss", 5, value, None, attempt)

    assert await read(twice()) == [Curve("pruning/loss", [5], [0.5])]


def test_a_picture_has_no_style_of_its_own() -> None:
    for curve in (Curve("pruning/density", [1], [0.5]), Curve("dense/loss", [1, 2, 3], [2.0, -1.0, 0.0])):
        assert curve.svg.startswith("<svg ")
        assert "style" not in curve.svg.replace('class="', "")
