"""The cells of a sweep: a product of axes, cells beside it, cells left out; or cells drawn at random."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple, Protocol

Cell = Mapping[str, Any]  # parameter to value

_DIGITS = 4  # of a number drawn from a range
_TRIES = 50  # for each cell drawn at random, before the axes are taken to have no more


class Chance(Protocol):
    """Random numbers, as random.Random draws them."""

    def uniform(self, a: float, b: float, /) -> float:
        """A number between two bounds."""
        ...

    def randrange(self, stop: int, /) -> int:
        """A whole number from 0, below `stop`."""
        ...


@dataclass(frozen=True)
class Range:
    """Numbers between two bounds; `log`: uniform in the logarithm."""

    low: float
    high: float
    log: bool = False

    def draw(self, chance: Chance) -> float:
        """A number, rounded to four significant digits and within the bounds."""
        if self.log:
            drawn = math.exp(chance.uniform(math.log(self.low), math.log(self.high)))
        else:
            drawn = chance.uniform(self.low, self.high)
        return min(max(float(f"{drawn:.{_DIGITS}g}"), self.low), self.high)


@dataclass(frozen=True)
class Axis:
    """A parameter with its values, or with a range to draw from."""

    parameter: str
    values: tuple[Any, ...] = ()
    range: Range | None = None


class Origin(NamedTuple):
    """Where the values of a cell come from: an axis and the index of its value, None for a value drawn from its range,
    for each axis; or the index of a cell that is beside the product."""

    indices: Mapping[str, tuple[int, int | None]]  # parameter to (axis, value)
    point: int | None = None


class Placed(NamedTuple):
    """A cell, and where it comes from."""

    cell: Cell
    origin: Origin


def size(axes: Sequence[Axis]) -> int:
    """How many cells the product of axes has; none without axes."""
    return math.prod(len(axis.values) for axis in axes) if axes else 0


def grid(axes: Sequence[Axis], points: Sequence[Cell], exclude: Sequence[Cell]) -> Iterator[Placed]:
    """The product of the axes, the first axis slowest, without the cells excluded, then the points."""
    if axes:
        for chosen in product(*(enumerate(axis.values) for axis in axes)):
            placed = _placed(axes, chosen)
            if not any(_matches(placed.cell, partial) for partial in exclude):
                yield placed
    for index, point in enumerate(points):
        yield Placed(point, Origin({}, index))


def draw(
    axes: Sequence[Axis], count: int, chance: Chance, exclude: Sequence[Cell], key: Callable[[Cell], str]
) -> list[Placed]:
    """Cells drawn at random, none twice; fewer than `count` where the axes have no more.

    Args:
        key: cells with the same key are the same.
    """
    found, known = list[Placed](), set[str]()
    for _ in range(_TRIES * count):
        chosen = [_draw(axis, chance) for axis in axes]
        placed = _placed(axes, chosen)
        if (name := key(placed.cell)) not in known and not any(_matches(placed.cell, partial) for partial in exclude):
            known.add(name)
            found.append(placed)
        if len(found) == count:
            break
    return found


def _draw(axis: Axis, chance: Chance) -> tuple[int | None, Any]:
    if axis.range is not None:
        return None, axis.range.draw(chance)
    index = chance.randrange(len(axis.values))
    return index, axis.values[index]


def _placed(axes: Sequence[Axis], chosen: Sequence[tuple[int | None, Any]]) -> Placed:
    cell = {axis.parameter: value for axis, (_, value) in zip(axes, chosen, strict=True)}
    return Placed(cell, Origin({axis.parameter: (number, chosen[number][0]) for number, axis in enumerate(axes)}))


def _matches(cell: Cell, partial: Cell) -> bool:
    """Whether a cell has all of these values."""
    return bool(partial) and all(name in cell and cell[name] == value for name, value in partial.items())
