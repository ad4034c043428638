"""Which tickets win."""

from __future__ import annotations

import math

import pytest

from mvprune.sweep.tickets.criterion import compare, student


def test_the_dense_mean_within_a_standard_deviation_of_the_ticket_wins() -> None:
    dense = {0: 0.80, 1: 0.82, 2: 0.84}
    # ticket: mean 0.80, standard deviation 0.02; the dense mean is 0.82; floats round, so a little on either side
    just = compare(dense, {0: 0.7801, 1: 0.80, 2: 0.8201})
    assert just.wins
    assert not compare(dense, {0: 0.7799, 1: 0.7999, 2: 0.8198}).wins
    assert compare(dense, {0: 0.90, 1: 0.90, 2: 0.90}).wins  # better than the dense model
    assert not compare({0: 9.0, 1: 9.0}, {0: 12.0, 1: 12.5}, less_is_better=True).wins
    # differences −0.0199, −0.02, −0.0199; t(0.975, 2) = 4.302653
    differences = [-0.0199, -0.02, -0.0199]
    mean = sum(differences) / 3
    deviation = math.sqrt(sum((each - mean) ** 2 for each in differences) / 2)
    assert just.difference == pytest.approx(mean)
    assert just.interval == pytest.approx(4.302653 * deviation / math.sqrt(3), rel=1e-5)


def test_one_seed_neither_wins_nor_loses_and_other_seeds_are_left_out() -> None:
    found = compare({0: 0.8, 1: 0.1}, {0: 0.7, 2: 0.9})
    assert (found.wins, found.interval) == (None, None)
    assert found.difference == pytest.approx(-0.1)
    with pytest.raises(ValueError, match=r"must have a seed in common, got \[0\] and \[1\]"):
        compare({0: 0.8}, {1: 0.8})


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 6, 9, 10, 29, 99])
def test_the_quantile_is_that_of_scipy(freedom: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    assert student(freedom) == pytest.approx(float(stats.t.ppf(0.975, freedom)), rel=1e-9)
