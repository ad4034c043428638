"""Rules of a job's options that hold whatever else is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from mvprune.data.tasks import get_task
from mvprune.spec.parameters import METHODS
from mvprune.spec.rules import problems


@pytest.mark.parametrize("given", [{"structure": "units"}, {"structure": "units", "density": 0.5}, {}])
def test_a_bad_density_of_structures_is_refused_with_and_without_a_density(
    given: dict[str, Any],
) -> None:
    found = [one.text for one in problems(given | {"structure_density": -1.0}, METHODS["magnitude"])]
    assert "must be above 0, at most 1, got -1.0" in found


@pytest.mark.parametrize(
    ("given", "task", "said"),
    [
        ({"teacher": "none"}, "xsum", "must be unset without a teacher, got 'true'"),
        (
            {"density": 1.0, "keep_fine_tuned": True},
            "xsum",
            "must be unset with keep_fine_tuned, which trains nothing, got 'true'",
        ),
        ({}, "masked-lm", "must be unset for the task masked-lm, got 'true'; it is an option of "),
        ({}, "xsum", ""),
        ({"teacher": "job:a"}, "causal-lm", ""),
    ],
)
def test_where_a_teacher_writes_targets(given: dict[str, Any], task: str, said: str) -> None:
    options = {"density": 0.5, "teacher_writes_targets": True, **given}
    found = [each for each in problems(options, METHODS["magnitude"], get_task(task)) if each.option not in given]
    assert [each.option for each in found] == ["teacher_writes_targets"] * bool(said)
    assert all(each.text.startswith(said) for each in found)
