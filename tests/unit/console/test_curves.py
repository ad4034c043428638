"""Curves are thinned without losing what stands out, and drawn."""

from __future__ import annotations

import math

from mvprune.client.models import MetricPoint
from mvprune.console.curves import MAX_CURVES, Curve, curves_of, thinned


def points(name: str, *values: float) -> list[MetricPoint]:
    return [MetricPoint(name, step, value, None, 1) for step, value in enumerate(values)]


def test_thinning_keeps_ends_and_peaks() -> None:
    values = [0.5] * 50_000
    values[0], values[-1], values[31_234], values[777] = 0.1, 0.2, 9.0, -3.0
    curve = Curve("pruning/loss", list(range(50_000)), values)
    thin = thinned(curve, 1000)
    assert len(thin.steps) <= 1000
    assert thin.steps == sorted(set(thin.steps))
    assert (thin.steps[0], thin.steps[-1]) == (0, 49_999)
    assert {(31_234, 9.0), (777, -3.0)} <= set(zip(thin.steps, thin.values, strict=True))
    assert thinned(curve, 50_000) == curve
    assert len(curve.rows) <= 25


def test_the_important_curves_come_first_and_what_is_no_number_is_left_out() -> None:
    named = {f"other/{number}": points("", 1.0) for number in range(9)}
    named |= {"pruning/loss": points("", 1.0, math.nan, 0.5), "x": points("", math.inf)}
    found = curves_of(named)
    assert len(found) == MAX_CURVES
    assert found[0] == Curve("pruning/loss", [0, 2], [1.0, 0.5])


def test_a_picture_has_no_style_of_its_own() -> None:
    for curve in (Curve("pruning/density", [1], [0.5]), Curve("dense/loss", [1, 2, 3], [2.0, -1.0, 0.0])):
        assert curve.svg.startswith("<svg ")
        assert "style" not in curve.svg
