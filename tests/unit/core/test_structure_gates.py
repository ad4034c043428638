"""Hard-concrete gates on heads and units: one for each, by hand, and the smaller model that a run gives."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.core.masks import new_masks, update
from tests.unit.core.structure_runs import bert, outputs
from tests.unit.core.test_structures import HEAD, UNIT, by_hand
from tests.unit.core.training_runs import Recorder
from torch import nn
from torch.func import functional_call

from mvprune.artifact.card import model_card
from mvprune.artifact.structures import Structures, find_structures
from mvprune.data.loading import ClassificationData
from mvprune_core import L0, CompressionError, Reason, Training, compress
from mvprune_core.methods.base import generator_of
from mvprune_core.pruning.structures import WholeStructures
from mvprune_core.training.masking import Masks

QUICK = Training(max_steps=40, batch_size=32, learning_rate=5e-3)
TOTAL = 10
B, LOW, HIGH = 2 / 3, -0.1, 1.1
CLOSED = math.log(-LOW / HIGH)
KINDS = {"heads": ("heads",), "units": ("units",), "heads_and_units": ("heads", "units")}


@pytest.fixture
def model(bert_config: Callable[..., Any]) -> nn.Module:
    """A BERT of three blocks, each with four heads and 24 units."""
    torch.manual_seed(1)
    return bert(bert_config).eval()


def masks_of(
    model: nn.Module, structure: str, density: float, step: int = TOTAL, total: int = TOTAL
) -> tuple[Masks, list[Structures]]:
    """Masks with scores that tell gates apart; the heads of all blocks come first."""
    found = [each for each in find_structures(model) if each.kind in KINDS[structure]]
    structures = sorted(found, key=lambda each: each.kind)
    layers: Any = {name: model.get_submodule(name) for each in structures for name in each.layers}
    selector = WholeStructures(model, structures)
    masks = new_masks(model, L0(), density=density, total_steps=total, seed=3, layers=layers, selector=selector)
    generator = torch.Generator().manual_seed(5)
    for scores in masks.scores:
        scores.data += torch.randn(scores.shape, generator=generator)
    update(masks, step)
    return masks, structures


@pytest.mark.parametrize("structure", KINDS)
def test_gradients_are_those_of_autograd_on_a_reference_by_hand(model: nn.Module, structure: str) -> None:
    """A gate multiplies the columns of the output matrix only. The penalty is λ · the expected fraction of weights."""
    step = TOTAL // 2
    masks, structures = masks_of(model, structure, 0.4, step)
    ids = torch.randint(4, 40, (4, 9), generator=torch.Generator().manual_seed(0))
    targets = torch.randn(4, 9, 32, generator=torch.Generator().manual_seed(1))
    loss = (model(ids).last_hidden_state - targets).square().sum()
    loss.backward()
    masks.backward()

    scores = [one.detach().clone().requires_grad_() for one in masks.scores]
    weights = {matrix.name: matrix.weight.detach().clone().requires_grad_() for matrix in masks.matrices}
    assert [len(one) for one in scores] == [24 if each.kind == "units" else 4 for each in structures]
    used, size, expected_size = dict(weights), 0, torch.zeros(())
    for index, (each, score) in enumerate(zip(structures, scores, strict=True)):
        noise = torch.rand(len(score), generator=generator_of(3, step, index)).clamp(1e-4, 1 - 1e-4)
        gate = (torch.sigmoid((noise.logit() + score) / B) * (HIGH - LOW) + LOW).clamp(0, 1)
        name = f"{each.output}.weight"
        used[name] = weights[name] * gate.repeat_interleave(each.size)
        each_size = HEAD if each.kind == "heads" else UNIT
        size += each_size * len(score)
        expected_size = expected_size + each_size * torch.sigmoid(score - B * math.log(-LOW / HIGH)).sum()
    with masks.finalized():  # where it is plain
        reference = (functional_call(model, used, ids).last_hidden_state - targets).square().sum()
    torch.testing.assert_close(loss.detach(), reference.detach())
    assert float(masks._control["strength"]) != 0
    (reference + masks._control["strength"] * expected_size / size).backward()
    for matrix in masks.matrices:
        torch.testing.assert_close(matrix.weight.grad, weights[matrix.name].grad, rtol=1e-4, atol=1e-5)
    for given, one in zip(masks.scores, scores, strict=True):
        torch.testing.assert_close(given.grad, one.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("density", [0.3, 0.5, 0.8])
@pytest.mark.parametrize("structure", KINDS)
def test_the_largest_scores_stay_and_their_gates_have_the_closed_form(
    model: nn.Module, structure: str, density: float
) -> None:
    masks, structures = masks_of(model, structure, density, step=TOTAL // 2)
    before = [scores.detach().clone() for scores in masks.scores]
    masks.update(TOTAL)
    total = sum(matrix.weight.numel() for matrix in masks.matrices)
    reached = masks._step.selector.nearest(density)
    named = {
        (each.kind, each.block, number): float(value)
        for each, one in zip(structures, before, strict=True)
        for number, value in enumerate(one)
    }
    chosen = by_hand(named, round(reached * total))
    noisy = outputs(model)
    with masks.finalized():
        kept = sum(int(matrix.kept.sum()) for matrix in masks.matrices)
        assert kept == round(reached * total)
        matrices = {matrix.name: matrix for matrix in masks.matrices}
        for each, given, scores in zip(structures, before, masks.scores, strict=True):
            opened = torch.tensor([(each.kind, each.block, number) in chosen for number in range(len(given))])
            expected = torch.where(opened, given.clamp_min(CLOSED + 0.1), given.clamp_max(CLOSED - 1e-4))
            torch.testing.assert_close(scores.detach(), expected)
            gate = (torch.sigmoid(expected) * (HIGH - LOW) + LOW).clamp(0, 1).repeat_interleave(each.size)
            output = matrices[f"{each.output}.weight"]
            torch.testing.assert_close(output.masked, output.weight.detach() * gate)
            for name in each.inputs:
                matrix = matrices[f"{name}.weight"]
                assert torch.equal(matrix.masked, matrix.weight.detach() * (gate > 0).unsqueeze(1))
    assert torch.equal(outputs(model), noisy)
    assert masks.current_density == pytest.approx(reached)


def test_equal_scores_give_the_density_too(model: nn.Module) -> None:
    masks, structures = masks_of(model, "heads_and_units", 0.4, step=TOTAL // 2)
    for scores in masks.scores:
        scores.data.fill_(-3.0)
    masks.update(TOTAL)
    masks.finalize()
    kept = sum(int(matrix.kept.sum()) for matrix in masks.matrices)
    total = sum(matrix.weight.numel() for matrix in masks.matrices)
    assert kept / total == WholeStructures(model, structures).nearest(0.4)


@pytest.mark.slow
def test_the_penalty_keeps_up_with_the_schedule(model: nn.Module) -> None:
    """Else gates are opened and closed at once when the cooldown makes the density exact."""
    total = 300
    masks, _ = masks_of(model, "heads_and_units", 0.3, step=0, total=total)
    optimizer = torch.optim.AdamW(masks.score_groups())
    generator = torch.Generator().manual_seed(0)
    use = [torch.rand(matrix.weight.shape, generator=generator) for matrix in masks.matrices]
    for step in range(1, masks.method.schedule.pruning_end(total)):
        for matrix, one in zip(masks.matrices, use, strict=True):
            matrix.weight.grad = -1e-6 * one / matrix.weight.detach()
        masks.backward()
        optimizer.step()
        optimizer.zero_grad()
        masks.update(step)
    assert 0.5 < masks.current_density / masks.scheduled_density < 2


@pytest.mark.parametrize("structure", KINDS)
def test_a_run_gives_a_smaller_model(
    four_heads: Path, data: ClassificationData, tmp_path: Path, structure: Any
) -> None:
    options: dict[str, Any] = {"density": 0.5, "training": QUICK, "dense_baseline": False}
    result = compress(four_heads, data, method="l0", structure=structure, **options)
    counts, state = result.accounting, result.model.state_dict()
    assert counts.density == pytest.approx(0.5, abs=0.01)
    stored = sum(state[name].numel() for name in result.pruned)
    assert stored == pytest.approx(0.5 * counts.prunable_weights, rel=0.02), "nothing that is closed is stored"
    assert any("are left, by block: " in note for note in result.notes)
    manifest = result.save(tmp_path / "out")
    assert (manifest.spec["structure"], list(manifest.spec["method"])) == (structure, ["l0"])
    assert f"whole {structure.replace('_', ' ')}, one gate each" in model_card(result.info, "BertModel")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"structure": "blocks_and_units"},
            "structure must be unset with the method l0, got 'blocks_and_units'; take one of movement",
        ),
        ({"structure": "layers"}, "structure must be unset with the method l0, got 'layers'; take one of movement"),
        (
            {"structure": "heads", "structure_density": 0.8},
            "structure_density must be unset with the method l0, whose gates open all weights of a structure, got 0.8",
        ),
        (
            {"structure": "heads", "structure_block_size": 8},
            "structure_block_size must be unset without structure bloc",
        ),
    ],
)
def test_what_does_not_go_together(
    four_heads: Path, data: ClassificationData, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=f"^{text}"):
        compress(four_heads, data, method="l0", density=0.5, training=QUICK, **options)


def test_a_density_that_structures_cannot_reach_is_refused(four_heads: Path, data: ClassificationData) -> None:
    recorder, text = Recorder(), re.escape("got 0.25 (2,048 of 8,192 weights); take 0.25, the nearest that whole heads")
    with pytest.raises(CompressionError, match=f"density must be 0.1 within 10 %, {text}") as found:
        compress(four_heads, data, method="l0", structure="heads", density=0.1, training=QUICK, callback=recorder)
    assert found.value.reason is Reason.DENSITY_NOT_REACHED
    assert recorder.phases == ["loading"]
