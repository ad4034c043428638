"""What a job was asked for, parameter by parameter."""

from __future__ import annotations

import pytest
from tests.unit.client.scripted_server import Fake, echo

from mvprune import Client
from mvprune.client.given import parameters, text_of
from mvprune.spec.parameters import PARAMETERS


def test_what_was_submitted_comes_back(fake: Fake, client: Client) -> None:
    fake.answers["CreateJob"] = echo
    given = {
        **{"task": "sst2", "method": "movement", "pruning_start": 0.0, "batch_size": 32, "learning_rate": 3e-5},
        **{"dropout": False, "delta": True, "include": ("*.attention.*",), "teacher": "job:j2", "baseline": "none"},
        **{"cpus": 2.0, "max_runtime": 7200.0, "gates": ["f1>=80"], "weight_dtype": "int8", "train": "server:/a"},
        "validation": "server:/b",
    }
    job = client.submit(model="bert-base-uncased", density=0.03, **given)  # type: ignore[arg-type]
    found = parameters(job)
    assert found == {**given, "model": "bert-base-uncased", "density": 0.03}
    again = client.submit(**found)
    assert again.spec == job.spec
    assert again.policy == job.policy


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("density", 0.03, "0.03"),
        ("max_runtime", 7200.0, "7200s"),
        ("target_bytes", 10_000_000, "10MB"),
        ("dropout", False, "false"),
        ("include", ("a", "b"), "a, b"),
        ("learning_rate", 3e-5, "3e-05"),
        ("labels", {"team": "search", "a": "b"}, "a=b, team=search"),
    ],
)
def test_values_for_people(name: str, value: object, text: str) -> None:
    assert text_of(PARAMETERS[name], value) == text
