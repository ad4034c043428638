"""Sparse momentum against its formulas by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from mvprune_core import SparseMomentum
from mvprune_core.methods.sparse_momentum import shared_out
from mvprune_core.training.masking import Masks

TOTAL = 60


def test_weights_are_shared_by_momentum_and_grown_by_it() -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"layer": nn.ModuleList([nn.Linear(20, 20), nn.Linear(20, 10)])})
    method = SparseMomentum(mask_interval=6, mask_until=0.5).for_run(TOTAL)
    masks = Masks(model, method, density=0.3, total_steps=TOTAL, seed=0)
    first, second = masks.matrices
    generator = torch.Generator().manual_seed(1)
    averages = [torch.zeros(matrix.weight.shape) for matrix in masks.matrices]
    squares = [torch.zeros(matrix.weight.shape) for matrix in masks.matrices]
    moved = 0
    for step in range(1, TOTAL + 1):
        kept = [set(matrix.kept.reshape(-1).nonzero().flatten().tolist()) for matrix in masks.matrices]
        for index, matrix in enumerate(masks.matrices):
            # The second matrix's gradients have one sign: its momentum is larger relative to their size.
            gradient = torch.randn(matrix.weight.shape, generator=generator)
            gradient = gradient.abs() if index else gradient
            matrix.weight.grad = gradient.clone()
            averages[index] = 0.9 * averages[index] + 0.1 * gradient
            squares[index] = 0.999 * squares[index] + 0.001 * gradient**2
            with torch.no_grad():
                matrix.weight.sub_(0.01 * gradient * matrix.kept)
        masks.backward()
        weights = [matrix.weight.detach().abs().reshape(-1).clone() for matrix in masks.matrices]
        masks.update(step)
        after = [set(matrix.kept.reshape(-1).nonzero().flatten().tolist()) for matrix in masks.matrices]
        if step % 6 or step >= 30:
            assert after == kept, step
            continue
        momenta = [(a.abs() / (s.sqrt() + 1e-8)).reshape(-1) for a, s in zip(averages, squares, strict=True)]
        fraction = 0.25 * (1 + math.cos(math.pi * step / 30))
        dropped = [math.floor(fraction * len(one) + 1e-12) for one in kept]
        means = [float(m[list(one)].mean()) for m, one in zip(momenta, kept, strict=True)]
        grown = [int(sum(dropped) * mean / sum(means)) for mean in means]
        grown[means.index(max(means))] += sum(dropped) - sum(grown)
        for index in range(2):
            stay = set(
                sorted(kept[index], key=lambda one, w=weights[index]: -w[one])[: len(kept[index]) - dropped[index]]
            )
            others = set(range(len(weights[index]))) - stay
            best = sorted(others, key=lambda one, m=momenta[index]: -m[one])[: grown[index]]
            assert after[index] == stay | set(best), step
        moved += len(after[1]) - len(kept[1])
    assert moved > 0, "the matrix with more momentum has more weights"
    assert int(first.kept.sum()) + int(second.kept.sum()) == 120 + 60


@given(
    rooms=st.lists(st.integers(0, 50), min_size=1, max_size=6),
    shares=st.lists(st.floats(0, 10), min_size=6, max_size=6),
    part=st.floats(0, 1),
)
def test_all_are_shared_out_within_the_room(rooms: list[int], shares: list[float], part: float) -> None:
    count = int(part * sum(rooms))
    given_ = shared_out(count, shares[: len(rooms)], rooms)
    assert sum(given_) == count
    assert all(0 <= one <= room for one, room in zip(given_, rooms, strict=True))


def test_at_most_99_percent_of_a_matrix_are_grown_where_others_have_room() -> None:
    assert shared_out(150, [1.0, 0.0], [100, 100]) == [99, 51]
    assert shared_out(199, [1.0, 0.0], [100, 100]) == [100, 99], "there is no other room"
    assert shared_out(10, [0.0, 0.0], [100, 100]) == [5, 5]
    assert shared_out(1, [0.4, 0.6], [100, 100]) == [0, 1]


def test_options_out_of_range_are_refused() -> None:
    assert SparseMomentum().drop_fraction == 0.5
    with pytest.raises(ValueError, match="drop_fraction must be"):
        SparseMomentum(drop_fraction=1.5)
