"""Single weights inside the heads and units that stay."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.core.masks import NoCopies, new_masks, update
from tests.unit.core.test_resume import StopIn, same
from tests.unit.core.training_runs import Recorder
from torch import Tensor, nn
from transformers import AlbertConfig, AlbertModel, BertModel, DistilBertConfig, DistilBertModel

from mvprune import load as load_in
from mvprune.artifact import load
from mvprune.artifact.structures import Structures, find_structures, remove_empty
from mvprune.common.patterns import METHODS as RANKING
from mvprune.data.loading import ClassificationData
from mvprune.export import export
from mvprune_core import CompressionError, Magnitude, Movement, Reason, Stopped, Training, compress
from mvprune_core.masking import Masks
from mvprune_core.selectors import Ranking
from mvprune_core.sparse_structures import SparseStructures
from mvprune_core.structures import WholeStructures

QUICK = Training(max_steps=20, batch_size=32, learning_rate=5e-3)
TOTAL = 10
OPTIONS: dict[str, Any] = {
    "structure": "heads_and_units",
    "structure_density": 0.5,
    "density": 0.1,
    "training": QUICK,
    "dense_baseline": False,
}


def bert(bert_config: Callable[..., Any]) -> nn.Module:
    return BertModel(bert_config(num_hidden_layers=3, num_attention_heads=4, intermediate_size=24))


def distilbert(_: Any) -> nn.Module:
    return DistilBertModel(DistilBertConfig(vocab_size=40, dim=32, n_layers=2, n_heads=4, hidden_dim=48))


def albert(_: Any) -> nn.Module:
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48, "embedding_size": 16}
    return AlbertModel(AlbertConfig(vocab_size=40, num_hidden_layers=2, **sizes))


@pytest.fixture(params=[bert, distilbert, albert], ids=lambda make: make.__name__)
def model(request: pytest.FixtureRequest, bert_config: Callable[..., Any]) -> nn.Module:
    torch.manual_seed(1)
    made: nn.Module = request.param(bert_config)
    return made


def masks_of(
    model: nn.Module, density: float, structure_density: float, method: Any = None, step: int = TOTAL, whole: Any = None
) -> tuple[Masks, list[Structures]]:
    structures = list(find_structures(model))
    layers: Any = {name: model.get_submodule(name) for each in structures for name in each.layers}
    selector = whole or SparseStructures(WholeStructures(model, structures), structures, density, structure_density)
    method = method or Movement(selection="global")
    masks = new_masks(model, method, density=density, total_steps=TOTAL, seed=0, layers=layers, selector=selector)
    generator = torch.Generator().manual_seed(5)
    for scores in masks.scores:
        scores.data += torch.randn(scores.shape, generator=generator)
    update(masks, step)
    return masks, structures


def by_layer(masks: Masks) -> dict[str, Tensor]:
    return {matrix.name.removesuffix(".weight"): matrix.kept.clone() for matrix in masks.matrices}


def importance(masks: Masks) -> dict[str, Tensor]:
    """|W|, or S + c · v · |W| / mean |W| for movement."""
    found = {}
    for matrix in masks.matrices:
        values = matrix.weight.detach().abs()
        if matrix.scores is not None:
            values = matrix.scores.detach() + 5 * 100 * masks.scheduled_density * values / matrix.scale
        found[matrix.name.removesuffix(".weight")] = values
    return found


@pytest.mark.parametrize("method", [Movement(selection="global"), Magnitude(selection="global")], ids=lambda m: m.name)
@pytest.mark.parametrize(("density", "structure_density"), [(0.1, 0.5), (0.3, 0.4), (0.2, 1.0)])
def test_the_most_important_weights_of_what_stays_are_kept(
    model: nn.Module, method: Any, density: float, structure_density: float
) -> None:
    """By hand: the weights of the best structures, in the order of their importance, after one for each structure."""
    masks, structures = masks_of(model, density, structure_density, method)
    values, kept = importance(masks), by_layer(masks)
    inside = kept_wholes(model, masks, structures, structure_density)
    total = sum(mask.numel() for mask in kept.values())
    forced = []
    for each in structures:
        weight, whole = values[each.output], inside[each.output]
        for first in range(0, weight.shape[1], each.size):
            columns = weight[:, first : first + each.size]
            if whole[:, first : first + each.size].any():
                row, column = divmod(int(columns.argmax()), each.size)
                forced.append((each.output, row, first + column))
    others = sorted(
        (
            (float(values[name][row, column]), name, int(row), int(column))
            for name, whole in inside.items()
            for row, column in whole.nonzero()
        ),
        reverse=True,
    )
    chosen = set(forced)
    for _, name, row, column in others:
        if len(chosen) == int(density * total + 1e-9):
            break
        chosen.add((name, row, column))
    assert chosen == {(name, int(row), int(column)) for name, mask in kept.items() for row, column in mask.nonzero()}
    assert masks.current_density == density


def kept_wholes(
    model: nn.Module, masks: Masks, structures: list[Structures], structure_density: float
) -> dict[str, Tensor]:
    """Which weights the selection of whole structures keeps, by layer."""
    selector = WholeStructures(model, structures)
    matrices = masks.matrices
    for matrix in matrices:
        matrix.mask = torch.empty_like(matrix.weight, dtype=torch.bool, requires_grad=False)
    found = importance(masks)
    ranking = Ranking(
        lambda matrix, _: found[matrix.name.removesuffix(".weight")], lambda sums, size: sums / size, "global", 0
    )
    selector.select(matrices, ranking, selector.nearest(structure_density))
    return {matrix.name.removesuffix(".weight"): matrix.mask for matrix in matrices}


def test_both_densities_fall_together(model: nn.Module) -> None:
    masks, structures = masks_of(model, 0.1, 0.5, step=0)
    whole = WholeStructures(model, structures)
    total = sum(matrix.weight.numel() for matrix in masks.matrices)
    shares = []
    for step in range(TOTAL + 1):
        masks.update(step)
        v = masks.method.schedule.density_at(step, TOTAL, 0.1)
        kept = by_layer(masks)
        expected = int(min(v, whole.nearest(v ** (0.30103))) * total + 1e-9)
        assert sum(int(mask.sum()) for mask in kept.values()) == pytest.approx(expected, abs=1)
        shares.append(share_of_structures(kept, structures))
    assert shares[0] == 1
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == pytest.approx(whole.nearest(0.5))


def share_of_structures(kept: dict[str, Tensor], structures: list[Structures]) -> float:
    """The fraction of the weights that belong to structures with a kept output column."""
    left = total = 0
    for each in structures:
        some = kept[each.output].any(0).view(-1, each.size).any(1)
        weights = sum(kept[layer].numel() for layer in each.layers) // len(some)
        left, total = left + int(some.sum()) * weights, total + len(some) * weights
    return left / total


def test_the_smaller_model_computes_what_the_masked_one_does(model: nn.Module) -> None:
    masks, structures = masks_of(model, 0.1, 0.5)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    masks.finalize()
    model.eval()
    kept = sum(int(mask.sum()) for mask in by_layer(masks).values())
    ids = torch.randint(4, 40, (3, 11), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = model(ids).last_hidden_state
        before = sum(p.numel() for p in model.parameters())
        remove_empty(model, structures)
        torch.testing.assert_close(model(ids).last_hidden_state, expected, rtol=1e-5, atol=1e-5)
    left = [model.get_submodule(layer).weight for each in structures for layer in each.layers]
    assert sum(int((weight != 0).sum()) for weight in left) == kept, "nothing that is kept is removed"
    assert sum(p.numel() for p in model.parameters()) < before


@pytest.fixture
def model_folder(save: Callable[..., Path], bert_config: Callable[..., Any]) -> Path:
    torch.manual_seed(1)
    return save(BertModel(bert_config(num_attention_heads=4)))


@pytest.mark.parametrize("name", RANKING)
def test_a_run_gives_a_smaller_and_sparse_model(
    model_folder: Path, data: ClassificationData, tmp_path: Path, name: str
) -> None:
    result = compress(model_folder, data, method=name, **OPTIONS)
    counts = result.accounting
    assert counts.prunable_weights == 2 * (4 * 32 * 32 + 2 * 32 * 64)
    assert counts.density == pytest.approx(0.1, rel=0.01)
    state = result.model.state_dict()
    stored = sum(state[weight].numel() for weight in result.pruned)
    nonzero = sum(int((state[weight] != 0).sum()) for weight in result.pruned)
    assert stored == pytest.approx(0.5 * counts.prunable_weights, rel=0.01)
    assert nonzero == counts.kept_weights
    assert counts.total_nonzero == sum(int(p.count_nonzero()) for p in result.model.parameters())
    assert counts.dense_flops > 2 * counts.sparse_flops > 0
    manifest = result.save(tmp_path / "out")
    assert manifest.spec["structure_density"] == 0.5
    assert manifest.accounting.dense_bytes == 4 * counts.total_parameters
    files = sum(file.stat().st_size for file in (tmp_path / "out").iterdir() if file.suffix == ".safetensors")
    assert files < manifest.accounting.dense_bytes
    expected = logits(result.model)
    loaded = load(tmp_path / "out")
    assert {k: tuple(v.shape) for k, v in loaded.state_dict().items()} == {k: tuple(v.shape) for k, v in state.items()}
    torch.testing.assert_close(logits(loaded), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(logits(load_in(tmp_path / "out", runtime="sparse")), expected, rtol=1e-4, atol=1e-5)


def logits(model: Any) -> Tensor:
    ids = torch.randint(4, 40, (3, 11), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        found: Tensor = model(ids).logits
    return found


def test_an_onnx_export_computes_it(model_folder: Path, data: ClassificationData, tmp_path: Path) -> None:
    compress(model_folder, data, method="magnitude", **OPTIONS).save(tmp_path / "out")
    done = export(tmp_path / "out", tmp_path / "onnx", to="onnx")
    assert done.difference is not None
    assert done.difference < 1e-4


@pytest.mark.parametrize("name", ["movement", "platon", "magnitude"])
def test_an_interrupted_run_ends_as_one_that_is_not(
    model_folder: Path, data: ClassificationData, tmp_path: Path, name: str
) -> None:
    whole = compress(model_folder, data, method=name, **OPTIONS)
    for step in (7, 15):
        with pytest.raises(Stopped):
            compress(
                model_folder, data, checkpoint=tmp_path / "c", callback=StopIn("pruning", step), method=name, **OPTIONS
            )
    assert same(whole, compress(model_folder, data, checkpoint=tmp_path / "c", method=name, **OPTIONS))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"structure": None}, "structure_density must be None without structure, got 0.5"),
        ({"structure_density": 1.5}, "structure_density must be a fraction in (0, 1], got 1.5"),
        ({"density": 0.5}, "structure_density must be above density, 0.5, got 0.5; leave it out to keep all weights"),
    ],
)
def test_what_does_not_go_together(
    model_folder: Path, data: ClassificationData, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}"):
        compress(model_folder, data, method="movement", **OPTIONS | options)


def test_a_density_that_structures_cannot_reach_is_refused(model_folder: Path, data: ClassificationData) -> None:
    recorder = Recorder()
    with pytest.raises(CompressionError, match=r"structure_density must be .* got 0\.15; take 0\.25") as found:
        compress(
            model_folder,
            data,
            method="movement",
            callback=recorder,
            **OPTIONS | {"structure": "heads", "structure_density": 0.15},
        )
    assert found.value.reason is Reason.DENSITY_NOT_REACHED
    assert recorder.phases == ["loading"]


def test_a_step_waits_for_no_device(bert_config: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """On the meta device, where nothing has a value that could be waited for."""
    generator, model = torch.Generator, bert(bert_config)
    monkeypatch.setattr(torch, "Generator", lambda device="cpu": generator())
    model.to("meta")
    with NoCopies():
        masks, _ = masks_of(model, 0.1, 0.5, step=0)
        masks.update(5)
        masks.update(TOTAL)
    assert masks.current_density == 0.1
