"""The pattern 1x4: four consecutive inputs of an output are kept or dropped together, against formulas by hand."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.masks import new_masks, update
from tests.unit.core.test_resume import StopIn, same
from tests.unit.core.training_runs import method_of
from torch import Tensor, nn
from transformers import BertModel
from transformers.pytorch_utils import Conv1D

from mvprune.artifact import load
from mvprune.data.loading import ClassificationData
from mvprune.spec.run_options import RunOptions
from mvprune_core import (
    L0,
    METHODS,
    OBERT,
    SMP,
    CompressionError,
    Magnitude,
    RigL,
    Schedule,
    SparseMomentum,
    Stopped,
    Training,
    compress,
)
from mvprune_core.methods.base import Matrix
from mvprune_core.models.prunable import prunable_layers
from mvprune_core.pruning.layers import remove_structures
from mvprune_core.pruning.selectors import Weights
from mvprune_core.pruning.structure_kinds import new_selector, pruned_structures
from mvprune_core.training.masking import Masks

TOTAL = 20
QUICK: dict[str, Any] = {
    "training": Training(max_steps=12, batch_size=32, learning_rate=5e-3),
    "dense_baseline": False,
    "pattern": "1x4",
}
BLOCKS = Weights(4)
METHOD_NAMES = sorted(name for name, method in METHODS.items() if method.ranks_weights or method.takes_blocks)


def model(kind: Callable[[int, int], nn.Module] = nn.Linear) -> nn.Module:
    torch.manual_seed(0)
    shapes = [(8, 6), (12, 4)] if kind is nn.Linear else [(6, 8), (4, 12)]  # Conv1D takes the outputs first
    return nn.ModuleDict({"layer": nn.ModuleList([kind(*shape) for shape in shapes])})


def masks_of(method: Any, density: float = 0.3, kind: Any = nn.Linear) -> Masks:
    return new_masks(model(kind), method, density=density, total_steps=TOTAL, seed=0, selector=BLOCKS)


def by_hand(values: Tensor, *, inputs_first: bool = False) -> list[list[float]]:
    """The four values of each block, output by output."""
    array = values.detach().double().numpy()
    rows = array.T if inputs_first else array
    return [row[start : start + 4].tolist() for row in rows for start in range(0, len(row), 4)]


def kept_blocks(matrix: Matrix) -> list[bool]:
    """Which blocks are kept. All weights of one are, or none."""
    found = by_hand(matrix.kept.float(), inputs_first=matrix.inputs_first)
    assert {sum(block) for block in found} <= {0.0, 4.0}
    return [sum(block) == 4 for block in found]


def largest(values: list[float], count: int) -> list[bool]:
    order = sorted(range(len(values)), key=lambda index: -values[index])
    return [index in order[:count] for index in range(len(values))]


@pytest.mark.parametrize("kind", [nn.Linear, Conv1D])
@pytest.mark.parametrize("name", METHOD_NAMES)
def test_every_method_keeps_whole_blocks_and_the_exact_number(name: str, kind: Any) -> None:
    masks = masks_of(METHODS[name](), kind=kind)
    for step in range(1, TOTAL + 1):
        update(masks, step)
        if name != "l0":  # its gates are drawn anew in each step
            assert all(isinstance(kept_blocks(matrix), list) for matrix in masks.matrices)
    masks.finalize()
    counts = [sum(kept_blocks(matrix)) for matrix in masks.matrices]
    is_local = getattr(masks.method, "selection", "local") != "global" and name not in ("l0", "locked_mask")
    assert counts == [3, 3] if is_local and name != "smp" else sum(counts) in (6, 7)  # of 12 + 12: 0.3 · 24 = 7.2


@pytest.mark.parametrize("density", [0.05, 0.26, 0.5, 0.99])
@pytest.mark.parametrize("selection", ["local", "global"])
@pytest.mark.parametrize("kind", [nn.Linear, Conv1D])
def test_the_blocks_with_the_largest_mean_stay(kind: Any, selection: Any, density: float) -> None:
    masks = masks_of(Magnitude(selection=selection), density, kind)
    update(masks, TOTAL)
    means = [
        [float(np.mean(block)) for block in by_hand(matrix.weight.abs(), inputs_first=matrix.inputs_first)]
        for matrix in masks.matrices
    ]
    kept = [kept_blocks(matrix) for matrix in masks.matrices]
    if selection == "local":
        assert kept == [largest(some, int(density * 12)) for some in means]
    else:
        assert [*chain(*kept)] == largest([*chain(*means)], int(density * 24))


def test_rigl_drops_and_grows_blocks() -> None:
    method = RigL(mask_interval=5, drop_fraction=0.5)
    masks = masks_of(method, 0.5)
    first = [kept_blocks(matrix) for matrix in masks.matrices]
    generator = torch.Generator().manual_seed(1)
    gradients = [torch.randn(matrix.weight.shape, generator=generator) for matrix in masks.matrices]
    for matrix, gradient in zip(masks.matrices, gradients, strict=True):
        matrix.buffers["gradient"].copy_(gradient)
    masks.update(5)
    fraction = 0.25 * (1 + np.cos(np.pi * 5 / (0.75 * TOTAL)))
    for matrix, before, gradient in zip(masks.matrices, first, gradients, strict=True):
        weights = [
            np.mean(block) if kept else -1 for block, kept in zip(by_hand(matrix.weight.abs()), before, strict=True)
        ]
        dropped = int(fraction * sum(before))
        stay = largest(weights, sum(before) - dropped)
        growth = [-1 if kept else np.mean(block) for block, kept in zip(by_hand(gradient.abs()), stay, strict=True)]
        grown = largest(growth, dropped)
        assert kept_blocks(matrix) == [one or other for one, other in zip(stay, grown, strict=True)]
        fresh = [new and not old for new, old in zip(kept_blocks(matrix), before, strict=True)]
        assert sum(fresh) > 0
        for block, is_new in zip(by_hand(matrix.weight), fresh, strict=True):
            assert not is_new or max(map(abs, block)) < 1e-29, "new weights start at 0"


def test_sparse_momentum_shares_by_the_mean_of_kept_blocks() -> None:
    method = SparseMomentum(mask_interval=5, drop_fraction=0.5)
    masks = masks_of(method, 0.5)
    for matrix, size in zip(masks.matrices, (1.0, 9.0), strict=True):
        matrix.buffers["momentum"].fill_(size)
        matrix.buffers["squares"].fill_(1.0)
    kept = [torch.tensor(kept_blocks(matrix)) for matrix in masks.matrices]
    assert method.for_run(TOTAL).grown_counts(masks.matrices, 4, kept, [5, 5]) == [1, 9]


def test_smp_shares_the_blocks_of_a_kind() -> None:
    masks = masks_of(SMP(), 0.5)
    for matrix, score in zip(masks.matrices, (0.0, 4.0), strict=True):
        assert matrix.scores is not None
        matrix.scores.data += score
    update(masks, TOTAL)
    shares = [0.5, 1 / (1 + np.exp(-4.0))]
    counts = [sum(kept_blocks(matrix)) for matrix in masks.matrices]
    assert sum(counts) == 12
    assert counts[0] == pytest.approx(12 * shares[0] / sum(shares), abs=1)


def test_l0_has_one_gate_a_block_with_the_sum_of_the_gradients() -> None:
    masks = masks_of(L0(), 0.5)
    assert [scores.shape for scores in masks.scores] == [(12,), (12,)]
    update(masks, 1)
    generator = torch.Generator().manual_seed(2)
    gradients = [torch.randn(matrix.weight.shape, generator=generator) for matrix in masks.matrices]
    before = [(matrix.weight.detach().clone(), matrix.mask.clone()) for matrix in masks.matrices]
    for matrix, gradient in zip(masks.matrices, gradients, strict=True):
        matrix.weight.grad = gradient.clone()
    masks.backward()
    for scores, gradient, (weight, mask) in zip(masks.scores, gradients, before, strict=True):
        gates = np.array(by_hand(mask))
        assert np.ptp(gates, axis=1).max() == 0, "one gate for all weights of a block"
        of_gate = masks.method.mask_grad(mask).double().numpy()  # type: ignore[attr-defined]
        expected = np.array(by_hand(torch.from_numpy((gradient * weight).double().numpy() * of_gate))).sum(1)
        assert scores.grad is not None
        assert np.allclose(scores.grad.numpy(), expected, atol=1e-6)


EVENTS = Schedule("events", pruning_start=0.2, cooldown=0.2, events=2, first_event=0.4)


@pytest.mark.parametrize("kind", [nn.Linear, Conv1D])
@pytest.mark.parametrize("size", [4, 8])
def test_obert_keeps_the_blocks_whose_removal_costs_most(size: int, kind: Any) -> None:
    damping = 1e-3
    method = OBERT(schedule=EVENTS, damping=damping, fisher_block_size=size, gradients=20, weight_update="fisher")
    masks = masks_of(method, 0.3, kind)
    step = round(0.2 * TOTAL)
    generator = torch.Generator().manual_seed(3)
    gradients = [torch.randn((20, *matrix.weight.shape), generator=generator) for matrix in masks.matrices]
    for index in range(20):
        for matrix, gradient in zip(masks.matrices, gradients, strict=True):
            matrix.weight.grad = gradient[index].clone()
        masks.add_sample()
    losses: list[float] = []
    inverses, weights = [], []
    for matrix, gradient in zip(masks.matrices, gradients, strict=True):
        flat = np.array([by_hand(one, inputs_first=matrix.inputs_first) for one in gradient]).reshape(20, -1)
        weight = np.array(by_hand(matrix.weight, inputs_first=matrix.inputs_first)).reshape(-1)
        weights.append(weight)
        for start in range(0, len(weight), size):
            some = flat[:, start : start + size]
            fisher = damping * np.eye(size) + some.T @ some / 20
            inverse = np.linalg.inv(fisher)
            inverses.append(fisher)
            for first in range(0, size, 4):
                group, block = slice(first, first + 4), weight[start + first : start + first + 4]
                losses.append(block @ np.linalg.inv(inverse[group, group]) @ block / 2)
    masks.update(step)
    kept = [*chain(*map(kept_blocks, masks.matrices))]
    assert kept == largest(losses, int(masks.current_density * 24))
    changed = np.concatenate(
        [np.array(by_hand(matrix.weight, inputs_first=matrix.inputs_first)).reshape(-1) for matrix in masks.matrices]
    )
    weight, mask = np.concatenate(weights), np.repeat(kept, 4)
    for index, fisher in enumerate(inverses):
        part = slice(index * size, (index + 1) * size)
        stays, expected = mask[part], weight[part].copy()
        if 0 < stays.sum() < size:
            expected[stays] += np.linalg.solve(
                fisher[np.ix_(stays, stays)], fisher[np.ix_(stays, ~stays)] @ expected[~stays]
            )
        assert np.allclose(changed[part], expected, atol=1e-5)


@given(st.integers(1, 7), st.integers(1, 5), st.floats(0.01, 0.99), st.booleans())
def test_values_by_block_come_back_in_the_matrix(outputs: int, blocks: int, density: float, first: bool) -> None:
    generator = torch.Generator().manual_seed(outputs * 10 + blocks)
    shape = (4 * blocks, outputs) if first else (outputs, 4 * blocks)
    weight = nn.Parameter(torch.randn(shape, generator=generator))
    matrix = Matrix("layer.0.weight", weight, None, torch.empty(0), torch.ones(()), inputs_first=first)
    rows = matrix.by_block(weight.detach(), 4)
    assert rows.tolist() == [pytest.approx(block) for block in by_hand(weight, inputs_first=first)]
    assert torch.equal(matrix.in_shape(rows), weight)
    assert torch.allclose(matrix.by_block(matrix.of_blocks(matrix.means(weight.detach(), 4), 4), 4)[:, 2], rows.mean(1))


@pytest.mark.parametrize("structure", ["heads", "units", "heads_and_units", "layers"])
def test_blocks_inside_what_stays(bert_config: Callable[..., Any], structure: Any) -> None:
    """Removed units leave in fours, so that the blocks of what is left begin at multiples of four, too."""
    options = RunOptions(density=0.2, structure_density=0.5, pattern="1x4")
    model = BertModel(bert_config(num_hidden_layers=4, num_attention_heads=4, intermediate_size=24))
    layers: Any = prunable_layers(model)
    structures = pruned_structures(model, layers, structure, in_blocks=True)
    layers = {name: layers[name] for each in structures for name in each.layers}
    selector = new_selector(model, structures, structure, options)
    made: Any = {"layers": layers, "selector": selector}
    masks = new_masks(model, Magnitude(selection="global"), density=0.2, total_steps=TOTAL, seed=0, **made)
    update(masks, TOTAL)
    blocks = sum(layer.weight.numel() for layer in layers.values()) // 4
    assert sum(sum(kept_blocks(matrix)) for matrix in masks.matrices) == int(0.2 * blocks)
    masks.finalize()
    remove_structures(model, structures, masks.weight_names)
    left = [module.weight for name, module in prunable_layers(model).items() if name in layers]
    assert sum(weight.numel() for weight in left) == pytest.approx(2 * blocks, rel=0.1)
    kept = [sum(map(bool, block)) for weight in left for block in by_hand(weight != 0)]
    assert set(kept) <= {0, 4}
    assert kept.count(4) == int(0.2 * blocks)


def whole_blocks(state: dict[str, Tensor], names: Any) -> int:
    """How many blocks have a non-zero. In all others, all weights are zero."""
    kept = [(state[name] != 0).reshape(-1, 4).sum(1) for name in names]
    assert all(set(some.tolist()) <= {0, 4} for some in kept)
    return sum(int((some > 0).sum()) for some in kept)


@pytest.mark.slow
def test_the_artifact_has_whole_blocks_and_can_give_its_mask(
    model_folder: Path, data: ClassificationData, tmp_path: Path
) -> None:
    result = compress(model_folder, data, method="movement", density=0.1, weight_dtype="fp32", **QUICK)
    manifest = result.save(tmp_path / "out")
    assert (manifest.spec["pattern"], manifest.spec["target_density"]) == ("1x4", 0.1)
    state = load(tmp_path / "out").state_dict()
    count = sum(int(0.1 * state[name].numel() / 4) for name in result.pruned)
    assert whole_blocks(state, result.pruned) == count
    assert manifest.accounting.kept_weights == 4 * count
    half = compress(model_folder, data, mask_from=tmp_path / "out", density=0.05, weight_dtype="fp32", **QUICK)
    assert whole_blocks(half.model.state_dict(), half.pruned) == int(0.05 * half.accounting.prunable_weights / 4)
    again = compress(model_folder, data, mask_from=tmp_path / "out", weight_dtype="fp32", **QUICK)
    assert whole_blocks(again.model.state_dict(), again.pruned) == count


@pytest.mark.slow
def test_a_mask_of_single_weights_gives_no_blocks(model_folder: Path, data: ClassificationData, tmp_path: Path) -> None:
    single = QUICK | {"pattern": None}
    compress(model_folder, data, method="magnitude", density=0.1, **single).save(tmp_path / "out")
    with pytest.raises(CompressionError, match=r"mask_from must have its non-zeros in blocks of 4 .*; leave"):
        compress(model_folder, data, mask_from=tmp_path / "out", **QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["movement", "l0", "obert", "locked_mask"])  # of all methods: test_checkpoints.py
def test_an_interrupted_run_ends_as_one_that_is_not(
    model_folder: Path, data: ClassificationData, tmp_path: Path, name: str
) -> None:
    options = QUICK | {"method": method_of(name), "density": 0.2}
    if name == "locked_mask":
        compress(model_folder, data, **QUICK | {"method": "magnitude", "density": 0.2}).save(tmp_path / "mask")
        options |= {"mask_from": tmp_path / "mask"}
    whole = compress(model_folder, data, **options)
    for step in (4, 9):
        with pytest.raises(Stopped):
            compress(model_folder, data, checkpoint=tmp_path / "c", callback=StopIn("pruning", step), **options)
    assert same(whole, compress(model_folder, data, checkpoint=tmp_path / "c", **options))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"method": "rpp"}, "pattern must be unset with the method rpp, got '1x4'; take one of .*movement"),
        ({"structure": "heads"}, "pattern must be unset with structure, or 1x4 with structure_density, which prunes"),
        (
            {"method": OBERT(fisher_block_size=6)},
            "fisher_block_size must be a multiple of 4 with .* 1x4, got 6",
        ),
        ({"density": None}, "density must be above 0, at most 1, got 0 or none"),
    ],
)
def test_what_does_not_go_together(
    model_folder: Path, data: ClassificationData, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=f"^{text}"):
        compress(model_folder, data, **QUICK | {"density": 0.2} | options)
