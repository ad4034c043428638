"""RPP against its proximal step by hand."""

from __future__ import annotations

import torch
from torch import nn

from mvprune_core import RPP, Schedule
from mvprune_core.training.masking import Masks

TOTAL = 40


def test_weights_follow_the_proximal_step() -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"layer": nn.ModuleList([nn.Linear(10, 8), nn.Linear(8, 6)])})
    schedule = Schedule(pruning_start=0.1, cooldown=0.3)
    masks = Masks(model, RPP(schedule=schedule), density=0.2, total_steps=TOTAL, seed=0)
    size = sum(matrix.weight.numel() for matrix in masks.matrices)
    generator = torch.Generator().manual_seed(1)
    shrunk = 0
    for step in range(1, TOTAL + 1):
        before = torch.cat([matrix.masked.reshape(-1) for matrix in masks.matrices])
        for matrix in masks.matrices:
            gradient = torch.randn(matrix.weight.shape, generator=generator)
            matrix.weight.grad = gradient.clone()
        masks.backward()
        for matrix in masks.matrices:
            with torch.no_grad():
                matrix.weight.sub_(0.01 * matrix.weight.grad)
        after = torch.cat([matrix.weight.detach().reshape(-1) for matrix in masks.matrices])
        masks.update(step)
        result = torch.cat([matrix.masked.reshape(-1) for matrix in masks.matrices])
        density = schedule.density_at(step, TOTAL, 0.2)
        if density == 1 or step > 0.7 * TOTAL:
            assert torch.equal(result, torch.where(before == 0, 0.0, after)), "nothing shrinks"
            continue
        products = torch.where(before == 0, 0.0, after.abs() * (before.abs() + 1e-9))
        count = int(density * size + 1e-9)
        order = products.argsort(descending=True)
        strength = products[order[count]]  # the least that leaves `count` weights
        expected = torch.zeros(size)
        kept = order[:count]
        proximal = after[kept].sign() * (after[kept].abs() - strength / (before[kept].abs() + 1e-9)).clamp_min(0)
        expected[kept] = proximal
        torch.testing.assert_close(result, expected, atol=1e-7, rtol=1e-5)
        assert int((result != 0).sum()) == count
        shrunk += 1
    assert shrunk > 15
    assert masks.current_density == 0.2
