"""Where two lines cross: below which density one method is better, and above which the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import NamedTuple

from mvprune.common.units import percent
from mvprune.sweep.report.quantities import DIFFERENCE, Quality, Stat
from mvprune.sweep.report.results import Line, Panel, shortened

METHOD = (
    "Between measured densities, the difference from dense is interpolated linearly in the logarithm of the density. "
    "The range is one standard error to each side (delta method, from the deviations over seeds, which are taken as "
    "independent). It says how exact the place is if the lines do cross there."
)

_Knots = list[tuple[float, Stat]]  # logarithm of the density, difference


class _Measured(NamedTuple):
    """The measurements of a line."""

    name: str
    knots: _Knots


@dataclass(frozen=True)
class Crossing:
    """One crossing of two lines, or that they have none.

    Attributes:
        below: the line that is better at lower densities; without a crossing, the better one at all densities.
        above: the other.
        density: of the crossing; None if there is none.
        low, high: one standard error to each side; None if that cannot be said.
        is_clear: whether the lines differ by more than the standard error at the densities beside it; None if that
            cannot be said.
        text: the same in words.
    """

    below: str
    above: str
    density: float | None
    low: float | None
    high: float | None
    is_clear: bool | None
    text: str


def crossings(panel: Panel) -> list[Crossing]:
    """Of all pairs of lines that are drawn."""
    measured = [_Measured(line.name, _knots(line)) for line in panel.lines]
    return [found for one, other in combinations(measured, 2) for found in _between(one, other, panel.quality)]


def _between(one: _Measured, other: _Measured, quality: Quality) -> list[Crossing]:
    """The crossings of two lines, by density; one entry if there are none."""
    first, second = one.knots, other.knots
    places = _places(first, second)
    if len(places) < 2:
        names = f"{shortened(one.name)} and {shortened(other.name)}"
        text = f"{names} share no range of densities, so they cannot be compared."
        return [Crossing(one.name, other.name, None, None, None, None, text)]
    gaps = [_mean(first, place) - _mean(second, place) for place in places]
    found = [
        _crossing(one, other, quality, (left, right), (gap, following))
        for (left, gap), (right, following) in pairwise(zip(places, gaps, strict=True))
        if gap * following < 0
    ]
    # Lines that touch at a measured density cross there if they part to the other sides of each other.
    for index in range(1, len(places) - 1):
        if gaps[index] == 0 and gaps[index - 1] * gaps[index + 1] < 0:
            around = (places[index - 1], places[index + 1])
            found.append(_crossing(one, other, quality, around, (gaps[index - 1], gaps[index + 1]), at=places[index]))
    return sorted(found, key=lambda crossing: crossing.density or 0.0) or [_apart(one, other, quality, places, gaps)]


def _crossing(
    one: _Measured,
    other: _Measured,
    quality: Quality,
    around: tuple[float, float],
    gaps: tuple[float, float],
    at: float | None = None,
) -> Crossing:
    """The crossing between two places, where the differences of the lines are `gaps`."""
    (left, right), (before, after) = around, gaps
    place = left + (right - left) * before / (before - after) if at is None else at
    first_is_below = quality.is_better(before, 0.0)
    below, above = (one.name, other.name) if first_is_below else (other.name, one.name)
    density = math.exp(place)
    words = f"{shortened(below)} is better below {percent(density)}, {shortened(above)} above"
    knots = one.knots, other.knots
    error = _error(*knots, place)
    sides = _error(*knots, left), _error(*knots, right)
    if error is None or None in sides:
        text = f"{words}; the uncertainty cannot be said with one seed."
        return Crossing(below, above, density, None, None, None, text)
    reach = error / abs((after - before) / (right - left))
    low, high = math.exp(place - reach), math.exp(min(place + reach, 0.0))
    is_clear = all(side is not None and abs(gap) > side for gap, side in zip(gaps, sides, strict=True))
    noise = "" if is_clear else "; beside it the lines differ by no more than the standard error"
    text = f"{words}; from {_shown(low)} to {_shown(high)} within one standard error{noise}."
    return Crossing(below, above, density, low, high, is_clear, text)


def _apart(
    one: _Measured, other: _Measured, quality: Quality, places: Sequence[float], gaps: Sequence[float]
) -> Crossing:
    leads = next((gap for gap in gaps if gap), 0.0)
    better, worse = (one, other) if quality.is_better(leads, 0.0) else (other, one)
    span = f"from {percent(math.exp(places[0]))} to {percent(math.exp(places[-1]))}"
    words = f"{shortened(better.name)} is better than {shortened(worse.name)} at all densities {span}"
    if not leads:
        words = f"{shortened(one.name)} and {shortened(other.name)} are equal at all densities {span}"
    errors = [_error(one.knots, other.knots, place) for place in places]
    if None in errors:
        return Crossing(better.name, worse.name, None, None, None, None, f"{words}; one seed cannot say how clearly.")
    clear = sum(error is not None and abs(gap) > error for gap, error in zip(gaps, errors, strict=True))
    text = f"{words}; by more than the standard error at {clear} of {len(places)} densities."
    return Crossing(better.name, worse.name, None, None, None, clear == len(places), text)


def _knots(line: Line) -> _Knots:
    found = ((math.log(cell.density), cell.stat(DIFFERENCE)) for cell in line.cells)
    return sorted((place, value) for place, value in found if value is not None)


def _places(first: _Knots, second: _Knots) -> list[float]:
    """All measured densities inside the range that both lines have."""
    if not first or not second:
        return []
    low, high = max(first[0][0], second[0][0]), min(first[-1][0], second[-1][0])
    return sorted({place for place, _ in (*first, *second) if low <= place <= high})


def _weights(knots: _Knots, place: float) -> list[tuple[float, Stat]]:
    """The knots around a place, each with its part in the interpolated value."""
    for left, right in pairwise(knots):
        if left[0] <= place <= right[0]:
            part = (place - left[0]) / (right[0] - left[0])
            return [(1 - part, left[1]), (part, right[1])]
    return [(1.0, knots[0][1])]


def _mean(knots: _Knots, place: float) -> float:
    return sum(weight * value.mean for weight, value in _weights(knots, place))


def _error(first: _Knots, second: _Knots, place: float) -> float | None:
    """The standard error of the difference of two lines; None where a value that matters has one seed."""
    total = 0.0
    for weight, value in (*_weights(first, place), *_weights(second, place)):
        if weight:
            if value.variance_of_mean is None:
                return None
            total += weight**2 * value.variance_of_mean
    return math.sqrt(total)


def _shown(density: float) -> str:
    return percent(density) if density >= 1e-4 else "near 0 %"
