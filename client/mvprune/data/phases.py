"""The phases of a job, in their order. Service and core say the same of a run, so they are here, without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TRAININGS = ("dense", "pruning")


@dataclass(frozen=True)
class Phase:
    """One phase; a number that is not known is 0.

    Attributes:
        name: dense, evaluating, writing, teaching or pruning, as in `Progress`.
        steps: optimizer steps, if it is a training.
        examples: examples that the model reads, or writes a text for, in all steps together.
        evaluations: evaluations between its steps.
    """

    name: str
    steps: int = 0
    examples: int = 0
    evaluations: int = 0

    @property
    def is_training(self) -> bool:
        """Whether it has steps."""
        return self.name in TRAININGS


def phases_of(
    *,
    baseline: bool,
    teacher: Literal["dense", "other"] | None,
    writes: bool = False,
    predicts: bool = True,
    trains_dense: bool = True,
    prunes: bool = True,
    steps: int,
    batch_size: int,
    evaluate_every: int,
    train: int,
    validation: int,
) -> list[Phase]:
    """The phases of a run, without loading and uploading.

    Args:
        baseline: whether the run evaluates a dense baseline of its own.
        teacher: the run's own dense model, or another model; None: there is no teacher.
        writes: whether the teacher writes the training targets.
        predicts: whether its predictions of the targets are learned.
        trains_dense: whether the dense model has to be trained: it is not if it is fine-tuned already.
        prunes: whether the result is trained.
        steps: optimizer steps of each training; 0: not known.
        batch_size: examples in a step.
        evaluate_every: steps between two evaluations; 0: there are none between steps.
        train: examples to train on; 0: not known.
        validation: examples to evaluate on; 0: not known.
    """
    evaluations = -(-steps // evaluate_every) if evaluate_every else 0
    evaluating = Phase("evaluating", examples=validation)
    # The teacher reads the examples of the steps, each once.
    read = min(train, steps * batch_size) if train and steps else train
    teaching = [Phase("writing", examples=read)] * writes + [Phase("teaching", examples=read)] * predicts
    phases = [*teaching] if teacher == "other" else []
    if trains_dense and (baseline or teacher == "dense"):
        phases.append(Phase("dense", steps, steps * batch_size, evaluations))
    if baseline:
        phases.append(evaluating)
    if teacher == "dense":
        phases += teaching
    if prunes:
        phases.append(Phase("pruning", steps, steps * batch_size, evaluations))
    return [*phases, evaluating]
