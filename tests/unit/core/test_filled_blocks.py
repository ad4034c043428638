"""Blocks that are filled: the heads and units that stay are dense again, and are trained to the end."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.core.structure_runs import QUICK, SIDE, TOTAL, bert, by_layer, structure_masks
from torch import Tensor, nn

from mvprune.artifact.card import model_card
from mvprune.data.loading import ClassificationData
from mvprune_core import Magnitude, Movement, Schedule, compress
from mvprune_core.pruning.blocks import BlocksAndUnits
from mvprune_core.training.masking import Masks

METHODS = [
    Movement(selection="global"),
    Magnitude(selection="global"),
    Magnitude(selection="global", schedule=Schedule("events", events=3)),
]
FILLED: dict[str, Any] = {
    "structure": "blocks_and_units",
    "structure_block_size": SIDE,
    "structure_fill": True,
    "density": 0.1,
} | QUICK


def masks_of(model: nn.Module, method: Any, *, fills: bool) -> Masks:
    return structure_masks(model, lambda *of: BlocksAndUnits(*of, SIDE, fills=fills), 0.15, method, step=0)[0]


def steps(masks: Masks, first: int, last: int) -> None:
    for step in range(first, last + 1):
        masks.update(step)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{method.name}-{method.schedule.shape}")
def test_what_stays_is_whole_from_the_end_of_pruning_on(bert_config: Callable[..., Any], method: Any) -> None:
    """By hand, from the blocks that a run without filling has at that step."""
    end = method.schedule.pruning_end(TOTAL)
    made = []
    for fills in (False, True):
        torch.manual_seed(1)
        masks = masks_of(bert(bert_config), method, fills=fills)
        steps(masks, 1, end - 1)
        made.append(masks)
    blocks, filled = made
    assert all(torch.equal(mask, by_layer(filled)[name]) for name, mask in by_layer(blocks).items())
    assert not filled.final
    steps(blocks, end, end)
    steps(filled, end, end)
    expected = by_hand(blocks)
    assert any(not whole.all() for whole in expected.values()), "some heads or units are pruned"
    kept = by_layer(filled)
    assert all(torch.equal(kept[name], whole) for name, whole in expected.items())
    total = sum(whole.numel() for whole in expected.values())
    density = sum(int(whole.sum()) for whole in expected.values()) / total
    assert density > blocks.current_density + 0.05
    assert filled.current_density == filled.scheduled_density == density
    assert filled.final

    for matrix in filled.matrices:
        assert torch.equal(matrix.masked, matrix.weight.detach() * kept[matrix.name.removesuffix(".weight")])
        matrix.weight.grad = torch.ones_like(matrix.weight)
    filled.backward()
    for matrix in filled.matrices:
        assert matrix.weight.grad is not None
        assert torch.equal(matrix.weight.grad != 0, kept[matrix.name.removesuffix(".weight")]), "all of them train"
        assert matrix.scores is None or matrix.scores.grad is None, "nothing follows from scores any more"
    for scores in filled.scores:
        scores.data.neg_()
    for matrix in filled.matrices:
        matrix.weight.data.mul_(torch.rand(matrix.weight.shape) + 0.1)
    steps(filled, end + 1, TOTAL)
    assert all(torch.equal(mask, kept[name]) for name, mask in by_layer(filled).items())
    assert filled.current_density == density


def by_hand(blocks: Masks) -> dict[str, Tensor]:
    """Whole heads that have some block, and whole units, by layer."""
    kept, found = by_layer(blocks), {}
    for name, mask in kept.items():
        found[name] = torch.zeros_like(mask)
        prefix = name.partition(".attention.")[0] + ".attention." if ".attention." in name else ""
        if prefix:
            values = kept[f"{prefix}self.value"]
            for head in range(4):
                rows = slice(8 * head, 8 * head + 8)
                if values[rows].any():
                    found[name][(slice(None), rows) if name.endswith("output.dense") else rows] = True
        else:
            found[name] = mask.clone()  # units are whole already
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["magnitude", "soft_movement"])  # all of them: test_structures.py
def test_a_run_gives_a_smaller_dense_model(
    four_heads: Path, data: ClassificationData, tmp_path: Path, name: str
) -> None:
    result = compress(four_heads, data, method=name, **FILLED)
    counts, state = result.accounting, result.model.state_dict()
    assert counts.target_density == 0.1
    assert counts.density > 0.12
    assert all(bool((state[weight] != 0).all()) for weight in result.pruned), "nothing inside is pruned"
    stored = sum(state[weight].numel() for weight in result.pruned)
    assert counts.kept_weights == stored == round(counts.density * counts.prunable_weights)
    [note] = [note for note in result.notes if "were filled" in note]
    assert note.endswith(f"came back, which are {counts.density:.4g} of the weights")
    assert note.startswith("blocks and units of density 0.09961 were filled")
    pruning = result.history.phases[-1]
    assert pruning.density[-1] == pytest.approx(counts.density, abs=1e-5)
    manifest = result.save(tmp_path / "out")
    assert manifest.spec["structure_fill"] is True
    assert "blocks of 4 x 4 weights, the heads and units that stay filled" in model_card(result.info, "BertModel")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"structure": "heads_and_units", "structure_block_size": None},
            "structure_fill must be unset without structure blocks_and_units, got 'true'; give that structure",
        ),
        (
            {"structure": None, "structure_block_size": None},
            "structure_fill must be unset without structure blocks_and_units, got 'true'; give that structure",
        ),
        ({"structure_density": 0.5}, "structure_fill must be unset with structure_density, which prunes what stays"),
        ({"density": 1}, "structure_fill must be unset with density 1, at which nothing is pruned, got 'true'"),
    ],
)
def test_what_does_not_go_together(
    four_heads: Path, data: ClassificationData, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}"):
        compress(four_heads, data, method="movement", **FILLED | options)
