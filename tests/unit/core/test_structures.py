"""Whole heads and units: which stay, and the smaller model that a run gives."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from tests.tiers import first_fast
from tests.unit.core.masks import NoCopies, new_masks, update
from tests.unit.core.ranking import RANKING
from tests.unit.core.test_resume import StopIn, same
from tests.unit.core.training_runs import Recorder
from torch import Tensor, nn
from transformers import BertModel, GPT2Config, GPT2Model

from mvprune.artifact import load
from mvprune.artifact.inspection import inspect
from mvprune.artifact.structures import Structures, find_structures, remove_empty
from mvprune.data.loading import ClassificationData
from mvprune_core import (
    L0,
    METHODS,
    CompressionError,
    Magnitude,
    Movement,
    Random,
    Reason,
    Stopped,
    Training,
    compress,
)
from mvprune_core.pruning.selectors import Selection
from mvprune_core.pruning.structure_kinds import pruned_structures
from mvprune_core.pruning.structures import WholeStructures
from mvprune_core.training.masking import Masks

QUICK = Training(max_steps=12, batch_size=32, learning_rate=5e-3)
TOTAL = 10
HEAD, UNIT = 4 * 32 * 8, 2 * 32  # weights of one, in a model of width 32 with heads of 8


@pytest.fixture
def model(bert_config: Callable[..., Any]) -> nn.Module:
    """A BERT of three blocks, each with four heads and 24 units."""
    torch.manual_seed(1)
    return BertModel(bert_config(num_hidden_layers=3, num_attention_heads=4, intermediate_size=24))


@pytest.fixture
def model_folder(save: Callable[..., Path], bert_config: Callable[..., Any]) -> Path:
    torch.manual_seed(1)
    return save(BertModel(bert_config(num_attention_heads=4)))


def masks_of(
    model: nn.Module, structure: Any, density: float, method: Any = None, step: int = TOTAL
) -> tuple[Masks, list[Structures]]:
    layers = {
        name: module for name, module in model.named_modules() if ".layer." in f".{name}" and type(module) is nn.Linear
    }
    structures = pruned_structures(model, layers, structure)
    chosen = {name: layers[name] for each in structures for name in each.layers}
    selector = WholeStructures(model, structures)
    method = method or Movement(selection="global")
    masks = new_masks(model, method, density=density, total_steps=TOTAL, seed=0, layers=chosen, selector=selector)
    generator = torch.Generator().manual_seed(5)
    for scores in masks.scores:
        scores.data += torch.randn(scores.shape, generator=generator)
    update(masks, step)
    return masks, structures


def parts(each: Structures, number: int, values: dict[str, Tensor]) -> list[Tensor]:
    """What belongs to one head or unit, of values by layer."""
    part = slice(number * each.size, (number + 1) * each.size)
    return [*(values[layer][part] for layer in each.inputs), values[each.output][:, part]]


def means(masks: Masks, structures: list[Structures]) -> dict[tuple[str, str, int], float]:
    """The mean importance of each, by hand: S + c · v · |W| / mean |W| for movement."""
    values = {}
    for matrix in masks.matrices:
        name = matrix.name.removesuffix(".weight")
        values[name] = matrix.weight.detach().abs()
        if matrix.scores is not None:
            v = masks.scheduled_density
            values[name] = matrix.scores.detach() + 5 * 100 * v * values[name] / matrix.scale
    found = {}
    for each in structures:
        for number in range(values[each.output].shape[1] // each.size):
            together = torch.cat([part.reshape(-1) for part in parts(each, number, values)])
            found[each.kind, each.block, number] = float(together.double().mean())
    return found


def kept(masks: Masks, structures: list[Structures]) -> set[tuple[str, str, int]]:
    """The heads and units whose weights are kept; each must be kept or pruned as a whole."""
    values = {matrix.name.removesuffix(".weight"): matrix.kept for matrix in masks.matrices}
    found = set()
    for each in structures:
        for number in range(values[each.output].shape[1] // each.size):
            together = torch.cat([part.reshape(-1) for part in parts(each, number, values)])
            assert bool(together.all()) or not bool(together.any())
            if together.any():
                found.add((each.kind, each.block, number))
    return found


def by_hand(scores: dict[tuple[str, str, int], float], weights: int) -> set[tuple[str, str, int]]:
    """The best of each block and kind, then the best of all while at least half of the next one fits; units fill up."""
    size = {"heads": HEAD, "units": UNIT}
    first = {max((s for s in scores if s[:2] == group), key=scores.__getitem__) for group in {s[:2] for s in scores}}
    order = sorted(scores, key=lambda one: (one not in first, -scores[one]))
    used, heads = 0, 0
    for one in order:
        if 2 * used + size[one[0]] > 2 * weights:
            break
        used += size[one[0]]
        heads += one[0] == "heads"
    chosen = [one for one in order if one[0] == "heads"][:heads]
    chosen += [one for one in order if one[0] == "units"][: (weights - heads * HEAD) // UNIT]
    return set(chosen)


@pytest.mark.parametrize("density", [0.3, 0.5, 0.8])
@pytest.mark.parametrize("structure", ["heads", "units", "heads_and_units"])
@pytest.mark.parametrize(
    "method", [Movement(selection="global"), Magnitude(selection="global")], ids=["movement", "magnitude"]
)
def test_the_best_stay_by_their_mean_importance(model: nn.Module, method: Any, structure: str, density: float) -> None:
    masks, structures = masks_of(model, structure, density, method)
    total = sum(matrix.weight.numel() for matrix in masks.matrices)
    step = {"heads": HEAD, "units": UNIT, "heads_and_units": UNIT}[structure]
    weights = round(density * total / step) * step
    chosen = kept(masks, structures)
    assert chosen == by_hand(means(masks, structures), weights)
    assert sum(int(matrix.kept.sum()) for matrix in masks.matrices) == weights
    assert masks.current_density == weights / total
    for each in structures:
        assert any((kind, block) == (each.kind, each.block) for kind, block, _ in chosen)


def test_the_score_of_movement_is_the_first_order_rise_of_the_loss(model: nn.Module) -> None:
    """Without momentum, a step of scores is −rate · W ⊙ ∂L/∂W: summed over a head, what removing it costs."""
    masks, structures = masks_of(model, "heads", 0.5, Movement(selection="global", initial_scores="zero"), step=0)
    for scores in masks.scores:
        scores.data.zero_()
    ids = torch.randint(4, 40, (4, 9), generator=torch.Generator().manual_seed(0))
    model(ids).last_hidden_state.square().mean().backward()
    grads = {m.name.removesuffix(".weight"): m.weight.grad.clone() for m in masks.matrices if m.weight.grad is not None}
    weights = {m.name.removesuffix(".weight"): m.weight.detach().clone() for m in masks.matrices}
    masks.backward()
    for scores in masks.scores:
        assert scores.grad is not None
        scores.data -= scores.grad
    layers = {matrix.name.removesuffix(".weight"): matrix for matrix in masks.matrices}
    for each in structures:
        for number in range(4):
            expected = -sum(
                (one * other).sum()
                for one, other in zip(parts(each, number, grads), parts(each, number, weights), strict=True)
            )
            scores = {name: matrix.scores.detach() for name, matrix in layers.items() if matrix.scores is not None}
            found = sum(part.sum() for part in parts(each, number, scores))
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("size", [UNIT, HEAD, 40 * HEAD])
def test_random_heads_and_units_have_the_same_distribution(size: int) -> None:
    """Means of more random numbers are nearer to a half: heads would come after half of the units."""
    draws = torch.rand(1000, size, generator=torch.Generator().manual_seed(0))
    values = Random().importance_of_groups(draws.sum(1), size)
    assert float(values.std()) == pytest.approx(math.sqrt(1 / 12), rel=0.1)
    assert float(values.mean()) == pytest.approx(0.0, abs=0.04)


def test_equal_scores_are_chosen_by_the_seed(model: nn.Module) -> None:
    structures = list(find_structures(model))
    for each in structures:
        for name in each.layers:
            nn.init.constant_(model.get_submodule(name).weight, 0.5)  # type: ignore[arg-type]
    layers: Any = {name: model.get_submodule(name) for each in structures for name in each.layers}
    found = []
    for seed in (0, 0, 1):
        selector = WholeStructures(model, structures)
        masks = Masks(model, Magnitude(), density=0.5, total_steps=TOTAL, seed=seed, layers=layers, selector=selector)
        masks.update(TOTAL)
        found.append(kept(masks, structures))
        for matrix in masks.matrices:
            matrix.applied = None
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("structure", ["heads", "units", "heads_and_units"])
@pytest.mark.parametrize("density", [0.01, 0.2, 0.517, 0.98])
def test_the_nearest_density_is_reached_at_every_step(model: nn.Module, structure: str, density: float) -> None:
    masks, structures = masks_of(model, structure, density)
    total = sum(matrix.weight.numel() for matrix in masks.matrices)
    sizes = {"heads": (HEAD, 12), "units": (UNIT, 72)}
    counts = {
        kind: range(3, sizes[kind][1] + 1) if any(e.kind == kind for e in structures) else range(1) for kind in sizes
    }
    possible = {h * HEAD + u * UNIT for h in counts["heads"] for u in counts["units"]}
    for step in range(TOTAL + 1):
        masks.update(step)
        scheduled = masks.method.schedule.density_at(step, TOTAL, masks._step.density)
        nearest = min(possible, key=lambda weights: abs(weights - scheduled * total))
        reached = sum(int(matrix.kept.sum()) for matrix in masks.matrices)
        assert abs(reached - scheduled * total) == pytest.approx(abs(nearest - scheduled * total), abs=1e-6)


@pytest.mark.parametrize("name", first_fast([*RANKING]))
def test_a_run_gives_a_smaller_model_with_the_same_outputs(
    model_folder: Path, data: ClassificationData, tmp_path: Path, name: str
) -> None:
    options: dict[str, Any] = {"method": name, "density": 0.5, "training": QUICK, "dense_baseline": False}
    result = compress(model_folder, data, structure="heads_and_units", **options)
    counts = result.accounting
    assert (counts.prunable_weights, counts.total_parameters > counts.total_nonzero) == (
        2 * (4 * 32 * 32 + 2 * 32 * 64),
        True,
    )
    assert counts.density == pytest.approx(0.5, abs=0.01)
    assert counts.dense_flops > counts.sparse_flops > 0
    state = result.model.state_dict()
    stored = sum(state[name].numel() for name in result.pruned)
    assert stored == pytest.approx(0.5 * counts.prunable_weights, rel=1e-3)
    manifest = result.save(tmp_path / "out")
    assert manifest.spec["structure"] == "heads_and_units"
    for layer in manifest.layers:
        assert layer.density == pytest.approx(layer.nonzero / (32 * 32 if "attention" in layer.name else 32 * 64))
    assert manifest.accounting.dense_bytes == 4 * counts.total_parameters
    assert any("heads are left, by block: " in note and "units are left, by block: " in note for note in result.notes)
    assert same_outputs(load(tmp_path / "out"), result.model)
    assert len(inspect(tmp_path / "out").matrices) == 12


def same_outputs(one: Any, other: Any) -> bool:
    ids = torch.randint(4, 40, (3, 11), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return bool(torch.allclose(one(ids).logits, other(ids).logits, rtol=1e-4, atol=1e-5))


def test_the_smaller_model_computes_what_the_masked_one_does(model: nn.Module) -> None:
    masks, structures = masks_of(model, "heads_and_units", 0.4)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)  # removed heads have value biases, removed units biases
    masks.finalize()
    model.eval()
    ids = torch.randint(4, 40, (3, 11), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = model(ids).last_hidden_state
        remove_empty(model, structures)
        torch.testing.assert_close(model(ids).last_hidden_state, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("structure", ["heads", "units"])
def test_one_kind_leaves_the_other_matrices_dense(model_folder: Path, data: ClassificationData, structure: Any) -> None:
    result = compress(
        model_folder, data, structure=structure, method="magnitude", density=0.5, training=QUICK, dense_baseline=False
    )
    assert all(("attention" in name) is (structure == "heads") for name in result.pruned)
    assert result.accounting.density == 0.5
    assert result.info.spec["method"]["magnitude"]["selection"] == "global"


@dataclass(frozen=True)
class LocalByDefault(Magnitude):
    """A method that is not the contract's."""

    name: ClassVar[str] = "local_by_default"
    selection: Selection | None = "local"


@pytest.mark.slow
def test_a_default_of_another_method_is_not_replaced_without_a_word(
    model_folder: Path, data: ClassificationData
) -> None:
    options: dict[str, Any] = {"method": LocalByDefault(), "training": QUICK, "dense_baseline": False}
    result = compress(model_folder, data, structure="heads", density=0.5, **options)
    assert any("heads are compared in all blocks together: selection is global" in note for note in result.notes)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["movement", "magnitude"])  # of all methods: test_checkpoints.py
def test_an_interrupted_run_ends_as_one_that_is_not(
    model_folder: Path, data: ClassificationData, tmp_path: Path, name: str
) -> None:
    options: dict[str, Any] = {
        "method": name,
        "structure": "heads_and_units",
        "density": 0.4,
        "training": QUICK,
        "dense_baseline": False,
    }
    whole = compress(model_folder, data, **options)
    for step in (4, 9):
        with pytest.raises(Stopped):
            compress(model_folder, data, checkpoint=tmp_path / "c", callback=StopIn("pruning", step), **options)
    assert same(whole, compress(model_folder, data, checkpoint=tmp_path / "c", **options))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"structure": "rows"},
            "structure must be one of heads, units, .*blocks_and_units, layers, got 'rows'",
        ),
        (
            {"structure": "layers", "method": L0()},
            "structure must be unset with the method l0, got 'layers'; take one of movement",
        ),
        (
            {"structure": "heads", "pattern": "2:4"},
            "pattern must be unset with structure, or 1x4 with structure_density, .*, got '2:4'; give",
        ),
        (
            {"structure": "heads", "method": Magnitude(selection="local")},
            "selection must be global or unset with structure, which compares all blocks, got 'local'",
        ),
        ({"structure": "heads", "delta": True}, "delta must be false with structure, .* got 'true'"),
    ],
)
def test_what_does_not_go_together(
    model_folder: Path, data: ClassificationData, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=f"^{text}"):
        compress(model_folder, data, density=0.5, training=QUICK, **options)


@pytest.mark.parametrize(
    ("options", "reason", "text"),
    [
        (
            {"density": 0.1, "structure": "heads"},
            Reason.DENSITY_NOT_REACHED,
            r"density must be 0\.1 within 10 %, got 0\.25 .*; take 0\.25, the nearest that whole heads have, with one",
        ),
        (
            {"density": 0.3, "structure": "heads"},
            Reason.DENSITY_NOT_REACHED,
            r"density must be 0\.3 within 10 %, got 0\.25",
        ),
        (
            {"density": 0.5, "structure": "heads", "exclude": ["*.query"]},
            Reason.UNSUPPORTED_ARCHITECTURE,
            r"include and exclude must select all matrices of the heads of a block or none, got some without .*query",
        ),
        (
            {"density": 0.5, "structure": "heads", "include": ["*.intermediate.dense"]},
            Reason.UNSUPPORTED_ARCHITECTURE,
            r"include and exclude must select the matrices of some heads, got none",
        ),
    ],
)
def test_what_structures_cannot_do_is_refused_before_training(
    model_folder: Path, data: ClassificationData, options: dict[str, Any], reason: Reason, text: str
) -> None:
    recorder = Recorder()
    with pytest.raises(CompressionError, match=text) as raised:
        compress(model_folder, data, method="movement", training=QUICK, callback=recorder, **options)
    assert raised.value.reason is reason
    assert recorder.phases == ["loading"]


@pytest.mark.slow
def test_a_density_that_is_missed_is_said(model_folder: Path, data: ClassificationData) -> None:
    options: dict[str, Any] = {"method": "movement", "structure": "heads", "dense_baseline": False, "training": QUICK}
    result = compress(model_folder, data, density=0.1, allow_density_miss=True, **options)
    assert result.accounting.density == pytest.approx(0.25, rel=1e-3), "one head of four in each block"
    assert "the density is 0.25, the nearest that whole heads have, not 0.1" in result.notes


def test_models_without_known_heads_are_refused(save: Callable[..., Path], data: ClassificationData) -> None:
    folder = save(GPT2Model(GPT2Config(vocab_size=40, n_embd=32, n_layer=1, n_head=2, n_positions=64)))
    with pytest.raises(
        CompressionError,
        match=r"structure must be unset for a model whose heads and units are not known, got heads for",
    ):
        compress(folder, data, method="movement", density=0.5, structure="heads", training=QUICK)


@pytest.mark.parametrize("structure", ["heads", "units", "heads_and_units"])
def test_a_step_waits_for_no_device(model: nn.Module, structure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the meta device, where nothing has a value that could be waited for."""
    generator = torch.Generator
    monkeypatch.setattr(torch, "Generator", lambda device="cpu": generator())
    model.to("meta")
    with NoCopies():
        masks, _ = masks_of(model, structure, 0.4, step=0)
        masks.update(5)
        masks.update(TOTAL)
    assert masks.current_density == pytest.approx(0.4, rel=0.1)


def test_excluded_blocks_stay_whole(model_folder: Path, data: ClassificationData) -> None:
    result = compress(
        model_folder,
        data,
        method="magnitude",
        structure="heads_and_units",
        density=0.4,
        exclude=["*.0.*"],
        training=replace(QUICK, max_steps=6),
        dense_baseline=False,
    )
    state = result.model.state_dict()
    assert state["bert.encoder.layer.0.intermediate.dense.weight"].shape == (64, 32)
    assert len(state["bert.encoder.layer.1.intermediate.dense.weight"]) < 64


def test_every_method_that_ranks_weights_takes_structures() -> None:
    assert {name for name, method in METHODS.items() if method.ranks_weights} == set(RANKING)
