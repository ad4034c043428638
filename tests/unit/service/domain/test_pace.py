"""How often workers report, for every number of them."""

from __future__ import annotations

import pytest

from mvprune_service.domain.pace import LONGEST, interval_seconds, lease_seconds


@pytest.mark.parametrize(
    ("workers", "interval", "lease"),
    [
        (0, 1, 15),
        (100, 1, 15),
        (200, 2, 15),
        (400, 4, 20),
        (1000, 10, 50),
        (2500, 10, 50),
        (10_000, 40, 200),
        (1_000_000, 60, 300),
    ],
)
def test_the_interval_grows_with_the_workers(workers: int, interval: float, lease: float) -> None:
    assert interval_seconds(workers, 1.0) == interval
    assert lease_seconds(interval, 1.0, 15.0) == lease


def test_what_the_settings_ask_for_is_the_least() -> None:
    assert interval_seconds(400, 20.0) == 20
    assert lease_seconds(20.0, 20.0, 30.0) == 30, "few workers: the settings are taken as they are"
    assert interval_seconds(10**7, 1.0) == LONGEST
    assert interval_seconds(10**7, 90.0) == 90


def test_at_most_250_heartbeats_a_second_are_due_below_the_longest_interval() -> None:
    for workers in range(1, 15_000, 97):
        assert workers / interval_seconds(workers, 1.0) <= 250 * (1 + 1e-9)
