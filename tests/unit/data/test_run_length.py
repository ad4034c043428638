"""How long runs are, and how long they have to be."""

from __future__ import annotations

import math

import pytest

from mvprune.data.run_length import epochs_of, needed_steps, preset_note, steps_of, too_short
from mvprune.data.tasks import get_task


@pytest.mark.parametrize(
    ("density", "batch_size", "has_pairs", "steps"),
    [(0.1, 16, True, 396), (0.03, 32, True, 361), (0.3, 16, True, 229), (0.03, 32, False, 91), (1.0, 50, False, 10)],
)
def test_the_steps_that_a_density_needs(density: float, batch_size: int, has_pairs: bool, steps: int) -> None:
    assert needed_steps(density, batch_size, has_pairs=has_pairs) == steps
    assert steps == math.ceil((2_000 if has_pairs else 500) / batch_size / math.sqrt(density))


def test_a_note_says_how_many_steps_would_do() -> None:
    assert too_short(300, 0.1, 16, has_pairs=True) == (
        "300 steps of 16 examples are likely too few for the density 0.1: about 396 steps are needed; take more steps, "
        "larger batches or a higher density"
    )
    assert too_short(396, 0.1, 16, has_pairs=True) is None
    assert too_short(790, 0.1, 16, has_pairs=True, fine_tuned=True) == (
        "790 steps of 16 examples likely cost this fine-tuned model more than a tenth of its gain over a constant "
        "answer at the density 0.1: about 791 steps are needed to keep that; take more steps, larger batches or a "
        "higher density"
    )
    assert "likely cost a model that is fine-tuned" in str(too_short(790, 0.1, 16, has_pairs=True, fine_tuned=None))
    assert too_short(791, 0.1, 16, has_pairs=True, fine_tuned=None) is None
    assert too_short(1, 1.0, 16, has_pairs=True) is None


def test_a_note_on_a_preset_compares_it_with_the_default() -> None:
    note = preset_note(get_task("qqp"), 320_000, 32, "long")
    assert note == "preset long: 12 epochs of 320,000 examples, 120,000 steps of 32, 4 times those of short"
    assert preset_note(get_task("qqp"), 320_000, 32, "short").endswith(
        "3 epochs of 320,000 examples, 30,000 steps of 32"
    )


@pytest.mark.parametrize("examples", [10, 1_000, 50_000, 1_000_000])
@pytest.mark.parametrize("task", ["sst2", "squad", "masked-lm"])
def test_a_longer_preset_is_never_shorter(task: str, examples: int) -> None:
    short, paper, long = (
        steps_of(epochs_of(get_task(task), examples, 32, each), examples, 32) for each in ("short", "paper", "long")
    )
    assert short <= paper
    assert long == 2 * paper
