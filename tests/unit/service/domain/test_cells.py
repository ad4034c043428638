"""The cells of a sweep: the product, what is left out of it, and what is drawn at random."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvprune_service.domain.cells import Axis, Cell, Origin, Range, draw, grid, size

METHOD, DENSITY = Axis("method", ("a", "b")), Axis("density", (0.1, 0.2, 0.3))


def key(cell: Cell) -> str:
    return json.dumps(cell, sort_keys=True)


def cells(*axes: Axis, points: tuple[Cell, ...] = (), exclude: tuple[Cell, ...] = ()) -> list[tuple[Any, ...]]:
    return [tuple(placed.cell.values()) for placed in grid(axes, points, exclude)]


def test_the_first_axis_is_the_slowest() -> None:
    assert cells(METHOD, DENSITY) == [("a", 0.1), ("a", 0.2), ("a", 0.3), ("b", 0.1), ("b", 0.2), ("b", 0.3)]
    assert size((METHOD, DENSITY)) == 6
    assert size(()) == 0
    assert cells() == []


def test_an_exclusion_leaves_out_cells_that_have_all_its_values() -> None:
    assert cells(METHOD, DENSITY, exclude=({"method": "a", "density": 0.1}, {"density": 0.3})) == [
        ("a", 0.2),
        ("b", 0.1),
        ("b", 0.2),
    ]
    unset = Axis("gpus", (None, 1.0))
    assert cells(unset, exclude=({"gpus": None},)) == [(1.0,)], "an unset value is a value"
    assert len(cells(METHOD, DENSITY, exclude=({"seed": None},))) == 6, "a parameter that the cell lacks is none"


def test_points_come_after_the_product_and_are_not_left_out() -> None:
    point = {"density": 0.3, "seed": 7}
    assert cells(METHOD, points=(point,), exclude=({"density": 0.3},)) == [("a",), ("b",), (0.3, 7)]


def test_a_cell_knows_where_its_values_come_from() -> None:
    placed = list(grid((METHOD, DENSITY), ({"seed": 1},), ({"method": "a"},)))
    assert placed[1].origin == Origin({"method": (0, 1), "density": (1, 1)})
    assert placed[-1].origin == Origin({}, 0)


@given(st.integers(0, 2**32), st.integers(1, 40), st.booleans())
def test_nothing_is_drawn_twice_and_everything_within_the_bounds(seed: int, count: int, log: bool) -> None:
    axes = (METHOD, Axis("density", (), Range(0.013, 0.0130001 if count > 30 else 0.47, log)))
    found = draw(axes, count, Random(seed), ({"method": "b"},), key)
    assert len(found) == len({key(placed.cell) for placed in found})
    assert len(found) == (count if count <= 30 else len(found)) <= count
    for placed in found:
        assert placed.cell["method"] == "a"
        assert 0.013 <= placed.cell["density"] <= 0.47
    assert found == draw(axes, count, Random(seed), ({"method": "b"},), key), "the seed decides"


@pytest.mark.parametrize("count", [1, 5, 6, 50])
def test_a_small_space_is_drawn_whole_and_no_more(count: int) -> None:
    found = draw((METHOD, DENSITY), count, Random(0), (), key)
    assert len(found) == min(count, 6)


def test_a_range_in_the_logarithm_favours_no_magnitude() -> None:
    chance = Random(0)
    drawn = [Range(0.001, 1.0, log=True).draw(chance) for _ in range(3000)]
    shares = [sum(low <= value < 10 * low for value in drawn) / 3000 for low in (0.001, 0.01, 0.1)]
    assert all(0.28 < share < 0.39 for share in shares)
