"""Methods of jobs that name none."""

from __future__ import annotations

from typing import Any

import pytest

from mvprune.v1 import job_pb2
from mvprune_service.domain.method import fill_method
from mvprune_service.domain.run_length import Rows

OBERT = {"schedule": {"events": 3, "first_event": 0.5}, "gradients": 64}
SHORT = {"max_steps": 300, "batch_size": 16}


@pytest.mark.parametrize(
    ("spec", "rows", "method"),
    [
        ({"training": SHORT}, None, {"obert": OBERT}),
        (
            {"training": SHORT, "auto": {"schedule": {"cooldown": 0.2}}},
            None,
            {"obert": OBERT | {"schedule": {"events": 3, "first_event": 0.5, "cooldown": 0.2}}},
        ),
        ({"training": {"epochs": 1}}, 900, {"obert": OBERT}),
        ({"training": {"epochs": 1}}, 90_000, {"soft_movement": {}}),
        ({"training": {"epochs": 1}}, None, {"soft_movement": {}}),
        ({"training": SHORT, "auto": {"penalty": 2}}, None, {"soft_movement": {"penalty": 2}}),
    ],
)
def test_a_method_is_chosen_with_its_options(spec: dict[str, Any], rows: int | None, method: dict[str, Any]) -> None:
    message = job_pb2.CompressionSpec(task="sst2", target_density=0.1, **spec)
    assert fill_method(message, None if rows is None else Rows(rows, False, 100)).startswith("the method is ")
    spec.pop("auto", None)
    assert message == job_pb2.CompressionSpec(task="sst2", target_density=0.1, **spec, **method)
    assert fill_method(message, None) == "", "it is chosen once"


@pytest.mark.parametrize("task", ["sst2", "no such task"])
def test_what_is_given_stays(task: str) -> None:
    given = {"magnitude": {}} if task == "sst2" else {"auto": {}}
    message = job_pb2.CompressionSpec(task=task, target_density=0.1, **given)
    assert fill_method(message, None) == ""
    assert message == job_pb2.CompressionSpec(task=task, target_density=0.1, **given)
