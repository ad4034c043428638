"""A model's config about its outputs, and notes on what a task changes in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mvprune_core.tasks.classes import class_names

REGRESSION, PROBABILITY = "regression", "multi_label_classification"
"""Of `problem_type`: transformers trains with squared errors, or with a binary cross-entropy for every label."""

_SHOWN = 10  # classes
_ACTIVATIONS = ("sentence_transformers", "sbert_ce_default_activation_function")


def is_probability(config: Any) -> bool:
    """Whether a model's one output is the logit of a probability: pipelines of transformers apply a sigmoid to it."""
    return bool(config.num_labels == 1 and config.problem_type != REGRESSION)


@dataclass(frozen=True)
class Head:
    """The keys of a config about the outputs."""

    problem_type: str | None
    classes: tuple[str, ...]
    is_probability: bool
    activation: str

    @classmethod
    def of(cls, config: Any) -> Head:
        """The present values of a config."""
        given = (getattr(config, key, None) for key in _ACTIVATIONS)
        named = (value.get("activation_fn") if isinstance(value, dict) else value for value in given)
        activation = next((value for value in named if isinstance(value, str)), "")
        return cls(config.problem_type, tuple(class_names(config)), is_probability(config), activation)

    def notes(self, now: Head, *, is_new: bool) -> tuple[str, ...]:
        """What a task changed in the config, and what a score is where that is not plain.

        Args:
            now: after the change.
            is_new: whether the weights of the head are not the checkpoint's.
        """
        notes = []
        if now.is_probability:
            kept = f"; {self.activation}, which sentence-transformers applies, stays" if self.activation else ""
            notes.append(
                "the model has one output and no regression as its problem_type: a score is the sigmoid of the logit, "
                "as in pipelines of transformers, and it is trained with binary cross-entropy (problem_type "
                f"{PROBABILITY}){kept}"
            )
        elif self.is_probability and now.problem_type == REGRESSION:
            notes.append(
                "a score of the given model is the sigmoid of its one logit, but the values of the data are not all in "
                "[0, 1]: a score is now the logit itself, and problem_type is regression"
            )
        elif self.problem_type not in (None, now.problem_type):
            notes.append(f"the model's problem_type was {self.problem_type} and is {now.problem_type}")
        if not is_new and self.classes != now.classes and len(self.classes) == len(now.classes):
            pairs = [f"{old} is {new}" for old, new in zip(self.classes, now.classes, strict=True)]
            more = f" and {len(pairs) - _SHOWN:,} more" if len(pairs) > _SHOWN else ""
            notes.append(
                f"the model's classes have the names of the data, by number: {', '.join(pairs[:_SHOWN])}{more}"
            )
        return tuple(notes)
