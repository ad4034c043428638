"""Callbacks of a compression."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mvprune.data.phases import Phase

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Progress:
    """The state after a training step.

    Attributes:
        phase: "dense" or "pruning".
        step: steps done in this phase, from 1.
        total_steps: steps of this phase.
        density: fraction of the prunable weights that are kept after the step.
        loss: loss of a recent step; on a CUDA device it is read only every few steps, to avoid synchronization.
    """

    phase: str
    step: int
    total_steps: int
    density: float
    loss: float


class Callback:
    """Base class of callbacks: override methods as needed. An exception raised in one ends the compression.

    While a model is pruned, `layer.weight` and `model.get_parameter` return W' = M ⊙ W, a copy that takes no changes.
    `model.named_parameters` has W, which the optimizer updates, and its gradient.
    """

    def on_plan(self, phases: Sequence[Phase]) -> None:
        """The phases to come, after "loading". One whose result is cached is left out later."""

    def on_phase(self, name: str) -> None:
        """A phase begins: "loading", "dense", "evaluating", "writing", "teaching" or "pruning". While a method prunes
        by many gradients at once (obert), "sampling" and "scoring" come between steps, and "pruning" again."""

    def on_step(self, progress: Progress) -> None:
        """A training step is done."""

    def on_examples(self, phase: str, done: int, total: int) -> None:
        """The model has read `done` of `total` examples, in the phase "evaluating", "teaching" or "sampling"; in
        "writing", it has written a text for them; in "scoring", as many passes over a matrix are done."""

    def on_resume(self, phase: str, step: int) -> None:
        """`phase` resumes from a checkpoint, after `step` steps."""

    def on_checkpoint(self, steps: int) -> None:
        """A checkpoint is complete on the disk; `steps` are done in all phases together. The last one of a phase is
        written in a thread, which then calls this."""

    def on_evaluate(self, phase: str, step: int, metrics: Mapping[str, float]) -> None:
        """A model was evaluated after `step` steps: `phase` is "dense" or "pruning"; `metrics` has no prefixes."""

    def on_note(self, text: str) -> None:
        """Something was guessed, was replaced or looks wrong; the result's `notes` have it too.

        By default it is logged as a warning. It is no Python warning, which asks for a change of the calling code.
        """
        log.warning("%s", text)


class Silent(Callback):
    """The callback of ranks other than 0."""

    def on_note(self, text: str) -> None:
        """See Callback."""
