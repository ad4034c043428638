"""How long a run is: the epochs of presets, the steps that they make, and how many steps a density is likely to need.

Service and core say the same of a run, so it is here, without torch.
"""

from __future__ import annotations

import math
from typing import Literal

from mvprune.data.kinds.base import Task

Preset = Literal["short", "paper", "long"]

_COOLDOWN, _LONG_COOLDOWN = 0.4, 0.5
EVENTS = 4
"""How often a schedule of events prunes, if it names no number."""
NEEDED_EXAMPLES = {False: 500, True: 2_000}
"""Examples, times √density, that a run is likely to need: over single texts, and over pairs of texts. How well they fit
the recorded runs: research/run_length.py."""
_FINE_TUNED_EXAMPLES = 4_000
"""The same for a model that is fine-tuned already to lose at most a tenth of its gain over a constant answer: its dense
form has had training that the pruned one has to make up for. MiniLM and BERT-tiny on SST-2 (research/notebook.md)."""

# Pruning needs a number of steps, not of epochs, unless there are few examples (research/notebook.md).
_USUAL_STEPS, _MOST_USUAL_EPOCHS = 3000, 30
# BERT-tiny pruned to 10 % on 100 sentences of SST-2: after 12 or 40 steps it always predicts the same class; after 200
# its accuracy is about 61 %, after 600 no higher.
_FEWEST_STEPS = 200

_MASK_INTERVAL = 100
_LEAST_UPDATES = 20  # updates of the masks in a run of any length


def epochs_of(task: Task, examples: int | None, batch_size: int, preset: Preset = "short") -> float:
    """The epochs of a preset.

    `short` is the task's number, and more over few examples: enough for 3,000 steps, at most 30 epochs, and at least
    200 steps. `paper` is the published number (Sanh et al. 2020, https://arxiv.org/abs/2005.07683, appendix A.1), or
    that of `short` if it is larger. `long` is twice that of `paper`.

    Args:
        examples: examples to train on; None: many.
    """
    epochs = task.epochs
    if examples is not None:
        steps = math.ceil(examples / batch_size)
        few = min(math.ceil(_USUAL_STEPS / steps), _MOST_USUAL_EPOCHS)
        epochs = max(epochs, few, math.ceil(_FEWEST_STEPS / steps))
    if preset == "short":
        return epochs
    return max(epochs, task.paper_epochs) * (2 if preset == "long" else 1)


def default_cooldown(preset: Preset = "short") -> float:
    """Fraction of the steps at the final density, of a schedule that names none."""
    return _LONG_COOLDOWN if preset == "long" else _COOLDOWN


def steps_of(epochs: float, examples: int, batch_size: int) -> int:
    """Optimizer steps of so many epochs."""
    return math.ceil(epochs * math.ceil(examples / batch_size))


def planned_steps(
    task: Task,
    examples: int | None,
    *,
    max_steps: int | None = None,
    epochs: float | None = None,
    batch_size: int | None = None,
    preset: Preset | None = None,
) -> int:
    """Optimizer steps of a training with these options; 0: they are not known.

    Args:
        examples: examples to train on; None: they are not known.
    """
    if max_steps or examples is None or not math.isfinite(epochs or 0):  # such epochs are refused elsewhere
        return max_steps or 0
    batch_size = batch_size or task.batch_size
    return steps_of(epochs or epochs_of(task, examples, batch_size, preset or "short"), examples, batch_size)


def mask_interval_of(steps: int) -> int:
    """Steps between two updates of the masks of a method that drops and grows weights, if none are given."""
    return max(1, min(_MASK_INTERVAL, steps // _LEAST_UPDATES))


def preset_note(task: Task, examples: int, batch_size: int, preset: Preset) -> str:
    """The meaning of a preset for a run, as a note."""
    epochs, usual = (epochs_of(task, examples, batch_size, one) for one in (preset, "short"))
    steps, short = (steps_of(one, examples, batch_size) for one in (epochs, usual))
    times = "" if preset == "short" else f", {steps / short:.2g} times those of short"
    return f"preset {preset}: {epochs:g} epochs of {examples:,} examples, {steps:,} steps of {batch_size}{times}"


def needed_steps(density: float, batch_size: int, *, has_pairs: bool, fine_tuned: bool = False) -> int:
    """Steps below which a run is likely to lose much more than it has to: n / (batch size · √density).

    Args:
        has_pairs: whether an input is a pair of texts, such as a question and a passage.
        fine_tuned: whether the model is fine-tuned for the task already.
    """
    examples = max(NEEDED_EXAMPLES[has_pairs], _FINE_TUNED_EXAMPLES if fine_tuned else 0)
    return math.ceil(examples / (batch_size * math.sqrt(density)))


def too_short(
    steps: int, density: float, batch_size: int, *, has_pairs: bool, fine_tuned: bool | None = False
) -> str | None:
    """A note on a run whose steps are likely too few for its density; None if they are enough. The rule was fitted on
    gradual schedules; one of events needs no fewer steps.

    Args:
        has_pairs: see `needed_steps`.
        fine_tuned: see `needed_steps`; None: it is not known.
    """
    if density >= 1:
        return None
    run, remedy = f"{steps:,} steps of {batch_size} examples", "take more steps, larger batches or a higher density"
    if steps < (needed := needed_steps(density, batch_size, has_pairs=has_pairs)):
        return f"{run} are likely too few for the density {density:g}: about {needed:,} steps are needed; {remedy}"
    needed = needed_steps(density, batch_size, has_pairs=has_pairs, fine_tuned=True)
    if fine_tuned is False or steps >= needed:
        return None
    model = "this fine-tuned model" if fine_tuned else "a model that is fine-tuned already"
    return (
        f"{run} likely cost {model} more than a tenth of its gain over a constant "
        f"answer at the density {density:g}: about {needed:,} steps are needed to keep that; {remedy}"
    )
