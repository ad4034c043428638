"""oBERT against its formulas by hand, in double precision, weight by weight."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mvprune_core import OBERT, RunTooShort, Schedule
from mvprune_core.training.masking import Masks

TOTAL = 10
TWICE = Schedule("events", pruning_start=0.2, cooldown=0.2, events=2, first_event=0.4)  # after the steps 2 and 8
DAMPING = 1e-3


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.ModuleDict({"layer": nn.ModuleList([nn.Linear(5, 6), nn.Linear(6, 3)])})


def _masks(model: nn.Module, **options: object) -> Masks:
    given: dict[str, Any] = {"schedule": TWICE, "damping": DAMPING, "fisher_block_size": 4, "gradients": 20}
    method = OBERT(**{**given, "weight_update": "fisher", **options})
    return Masks(model, method, density=0.3, total_steps=TOTAL, seed=0)


def _sample(masks: Masks, seed: int) -> dict[str, Tensor]:
    """Hands twenty gradients to the method. Returns them by matrix, shape (20, weights)."""
    generator = torch.Generator().manual_seed(seed)
    gradients = {
        matrix.name: torch.randn((20, matrix.weight.numel()), generator=generator) for matrix in masks.matrices
    }
    for index in range(20):
        for matrix in masks.matrices:
            matrix.weight.grad = gradients[matrix.name][index].view_as(matrix.weight).clone()
        masks.add_sample()
    return gradients


def _blocks(count: int) -> list[list[int]]:
    return [list(range(start, min(start + 4, count))) for start in range(0, count, 4)]


def _fisher(gradients: Tensor, block: list[int], kept: Tensor) -> Tensor:
    """λI + (1/m) Σ g gᵀ, with the gradients of removed weights at 0."""
    some = (gradients * kept)[:, block].double()
    return DAMPING * torch.eye(len(block), dtype=torch.float64) + some.T @ some / len(some)


def _expected(masks: Masks, gradients: dict[str, Tensor], density: float) -> list[tuple[Tensor, Tensor]]:
    """Mask and weights of every matrix after an event."""
    scores = []
    for matrix in masks.matrices:
        weight, kept = matrix.weight.detach().reshape(-1).double(), matrix.kept.reshape(-1)
        score = torch.zeros_like(weight)
        for block in _blocks(len(weight)):
            inverse = torch.linalg.inv(_fisher(gradients[matrix.name], block, kept))
            score[block] = weight[block] ** 2 / (2 * inverse.diagonal())
        scores.append(score.masked_fill(~kept, -torch.inf))
    together = torch.cat(scores)
    top = together.argsort(descending=True)[: int(density * len(together) + 1e-9)]
    masks_of = torch.zeros(len(together), dtype=torch.bool).index_fill_(0, top, True).split([len(s) for s in scores])
    return [
        (
            mask,
            _best_change(
                matrix.weight.detach().reshape(-1).double(), matrix.kept.reshape(-1), mask, gradients[matrix.name]
            ),
        )
        for matrix, mask in zip(masks.matrices, masks_of, strict=True)
    ]


def _best_change(weight: Tensor, before: Tensor, mask: Tensor, gradients: Tensor) -> Tensor:
    """The minimum of ½ δᵀFδ where δ = −w for removed weights, by the equations of Lagrange."""
    changed = weight.clone()
    for block in _blocks(len(weight)):
        free = [index for index in block if before[index]]  # those removed before do not count
        gone = [position for position, index in enumerate(free) if not mask[index]]
        if not gone or len(gone) == len(free):
            continue
        fisher = _fisher(gradients, free, before)
        rows = torch.eye(len(free), dtype=torch.float64)[gone]
        system = torch.cat([torch.cat([fisher, rows.T], 1), torch.cat([rows, torch.zeros(len(gone), len(gone))], 1)])
        right = torch.cat([torch.zeros(len(free)), -weight[[free[position] for position in gone]]]).double()
        changed[free] += torch.linalg.solve(system, right)[: len(free)]
    return changed


def test_scores_masks_and_weights_are_those_of_the_formulas() -> None:
    model = _model()
    masks = _masks(model)
    assert [masks.gradient_samples(step) for step in (1, 2, 3)] == [0, 20, 20]
    for seed, step in enumerate((2, 8)):
        if step == 8:
            masks.update(7)  # nothing is pruned between two events
        gradients = _sample(masks, seed)
        expected = _expected(masks, gradients, TWICE.density_at(step, TOTAL, 0.3))
        masks.update(step)
        for matrix, (mask, weight) in zip(masks.matrices, expected, strict=True):
            assert torch.equal(matrix.kept.reshape(-1), mask)
            kept = matrix.weight.detach().reshape(-1)[mask].double()
            torch.testing.assert_close(kept, weight[mask], rtol=1e-4, atol=1e-6)
            assert not matrix.samples, "the memory is free until the next event"
    assert masks.current_density == 0.3


def test_weights_that_were_removed_stay_removed() -> None:
    masks = _masks(_model())
    _sample(masks, 0)
    masks.update(2)
    removed = [~matrix.kept for matrix in masks.matrices]
    for matrix, gone in zip(masks.matrices, removed, strict=True):
        matrix.weight.detach()[gone] = 100.0
    _sample(masks, 1)
    masks.update(8)
    assert not any((matrix.kept & gone).any() for matrix, gone in zip(masks.matrices, removed, strict=True))


@pytest.mark.parametrize(
    ("given", "sizes", "together", "expected"),
    [
        (None, [10**6], 1, 50),
        (None, [85_000_000], 1, 12),
        (7, [85_000_000], 1, 7),
        (None, [10**6], 4, 48),
        (None, [85_000_000], 4, 12),
    ],
)
def test_the_block_size_follows_from_the_memory_unless_it_is_given(
    given: int | None, sizes: list[int], together: int, expected: int
) -> None:
    method = OBERT(fisher_block_size=given, weight_update="fisher")
    assert method.blocks_of(sizes, together) == expected
    (note,) = method.notes(sizes, 10**6, together)
    assert f"in blocks of {expected} weights" in note
    assert ("more than 4 GiB" in note) == (given is None and expected < 48)


@pytest.mark.parametrize(("together", "sizes"), [(1, [85_000_000]), (4, [85_000_000]), (1, [2**31])])
def test_no_fisher_matrix_is_needed_where_its_blocks_are_what_is_dropped_together(
    together: int, sizes: list[int]
) -> None:
    method = OBERT(weight_update="fisher" if sizes == [2**31] else "layer")
    assert method.blocks_of(sizes, together) == together
    assert not method.notes(sizes, 10**6, together)


def test_a_run_with_fewer_examples_than_an_event_samples_says_so() -> None:
    method = OBERT(gradients=100, gradient_batch_size=10)
    assert not method.notes([100], 1000, 1)
    (note,) = method.notes([100], 341, 1)
    assert note == "each event of obert samples 35 gradients, not 100, because the run reads only 341 examples"


def test_a_schedule_that_prunes_before_the_first_step_is_refused() -> None:
    with pytest.raises(
        RunTooShort,
        match=r"schedule\.pruning_start must be at least one step with the method obert, .* got '0 of 100 steps'",
    ):
        Schedule("events", pruning_start=0.0).check(100, OBERT().facts)


@pytest.mark.parametrize(
    "options", [{"gradients": 0}, {"damping": 0.0}, {"fisher_block_size": 1.5}, {"selection": "both"}]
)
def test_options_out_of_range_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be"):
        OBERT(**options)  # type: ignore[arg-type]
