"""A clock for tests with a store, which has a clock of its own."""

from __future__ import annotations

import pytest

from mvprune_service.clock import system_clock

from .conftest import TestClock


@pytest.fixture
def clock() -> TestClock:
    """Starts now, since the objects of a store get their times from the store's clock."""
    return TestClock(system_clock())
