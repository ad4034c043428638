"""PLATON against its formulas by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from mvprune.data.loading import ClassificationData
from mvprune_core import Platon, RunTooShort, Schedule, Training, compress
from mvprune_core.training.masking import Masks

SCHEDULE = Schedule(
    pruning_start=0.1, cooldown=0.2
)  # of 200 steps: windows of ten steps, the density is final after 160
TOTAL = 200


def test_the_masks_after_each_window_are_those_of_the_averages_by_hand() -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"layer": nn.ModuleList([nn.Linear(6, 8), nn.Linear(8, 4)])})
    method = Platon(schedule=SCHEDULE, sensitivity_decay=0.6, uncertainty_decay=0.7)
    masks = Masks(model, method.for_run(TOTAL), density=0.25, total_steps=TOTAL, seed=0)
    generator = torch.Generator().manual_seed(1)
    size = sum(matrix.weight.numel() for matrix in masks.matrices)
    window, average, uncertainty = torch.zeros(size), torch.zeros(size), torch.zeros(size)
    returned = 0
    for step in range(1, TOTAL + 1):
        before = torch.cat([matrix.kept.reshape(-1) for matrix in masks.matrices])
        for matrix in masks.matrices:
            matrix.weight.grad = torch.randn(matrix.weight.shape, generator=generator)
        products = [matrix.weight.detach() * matrix.weight.grad for matrix in masks.matrices]
        window += torch.cat([product.reshape(-1) for product in products]).abs() / 10
        if step % 10 == 0:
            average = 0.6 * average + 0.4 * window
            uncertainty = 0.7 * uncertainty + 0.3 * (window - average).abs()
            window = torch.zeros(size)
        masks.backward()
        masks.update(step)
        after = torch.cat([matrix.kept.reshape(-1) for matrix in masks.matrices])
        if step % 10:
            assert torch.equal(after, before), "masks change only after a window"
            continue
        density = SCHEDULE.density_at(step, TOTAL, 0.25)
        top = (average * uncertainty).argsort(descending=True)[: int(density * size + 1e-9)]
        assert torch.equal(after, torch.zeros(size, dtype=torch.bool).index_fill_(0, top, True))
        returned += int((after & ~before).sum())
    assert returned > 0, "weights come back"
    assert masks.current_density == 0.25


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"method": "platon"}, "take selection local, or a higher density"),
        ({"method": "platon", "density": 0.5}, ""),
        ({"method": Platon(selection="local")}, ""),
    ],
)
def test_matrices_that_are_emptied_are_named(
    model_folder: Path, data: ClassificationData, options: dict[str, Any], remedy: str
) -> None:
    short = Training(max_steps=10, batch_size=8, learning_rate=5e-3)
    fixed: dict[str, Any] = {"density": 0.005, "training": short, "dense_baseline": False}
    result = compress(model_folder, data, **fixed | options)
    empty = [layer.name.removesuffix(".weight") for layer in result.layers if not layer.nonzero]
    notes = [note for note in result.notes if "no weights left" in note]
    assert bool(empty) == bool(remedy)
    names = ", ".join(empty[:6]) + (f" and {len(empty) - 6} more" if len(empty) > 6 else "")
    start = f"{len(empty)} of 12 pruned matrices have no weights left, and give only their bias: {names}; "
    assert notes == ([start + remedy] if remedy else [])


@pytest.mark.parametrize("total", [10, 47, 99])
def test_short_runs_have_shorter_windows_and_reach_the_density(total: int) -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"layer": nn.ModuleList([nn.Linear(10, 10)])})
    masks = Masks(model, Platon().for_run(total), density=0.3, total_steps=total, seed=0)
    (matrix,) = masks.matrices
    for step in range(1, total + 1):
        matrix.weight.grad = torch.randn(10, 10)
        masks.backward()
        masks.update(step)
        if step == masks.method.schedule.pruning_end(total):
            assert masks.current_density == 0.3
            assert matrix.buffers["sensitivity"].all(), "no weight is chosen without a gradient"
    assert int(matrix.kept.sum()) == 30


def test_options_out_of_range_and_a_schedule_without_gradients_are_refused() -> None:
    with pytest.raises(ValueError, match="sensitivity_decay must be"):
        Platon(sensitivity_decay=1.0)
    with pytest.raises(ValueError, match="uncertainty_decay must be"):
        Platon(uncertainty_decay=-0.1)
    with pytest.raises(RunTooShort, match=r"schedule\.pruning_start must be at least one step with the method platon"):
        Schedule("one_shot", pruning_start=0.0).check(100, Platon().facts)
