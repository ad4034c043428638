"""The weights that a layer keeps, changed by least squares so that its outputs stay near."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.unit.core.architectures import LEFT, RIGHT, build
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from mvprune_core import OBERT, Magnitude, Schedule
from mvprune_core.models.prunable import prunable_layers
from mvprune_core.pruning.reconstruction import INPUTS, least_squares, reconstruct
from mvprune_core.training.masking import Masks

ONCE = Schedule("one_shot", pruning_start=0.1)


def test_each_output_comes_near_to_the_solution_of_its_normal_equations() -> None:
    torch.manual_seed(0)
    inputs = torch.randn(200, 12) @ torch.randn(12, 12)
    weight, mask = torch.randn(5, 12), torch.rand(5, 12) < 0.5
    mask[4] = False  # an output that keeps nothing
    moments = inputs.T @ inputs
    found = least_squares(weight, mask, moments)
    curvature = moments.double() + 0.01 * moments.diagonal().mean() * torch.eye(12)
    assert not found[~mask].any()
    for row, kept, result in zip(weight.double(), mask, found.double(), strict=True):
        best = torch.zeros(12, dtype=torch.float64)
        if kept.any():
            best[kept] = torch.linalg.solve(curvature[kept][:, kept], curvature[kept] @ row)

        least, before, after = (
            float(change @ curvature @ change) for change in (best - row, row * kept - row, result - row)
        )
        assert least - 1e-6 <= after <= least + 0.01 * (before - least) + 1e-6


def test_inputs_that_are_always_zero_change_nothing() -> None:
    weight, mask = torch.ones(2, 4), torch.tensor([[True, False, True, True]]).expand(2, 4)
    assert torch.equal(least_squares(weight, mask, torch.zeros(4, 4)), weight * mask)


def _conv1d() -> nn.Module:
    return Conv1D(6, 8)


@pytest.mark.parametrize("layer", [lambda: nn.Linear(8, 6), _conv1d], ids=["linear", "conv1d"])
def test_outputs_move_less_than_without_the_change_and_padding_is_not_read(layer: Callable[[], Any]) -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"layer": nn.ModuleList([layer()])})
    (only,) = model["layer"]  # type: ignore[arg-type]
    values = torch.randn(40, 10, 8) @ (torch.eye(8) + 0.5 * torch.randn(8, 8))
    attended = (torch.arange(10) < 6).int().expand(40, 10)
    values[:, 6:] = 1e3  # padding
    with torch.no_grad():
        before = only(values)
    masks = Masks(model, OBERT(schedule=ONCE, gradients=3), density=0.5, total_steps=10, seed=0)
    (matrix,) = masks.matrices
    dense = matrix.weight.detach().clone()
    with masks.sampling() as moments:
        assert moments is not None
        moments.begin_part(0, attended)
        only(values).square().sum().backward()
        moments.end_batch(attended.numel())
        masks.add_sample()
    read = values[attended.bool()]
    torch.testing.assert_close(matrix.samples[INPUTS], read.T @ read)
    masks.update(1)
    assert masks.current_density == 0.5
    with torch.no_grad():
        after, matrix.weight.data = only(values), dense
        unchanged = only(values)

    def distance(outputs: Tensor) -> Tensor:
        return (outputs - before)[:, :6].square().sum((0, 1))

    rows, kept = (some.t() if matrix.inputs_first else some for some in (dense, matrix.kept))
    for output, (row, mask) in enumerate(zip(rows, kept, strict=True)):
        best = torch.linalg.lstsq(read[:, mask], read @ row).solution
        least = float((read[:, mask] @ best - read @ row).square().sum())
        assert distance(after)[output] <= 1.1 * least + 1e-6  # damping
    assert distance(after).sum() < 0.95 * distance(unchanged).sum()


def test_batches_add_up_and_a_layer_that_does_not_compute_adds_nothing() -> None:
    first = nn.Linear(8, 6)
    model = nn.ModuleDict({"layer": nn.ModuleList([first, nn.Linear(8, 6)])})
    masks = Masks(model, OBERT(schedule=ONCE), density=0.5, total_steps=10, seed=0)
    values = torch.randn(2, 3, 8)
    with masks.sampling() as moments:
        assert moments is not None
        for batch in values:
            first(batch)
            moments.end_batch(3)
    read, unread = (matrix.samples[INPUTS] for matrix in masks.matrices)
    every = values.reshape(-1, 8)
    torch.testing.assert_close(read, every.T @ every)
    assert not unread.any()
    weights = [matrix.weight.detach().clone() for matrix in masks.matrices]
    for matrix in masks.matrices:
        matrix.mask = torch.rand_like(matrix.weight) < 0.5
        reconstruct(matrix)
    assert not torch.equal(masks.matrices[0].weight, weights[0])
    kept = masks.matrices[1].mask
    torch.testing.assert_close(masks.matrices[1].weight[kept], weights[1][kept])


@pytest.mark.parametrize("width", [8, 511, 512, 700, 1024])
def test_sums_of_batches_in_parts_are_those_of_all_rows(width: int) -> None:
    """Wide ones are computed in blocks, and the parts of a batch and of several layers add up."""
    torch.manual_seed(0)
    layer = nn.Linear(width, 2)
    model = nn.ModuleDict({"layer": nn.ModuleList([layer])})
    masks = Masks(model, OBERT(schedule=ONCE), density=0.5, total_steps=10, seed=0)
    values = torch.randn(5, 2, 300, width)
    with masks.sampling() as moments:
        assert moments is not None
        for batch in values:
            for part, rows in enumerate(batch):
                moments.begin_part(part, None)
                layer(rows)
            moments.end_batch(600)
        with torch.no_grad():
            layer(values)  # is no batch
    every, found = values.reshape(-1, width).double(), masks.matrices[0].samples[INPUTS]
    torch.testing.assert_close(found.double(), every.T @ every, rtol=1e-4, atol=1e-2)
    assert torch.equal(found, found.T)


def test_sums_are_exact_under_autocast() -> None:
    layer = nn.Linear(8, 6)
    model = nn.ModuleDict({"layer": nn.ModuleList([layer])})
    masks = Masks(model, OBERT(schedule=ONCE), density=0.5, total_steps=10, seed=0)
    values = torch.randn(50, 8)
    with masks.sampling() as moments, torch.autocast("cpu", dtype=torch.bfloat16):
        assert moments is not None
        layer(values)
        moments.end_batch(50)
    found = masks.matrices[0].samples[INPUTS]
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, values.T @ values)


def test_other_methods_and_the_update_of_the_paper_sample_no_inputs() -> None:
    for method in (Magnitude(), OBERT(weight_update="fisher")):
        model = nn.ModuleDict({"layer": nn.ModuleList([nn.Linear(8, 6)])})
        with Masks(model, method, density=0.5, total_steps=10, seed=0).sampling() as moments:
            assert moments is None


# Layers of luke for entities do not compute without any; those of squeezebert become nn.Linear when it is loaded.
@pytest.mark.parametrize("name", sorted({*RIGHT, *LEFT} - {"luke", "squeezebert"}))
def test_every_pruned_layer_of_an_architecture_has_its_inputs_sampled(name: str) -> None:
    model = build(name, {**RIGHT, **LEFT}[name])
    masks = Masks(model, OBERT(), density=0.5, total_steps=10, seed=0, layers=prunable_layers(model))
    ids = torch.randint(5, 20, (2, 8))
    ids[:, -1] = 3  # the end of the text
    with masks.sampling() as moments:
        assert moments is not None
        moments.begin_part(0, torch.ones_like(ids))
        model(input_ids=ids, attention_mask=torch.ones_like(ids))
        moments.end_batch(16)
    for matrix in masks.matrices:
        width = matrix.weight.shape[0 if matrix.inputs_first else 1]
        assert matrix.samples[INPUTS].shape == (width, width), matrix.name
        assert matrix.samples[INPUTS].abs().sum() > 0, matrix.name
