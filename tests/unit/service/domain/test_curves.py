"""Curves in fewer points."""

from __future__ import annotations

import math

import pytest

from mvprune_service.domain.curves import thin

SPIKE = [(float(step), 9.0 if step == 617 else math.sin(step / 50)) for step in range(1000)]


@pytest.mark.parametrize("most", [3, 4, 50, 999])
def test_a_curve_keeps_its_ends_its_order_and_its_spike(most: int) -> None:
    kept = thin(SPIKE, most)
    assert len(kept) == most
    assert (kept[0], kept[-1]) == (0, 999)
    assert kept == sorted(set(kept))
    assert 617 in kept


@pytest.mark.parametrize("count", [0, 1, 2, 3, 10])
def test_a_short_curve_is_kept_whole(count: int) -> None:
    assert thin(SPIKE[:count], 10) == list(range(count))


@pytest.mark.parametrize("most", [3, 10, 50])
def test_where_a_curve_lies_and_how_steep_it_is_does_not_matter(most: int) -> None:
    moved = [(x / 2 + 4096, 8 * y - 512) for x, y in SPIKE]
    assert thin(moved, most) == thin(SPIKE, most)
