from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mvprune_core import selection
from mvprune_core.selection import kept_count, select_top

# The way of other devices runs on the CPU too.
WAYS = [selection._select_by_partition, selection._select_on_device]
Way = Callable[[Tensor, int, Tensor, int], None]


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=60, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 13), st.integers(1, 17)),
    share=st.floats(0, 1),
    values=st.integers(1, 40),
    seed=st.integers(0, 2**32),
)
def test_selects_what_a_full_sort_selects(
    way: Way, shape: tuple[int, int], share: float, values: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    importance = torch.randint(values, shape, generator=generator).float() - values / 2  # few values: many ties
    count = max(1, round(share * importance.numel()))
    mask = torch.full(shape, 0.5)
    way(importance, count, mask, seed)
    assert set(mask.unique().tolist()) <= {0.0, 1.0}
    kept = importance[mask == 1].sort(descending=True).values
    assert torch.equal(kept, importance.flatten().sort(descending=True).values[:count])


@pytest.mark.parametrize("way", WAYS)
def test_ties_are_broken_at_random_but_by_the_seed(way: Way) -> None:
    masks = []
    for seed in (3, 3, 4):
        mask = torch.empty(64, 48)
        way(torch.zeros(64, 48), 307, mask, seed)
        masks.append(mask)
    assert [int(mask.sum()) for mask in masks] == [307] * 3
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])
    assert masks[0].sum(dim=1).max() < 20, "whole rows are kept"
    assert masks[0].sum(dim=0).max() < 20, "whole columns are kept"


@pytest.mark.parametrize("count", [0, 12])
def test_nothing_and_everything(count: int) -> None:
    mask = torch.full((3, 4), 0.5)
    select_top(torch.randn(3, 4), count, mask, 0)
    assert mask.sum() == count


@pytest.mark.parametrize("way", WAYS)
def test_values_that_are_not_numbers_do_not_break_selection(way: Way) -> None:
    way(torch.full((5, 5), torch.nan), 3, torch.empty(5, 5), 0)


@given(size=st.integers(1, 10**8), thousandths=st.integers(1, 1000))
def test_kept_count_is_the_exact_floor(size: int, thousandths: int) -> None:
    assert kept_count(size, thousandths / 1000) == int(Fraction(thousandths, 1000) * size)
