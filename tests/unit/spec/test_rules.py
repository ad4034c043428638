"""Rules of a job's options that hold whatever else is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from mvprune.spec.parameters import METHODS
from mvprune.spec.rules import problems


@pytest.mark.parametrize("given", [{"structure": "units"}, {"structure": "units", "density": 0.5}, {}])
def test_a_bad_density_of_structures_is_refused_with_and_without_a_density(
    given: dict[str, Any],
) -> None:
    found = [one.text for one in problems(given | {"structure_density": -1.0}, METHODS["magnitude"])]
    assert "must be above 0, at most 1, got -1.0" in found
