"""The method of a run that names none."""

from __future__ import annotations

from typing import Any

import pytest

from mvprune.data.tasks import get_task
from mvprune.spec.method_choice import SHORT_EXAMPLES, choose_method

FEW = {"events": 3, "first_event": 0.5, "gradients": 64}
SHORT = SHORT_EXAMPLES // 16


@pytest.mark.parametrize(
    ("given", "steps", "method", "options"),
    [
        ({}, 300, "obert", FEW),
        ({}, SHORT, "obert", FEW),
        ({}, SHORT + 1, "soft_movement", {}),
        ({}, 0, "soft_movement", {}),
        ({"batch_size": 32}, SHORT // 2, "obert", FEW),
        ({"batch_size": 32}, SHORT // 2 + 1, "soft_movement", {}),
        ({"pattern": "1x4"}, 300, "obert", FEW),
        ({"pruning_start": 0.2, "cooldown": 0.3}, 300, "obert", FEW),
        ({"events": 5, "gradients": 9}, 300, "obert", {"first_event": 0.5}),
        ({"density": 1}, 300, "soft_movement", {}),
    ],
)
def test_short_runs_have_obert_with_few_events(
    given: dict[str, Any], steps: int, method: str, options: dict[str, Any]
) -> None:
    choice = choose_method({"density": 0.1, "batch_size": 16} | given, get_task("sst2"), steps)
    assert (choice.method, choice.options) == (method, options)


@pytest.mark.parametrize("steps", [0, 300, 10 * SHORT])
def test_vectors_of_the_given_model_are_learned_with_obert(steps: int) -> None:
    choice = choose_method({"density": 0.1, "batch_size": 16}, get_task("retrieval"), steps)
    assert (choice.method, choice.options) == ("obert", FEW)
    assert choice.reason == "the method is obert: it loses least where vectors are learned from the given model"


@pytest.mark.parametrize(
    ("given", "steps", "obstacle"),
    [
        ({"pattern": "2:4", "density": 0.5}, 300, "pattern"),
        ({"structure": "layers"}, 300, "structure"),
        ({"score_learning_rate": 0.1}, 300, "score_learning_rate"),
        ({"shape": "cubic"}, 300, "shape"),
        ({"pruning_start": 0.0}, 300, "pruning_start"),
        ({}, 4, "pruning_start in 4 steps"),
        ({"gradients": 9}, SHORT + 1, "gradients"),
        ({"events": 9}, SHORT + 1, "events"),
    ],
)
def test_the_options_that_are_given_restrict_the_choice(given: dict[str, Any], steps: int, obstacle: str) -> None:
    choice = choose_method({"density": 0.1, "batch_size": 16} | given, get_task("sst2"), steps)
    assert choice.method == ("soft_movement" if steps <= SHORT else "obert")
    assert choice.reason.endswith(f"is not possible with {obstacle}")


def test_what_no_method_can_follow_is_left_to_the_rules() -> None:
    both = {"density": 0.1, "gradients": 9, "penalty": 1.0}
    assert choose_method(both, get_task("sst2"), 300).method == "obert"
    assert choose_method({"density": 7.0, "batch_size": -1}, get_task("sst2"), 300).method == "soft_movement"
