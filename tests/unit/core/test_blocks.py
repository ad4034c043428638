"""Blocks of attention matrices and feed-forward units: which stay, and the smaller model that a run gives."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from tests.tiers import first_fast
from tests.unit.core.structure_runs import QUICK, SIDE, TOTAL, bert, by_layer, importance, structure_masks
from tests.unit.core.training_runs import Recorder
from torch import Tensor, nn
from transformers import BertModel

from mvprune.artifact.structures import Structures, find_structures, remove_empty
from mvprune.data.loading import ClassificationData
from mvprune_core import CompressionError, Magnitude, Movement, Reason, compress
from mvprune_core.pruning.blocks import BlocksAndUnits, _Blocks
from mvprune_core.training.masking import Masks

OPTIONS: dict[str, Any] = {
    "structure": "blocks_and_units",
    "structure_block_size": SIDE,
    "density": 0.3,
} | QUICK


def masks_of(
    model: nn.Module, density: float, method: Any = None, step: int = TOTAL
) -> tuple[Masks, list[Structures], BlocksAndUnits]:
    masks, structures = structure_masks(model, lambda *of: BlocksAndUnits(*of, SIDE), density, method, step)
    return masks, structures, cast(BlocksAndUnits, masks._step.selector)


def blocks(each: Structures, values: dict[str, Tensor]) -> dict[tuple[str, int, int, int], Tensor]:
    """The blocks of an attention by layer, head, row and column; those of the output matrix after transposing it."""
    found = {}
    for layer in each.layers:
        rows = values[layer].t() if layer == each.output else values[layer]
        for row in range(0, rows.shape[0], SIDE):
            for column in range(0, rows.shape[1], SIDE):
                found[layer, row // each.size, row, column] = rows[row : row + SIDE, column : column + SIDE]
    return found


@pytest.mark.parametrize("method", [Movement(selection="global"), Magnitude(selection="global")], ids=lambda m: m.name)
@pytest.mark.parametrize("density", [0.1, 0.3, 0.6])
def test_the_best_blocks_and_units_stay(known_model: nn.Module, method: Any, density: float) -> None:
    """Whole blocks and units, the best of each kind by their mean importance, only blocks of heads that compute."""
    masks, structures, selector = masks_of(known_model, density, method)
    kept, values = by_layer(masks), importance(masks)
    total = sum(mask.numel() for mask in kept.values())
    assert sum(int(mask.sum()) for mask in kept.values()) == round(selector.nearest(density) * total)
    assert selector.nearest(density) == pytest.approx(density, abs=SIDE * SIDE / total)
    kept_means, pruned_means = [], []
    for each in (one for one in structures if one.kind == "heads"):
        of_attention = blocks(each, kept)
        means = {where: float(block.double().mean()) for where, block in blocks(each, values).items()}
        alive = {}
        for head in range(4):
            layers = {where[0] for where, block in of_attention.items() if where[1] == head and block.any()}
            alive[head] = {each.inputs[2], each.output} <= layers
            assert alive[head] or not layers, "a head that computes nothing has no blocks"
        assert any(alive.values())
        best = max(
            range(4),
            key=lambda head: sum(
                max(mean for where, mean in means.items() if where[:2] == (layer, head))
                for layer in (each.inputs[2], each.output)
            ),
        )
        needed = {
            max((where for where in means if where[:2] == (layer, best)), key=means.__getitem__)
            for layer in (each.inputs[2], each.output)
        }
        for where, block in of_attention.items():
            assert bool(block.all()) or not bool(block.any())
            assert where not in needed or bool(block.all())
            if bool(block.all()):
                kept_means += [means[where]] * (where not in needed)
            elif alive[where[1]]:
                pruned_means.append(means[where])
    assert not kept_means or min(kept_means) >= max(pruned_means)
    kept_units, pruned_units = [], []
    for each in (one for one in structures if one.kind == "units"):
        up, down = kept[each.inputs[0]], kept[each.output]
        assert torch.equal(up.all(1), up.any(1))
        assert torch.equal(down.t(), up)
        units = (values[each.inputs[0]].sum(1) + values[each.output].sum(0)) / (2 * up.shape[1])
        of_block = units[up.all(1)].sort(descending=True).values
        kept_units += of_block[1:].tolist()  # every block keeps one
        pruned_units += units[~up.all(1)].tolist()
    assert not (kept_units and pruned_units) or min(kept_units) >= max(pruned_units) - 1e-6


def test_blocks_and_units_compete_by_their_means(known_model: nn.Module) -> None:
    """With much larger weights in feed-forward layers, units stay and blocks go."""
    for each in find_structures(known_model):
        if each.kind == "units":
            for layer in each.layers:
                known_model.get_submodule(layer).weight.data.mul_(100)  # type: ignore[operator, union-attr]
    masks, structures, _ = masks_of(known_model, 0.2, Magnitude(selection="global"))
    kept = by_layer(masks)
    heads = [kept[layer] for each in structures if each.kind == "heads" for layer in each.layers]
    attentions = sum(each.kind == "heads" for each in structures)
    assert sum(int(mask.sum()) for mask in heads) == pytest.approx(2 * SIDE * SIDE * attentions, abs=4 * SIDE * SIDE)


def test_heads_without_values_or_outputs_are_removed(bert_config: Callable[..., Any]) -> None:
    """Their queries, keys and the other of the two would be computed for nothing."""
    torch.manual_seed(1)
    model = bert(bert_config)
    heads = [each for each in find_structures(model) if each.kind == "heads"]
    with torch.no_grad():
        model.get_submodule(heads[0].output).weight[:, :8] = 1e-6  # type: ignore[index, operator]
        model.get_submodule(heads[1].inputs[2]).weight[8:16] = 1e-6  # type: ignore[index, operator]
    masks, structures, _ = masks_of(model, 0.5, Magnitude(selection="global"))
    kept = by_layer(masks)
    assert not any(kept[layer][:8].any() for layer in heads[0].inputs)
    assert not kept[heads[1].output][:, 8:16].any()
    assert sum(int(mask.sum()) for mask in kept.values()) == pytest.approx(
        0.5 * sum(mask.numel() for mask in kept.values()), abs=SIDE * SIDE
    )
    masks.finalize()
    left = remove_empty(model, structures)
    assert (left[heads[0]], left[heads[1]], left[heads[2]]) == (3, 3, 4)


@pytest.mark.parametrize("density", [0.02, 0.1, 0.3, 0.5, 0.75, 0.97])
@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_lost_when_idle_heads_are_removed(
    bert_config: Callable[..., Any], seed: int, density: float
) -> None:
    """Of any scores and shapes, within a block: also where matrices of few heads, or units, have all the importance."""
    random = torch.Generator().manual_seed(seed)

    def one_of(*choices: int) -> int:
        return choices[int(torch.randint(len(choices), (), generator=random))]

    heads = one_of(1, 2, 4, 8)
    size = SIDE * one_of(1, 2)
    sizes = {"num_attention_heads": heads, "hidden_size": heads * size, "num_hidden_layers": one_of(1, 2, 3)}
    model: nn.Module = BertModel(bert_config(intermediate_size=one_of(3, 24, 100), **sizes))
    for each in find_structures(model):
        for layer in each.layers:
            weight: Any = model.get_submodule(layer).weight
            scales = torch.randn(weight.shape[int(layer == each.output)] // each.size, generator=random).mul(3).exp()
            scales = scales.repeat_interleave(each.size) * 10.0 ** one_of(-2, 0, 2)
            weight.data.mul_(scales if layer == each.output else scales.unsqueeze(1))
    masks, structures, selector = masks_of(model, density, Magnitude(selection="global"))
    total = sum(matrix.weights for matrix in masks.matrices)
    masks.finalize()
    remove_empty(model, structures)
    left: list[Any] = [model.get_submodule(layer) for each in structures for layer in each.layers]
    kept = sum(int(layer.weight.count_nonzero()) for layer in left)
    assert kept == round(selector.nearest(density) * total)
    least = (
        2 * SIDE * SIDE * sum(each.kind == "heads" for each in structures) + selector._units.size * len(structures) / 2
    )
    assert abs(kept - max(density * total, least)) <= max(SIDE * SIDE, selector._units.size)
    for each in (one for one in structures if one.kind == "heads"):
        values: Any = model.get_submodule(each.inputs[2])
        assert values.weight.view(-1, each.size * values.in_features).any(1).all(), "every head computes something"


@pytest.mark.parametrize("seed", range(3))
def test_any_number_of_blocks_is_kept_in_heads_that_compute(bert_config: Callable[..., Any], seed: int) -> None:
    """Every number from two for each attention to all, of any order; also where one is left and all heads are full."""
    sizes = {"num_attention_heads": 3, "hidden_size": 3 * SIDE, "num_hidden_layers": 2}
    model: nn.Module = BertModel(bert_config(intermediate_size=8, **sizes))
    heads = BlocksAndUnits(model, list(find_structures(model)), SIDE)._heads
    assert isinstance(heads, _Blocks)
    places = torch.randperm(heads.count, generator=torch.Generator().manual_seed(seed)).view(2, 3, 4, -1)
    places[:, seed, 2:, 0] -= heads.count  # what the best head of each attention needs
    places[:, (seed + 1) % 3, 2:] += heads.count  # a head that opens late
    for number in range(4, heads.count + 1):
        kept = heads._kept(places.flatten(), torch.tensor(number))
        filled = kept.any(2)
        assert int(kept.sum()) == number
        assert torch.equal(filled.any(1), filled[:, 2] & filled[:, 3])
        assert filled.any(1).view(2, 3).any(1).all()


@pytest.mark.parametrize("name", first_fast(["magnitude", "soft_movement"]))  # all of them: test_structures.py
def test_a_run_gives_a_smaller_model(four_heads: Path, data: ClassificationData, tmp_path: Path, name: str) -> None:
    result = compress(four_heads, data, method=name, **OPTIONS)
    counts, state = result.accounting, result.model.state_dict()
    assert counts.density == pytest.approx(0.3, rel=0.01)
    assert sum(int((state[weight] != 0).sum()) for weight in result.pruned) == counts.kept_weights
    assert len(state["bert.encoder.layer.0.intermediate.dense.weight"]) < 64
    manifest = result.save(tmp_path / "out")
    assert (manifest.spec["structure"], manifest.spec["structure_block_size"]) == ("blocks_and_units", SIDE)


@pytest.mark.slow
def test_weights_inside_blocks_can_be_sparse(four_heads: Path, data: ClassificationData) -> None:
    options = OPTIONS | {"structure_density": 0.5, "density": 0.1}
    result = compress(four_heads, data, method="soft_movement", **options)
    assert result.accounting.density == pytest.approx(0.1, rel=0.01)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"structure": "heads"},
            "structure_block_size must be unset without structure blocks_and_units, got 4",
        ),
        ({"structure_block_size": 0}, "structure_block_size must be from 1 to 1,024, got 0"),
    ],
)
def test_what_does_not_go_together(
    four_heads: Path, data: ClassificationData, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}"):
        compress(four_heads, data, method="movement", **OPTIONS | options)


@pytest.mark.parametrize(
    ("options", "reason", "text"),
    [
        (
            {"structure_block_size": None},
            Reason.UNSUPPORTED_ARCHITECTURE,
            r"structure_block_size must divide the size of a head, got 32 for heads of 8 in .*; take a divisor of 8",
        ),
        ({"density": 0.001}, Reason.DENSITY_NOT_REACHED, r"density must be 0\.001 within 10 %"),
    ],
)
def test_what_does_not_fit_is_refused_before_training(
    four_heads: Path, data: ClassificationData, options: dict[str, Any], reason: Reason, text: str
) -> None:
    recorder = Recorder()
    with pytest.raises(CompressionError, match=text) as found:
        compress(four_heads, data, method="movement", callback=recorder, **OPTIONS | options)
    assert found.value.reason is reason
    assert recorder.phases == ["loading"]
