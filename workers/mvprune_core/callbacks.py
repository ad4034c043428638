"""What a compression tells while it runs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """State after one training step.

    Attributes:
        phase: "dense" or "pruning".
        step: steps done in this phase, from 1.
        total_steps: of this phase.
        density: fraction of the prunable weights that are kept after the step.
        loss: of a recent step; on a CUDA device it is refreshed every few steps, so as not to wait for the device.
        eta_seconds: estimated time left in this phase.
    """

    phase: str
    step: int
    total_steps: int
    density: float
    loss: float
    eta_seconds: float


class Callback:
    """Subclass and override what is wanted. An exception raised here ends the compression."""

    def on_phase(self, name: str) -> None:
        """A phase begins: "loading", "dense", "evaluating", "teaching" or "pruning"."""

    def on_step(self, progress: Progress) -> None:
        """A training step is done."""

    def on_examples(self, phase: str, done: int, total: int) -> None:
        """So many examples are read, in a phase that reads each once: "evaluating" or "teaching"."""

    def on_resume(self, phase: str, step: int) -> None:
        """`phase` goes on after `step` steps, from a checkpoint."""

    def on_checkpoint(self, steps: int) -> None:
        """A checkpoint is whole on the disk; `steps` are done in all phases together."""

    def on_evaluate(self, phase: str, step: int, metrics: Mapping[str, float]) -> None:
        """A model was evaluated after `step` steps: `phase` is "dense" or "pruning", `metrics` has plain names."""

    def on_note(self, text: str) -> None:
        """Something was guessed, was replaced or looks wrong; the result has it among its `notes`. By default it is a
        Python warning."""
        warnings.warn(text, RuntimeWarning, stacklevel=2)
