"""What tests of the report start from."""

from __future__ import annotations

import pytest
from tests.unit.sweep.report.made_up import failed, grid, small_model

from mvprune.client.sweep_models import SweepPoint


@pytest.fixture
def points() -> list[SweepPoint]:
    return [*grid(), small_model(41), failed(42), failed(43)]
