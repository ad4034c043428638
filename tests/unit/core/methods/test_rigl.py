"""RigL against its formulas by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from mvprune_core import RigL, RunTooShort, SparseMomentum
from mvprune_core.training.masking import Masks

TOTAL = 80


def test_the_masks_are_those_of_the_papers_algorithm() -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"layer": nn.ModuleList([nn.Linear(12, 10), nn.Linear(10, 6)])})
    method = RigL(drop_fraction=0.4, mask_interval=10, mask_until=0.75).for_run(TOTAL)
    masks = Masks(model, method, density=0.4, total_steps=TOTAL, seed=0)
    for matrix in masks.matrices:
        largest = matrix.weight.detach().abs().reshape(-1).argsort(descending=True)[: int(0.4 * matrix.weight.numel())]
        assert set(matrix.kept.reshape(-1).nonzero().flatten().tolist()) == set(largest.tolist()), "by |W| at the start"
    generator = torch.Generator().manual_seed(1)
    exchanged = 0
    for step in range(1, TOTAL + 1):
        expected = []
        for matrix in masks.matrices:
            gradient = torch.randn(matrix.weight.shape, generator=generator)
            matrix.weight.grad = gradient.clone()
            kept = set(matrix.kept.reshape(-1).nonzero().flatten().tolist())
            with torch.no_grad():  # an optimizer's step
                matrix.weight.sub_(0.05 * gradient * matrix.kept)
            if step % 10 == 0 and step < 60:
                fraction = 0.4 / 2 * (1 + math.cos(math.pi * step / 60))
                dropped = math.floor(fraction * len(kept) + 1e-12)
                magnitudes = matrix.weight.detach().abs().reshape(-1)
                stay = set(sorted(kept, key=lambda one: -magnitudes[one])[: len(kept) - dropped])
                gradients = gradient.abs().reshape(-1)
                others = sorted(set(range(len(gradients))) - stay, key=lambda one: -gradients[one])
                grown = set(others[:dropped])
                expected.append((stay | grown, grown - kept))
                exchanged += len(grown - kept)
            else:
                expected.append((kept, set()))
        masks.backward()
        masks.update(step)
        for matrix, (mask, new) in zip(masks.matrices, expected, strict=True):
            assert set(matrix.kept.reshape(-1).nonzero().flatten().tolist()) == mask, step
            assert matrix.weight.detach().reshape(-1)[list(new)].abs().le(1e-29).all(), "they start at 0"
    assert exchanged > 10
    assert masks.current_density == 0.4


@pytest.mark.parametrize(("steps", "mask_interval"), [(5, 1), (100, 5), (3_000, 100)])
def test_the_interval_suits_the_run(steps: int, mask_interval: int) -> None:
    assert RigL().for_run(steps).mask_interval == mask_interval
    assert RigL(mask_interval=3).for_run(steps).mask_interval == 3


@pytest.mark.parametrize("method", [RigL, SparseMomentum])
def test_a_run_that_would_never_exchange_a_weight_is_refused(method: type[RigL]) -> None:
    """The last exchange is before 3/4 of the steps."""
    assert method(mask_interval=74).for_run(100).mask_interval == 74
    said = "mask_interval must be below 75, the steps until the masks stay as they are, got 75; give more steps"
    with pytest.raises(RunTooShort, match=said):
        method(mask_interval=75).for_run(100)
    assert method().for_run(2).mask_interval == 1
    with pytest.raises(RunTooShort, match=r"below 1, .*, got 1; .* or a later mask_until"):
        method().for_run(1)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"drop_fraction": 0.0}, "drop_fraction must be"),
        ({"drop_fraction": 1.0}, "drop_fraction must be"),
        ({"mask_until": 0.0}, "mask_until must be"),
        ({"mask_until": 1.1}, "mask_until must be"),
        ({"mask_interval": 0}, "mask_interval must be from 1 to 1,000,000, got 0"),
        ({"mask_interval": 2.5}, r"mask_interval must be a whole number from 1 to 1,000,000, got 2\.5"),
        ({"selection": "all"}, "selection must be"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        RigL(**options)  # type: ignore[arg-type]
