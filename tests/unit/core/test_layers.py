"""Whole layers: which stay, how the others are bypassed, and the smaller model that a run gives."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tests.unit.core.masks import NoCopies, new_masks, update
from tests.unit.core.test_resume import StopIn, same
from tests.unit.core.training_runs import Recorder, settings
from torch import Tensor, nn
from transformers import AlbertConfig, AlbertModel, BertModel, DistilBertConfig, GPT2Config, GPT2Model

import mvprune.hf  # noqa: F401 (registers the format)
from mvprune.artifact import load
from mvprune.artifact.inspection import inspect
from mvprune.artifact.structures import Structures, find_layers, remove_empty_layers
from mvprune.data.loading import ClassificationData
from mvprune.export import export
from mvprune.runtime import load as load_in
from mvprune_core import CompressionError, Magnitude, Movement, Reason, Stopped, Teacher, Training, compress
from mvprune_core.pruning.layers import WholeLayers, empty_bypassed, remove_structures
from mvprune_core.pruning.structure_kinds import pruned_structures
from mvprune_core.training.masking import Masks
from mvprune_core.training.training_mode import training_mode

QUICK = Training(max_steps=12, batch_size=32, learning_rate=5e-3)
OPTIONS: dict[str, Any] = {"structure": "layers", "training": QUICK, "dense_baseline": False}
TOTAL, LAYERS = 10, 4
LAYER = 4 * 32 * 32 + 2 * 32 * 64  # weights of one
SIZES = {"vocab_size": 40, "max_position_embeddings": 64}
LABELS = {"id2label": {0: "negative", 1: "positive"}, "label2id": {"negative": 0, "positive": 1}}


@pytest.fixture
def model(bert_config: Callable[..., Any]) -> nn.Module:
    torch.manual_seed(1)
    return BertModel(bert_config(num_hidden_layers=LAYERS)).eval()


@pytest.fixture
def model_folder(save: Callable[..., Path], model: nn.Module) -> Path:
    return save(model)


def make(name: str, bert_config: Callable[..., Any]) -> Any:
    """A classifier of four layers, with biases and norms that are not trivial."""
    torch.manual_seed(0)
    sizes = bert_config(num_hidden_layers=LAYERS).to_dict()
    config: Any = {
        "bert": lambda: transformers.BertConfig(**sizes),
        "roberta": lambda: transformers.RobertaConfig(**sizes),
        "electra": lambda: transformers.ElectraConfig(**sizes, embedding_size=16),
        "distilbert": lambda: DistilBertConfig(**SIZES, dim=32, n_layers=LAYERS, n_heads=2, hidden_dim=64),
    }[name]()
    found = transformers.AutoModelForSequenceClassification.from_config(config).eval()
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.normal_(0, 0.2)
    return found


def masks_of(model: nn.Module, density: float, method: Any = None, step: int = TOTAL) -> tuple[Masks, list[Structures]]:
    layers = find_layers(model)
    chosen: Any = {name: model.get_submodule(name) for each in layers for name in each.layers}
    method = method or Movement(selection="global")
    options: dict[str, Any] = {"density": density, "total_steps": TOTAL, "seed": 0, "layers": chosen}
    masks = new_masks(model, method, selector=WholeLayers(layers), **options)
    generator = torch.Generator().manual_seed(5)
    for number, scores in enumerate(masks.scores):
        scores.data += torch.randn(scores.shape, generator=generator) + 0.1 * (number % 5)
    update(masks, step)
    return masks, layers


def kept(masks: Masks, layers: list[Structures]) -> list[int]:
    """The numbers of the layers whose weights are kept; each is kept or pruned as a whole."""
    values = {matrix.name.removesuffix(".weight"): matrix.kept for matrix in masks.matrices}
    found = []
    for number, each in enumerate(layers):
        together = torch.cat([values[name].reshape(-1) for name in each.layers])
        assert bool(together.all()) or not bool(together.any())
        found += [number] * bool(together.any())
    return found


def means(masks: Masks, layers: list[Structures]) -> list[float]:
    """The mean importance of each layer, by hand: S + c · v · |W| / mean |W| for movement."""
    values: dict[str, Tensor] = {}
    for matrix in masks.matrices:
        name = matrix.name.removesuffix(".weight")
        values[name] = matrix.weight.detach().abs()
        if matrix.scores is not None:
            values[name] = matrix.scores.detach() + 500 * masks.scheduled_density * values[name] / matrix.scale
    return [float(torch.cat([values[name].reshape(-1) for name in each.layers]).double().mean()) for each in layers]


@pytest.mark.parametrize("method", [Movement(selection="global"), Magnitude(selection="global")], ids=lambda m: m.name)
@pytest.mark.parametrize(("density", "number"), [(0.01, 1), (0.25, 1), (0.5, 2), (0.7, 3), (0.95, 4)])
def test_the_best_stay_by_their_mean_importance(model: nn.Module, method: Any, density: float, number: int) -> None:
    masks, layers = masks_of(model, density, method)
    by_hand = means(masks, layers)
    best = sorted(range(LAYERS), key=lambda one: -by_hand[one])[:number]
    assert kept(masks, layers) == sorted(best)
    assert masks.current_density == number / LAYERS


def test_equal_layers_are_chosen_by_the_seed(model: nn.Module) -> None:
    layers = find_layers(model)
    chosen: Any = {name: model.get_submodule(name) for each in layers for name in each.layers}
    found = []
    for seed in (0, 0, *range(1, 9)):
        for layer in chosen.values():
            nn.init.constant_(layer.weight, 0.5)
        options: dict[str, Any] = {"density": 0.5, "total_steps": TOTAL, "layers": chosen}
        masks = Masks(model, Magnitude(), seed=seed, selector=WholeLayers(layers), **options)
        masks.update(TOTAL)
        found.append(kept(masks, layers))
    assert found[0] == found[1]
    assert len({tuple(numbers) for numbers in found}) > 2


def test_a_step_waits_for_no_device(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the meta device, where nothing has a value that could be waited for. The bypass does not either."""
    generator = torch.Generator
    monkeypatch.setattr(torch, "Generator", lambda device="cpu": generator())
    model.to("meta")
    with NoCopies():
        masks, layers = masks_of(model, 0.5, step=0)
        masks.update(TOTAL)
        with empty_bypassed(model, layers):
            model(torch.ones(2, 5, dtype=torch.long, device="meta"))


def read(model: Any, **options: Any) -> Any:
    ids = torch.randint(4, 40, (3, 11), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[0, 8:] = 0
    with torch.no_grad():
        return model(input_ids=ids, attention_mask=mask, **options)


@pytest.mark.parametrize("empty", [(0,), (3,), (1, 2), (0, 1, 3)], ids=str)
@pytest.mark.parametrize("name", ["bert", "distilbert", "roberta", "electra"])
def test_the_bypassed_model_is_the_smaller_one(
    name: str, empty: tuple[int, ...], bert_config: Callable[..., Any]
) -> None:
    model = make(name, bert_config)
    read(model, output_hidden_states=True)  # transformers has its hooks now
    whole = read(model).logits
    layers = find_layers(model)
    for number in empty:
        for layer in layers[number].layers:
            model.get_parameter(f"{layer}.weight").data.zero_()
    with empty_bypassed(model, layers):
        masked = read(model, output_hidden_states=True)
    assert not torch.allclose(read(model).logits, masked.logits, atol=1e-3), "zeros are not the identity"
    names, note = remove_structures(model, layers, [f"{layer}.weight" for each in layers for layer in each.layers])
    smaller = read(model, output_hidden_states=True)
    torch.testing.assert_close(smaller.logits, masked.logits, rtol=1e-6, atol=1e-6)
    assert not torch.allclose(whole, masked.logits, atol=1e-3)
    for number in range(LAYERS):
        first, second = masked.hidden_states[number : number + 2]
        assert torch.equal(first, second) is (number in empty)
    assert model.config.num_hidden_layers == len(find_layers(model)) == LAYERS - len(empty)
    assert set(names) == {f"{layer}.weight" for each in find_layers(model) for layer in each.layers}
    assert note.endswith(f"layers are left; removed: {', '.join(layers[number].block for number in empty)}")
    again = transformers.AutoModelForSequenceClassification.from_config(model.config).eval()
    again.load_state_dict(model.state_dict())
    assert torch.equal(read(again).logits, smaller.logits)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_bypassed_layers_have_gradients_of_zero(bert_config: Callable[..., Any], checkpointing: bool) -> None:
    model = make("bert", bert_config).train()
    layers = find_layers(model)
    for layer in layers[1].layers:
        model.get_parameter(f"{layer}.weight").data.zero_()
    ids = torch.randint(4, 40, (3, 11), generator=torch.Generator().manual_seed(0))
    with empty_bypassed(model, layers), training_mode(model, settings(gradient_checkpointing=checkpointing)):
        model(ids).logits.square().sum().backward()
    bypassed = {name: one.grad for name, one in model.named_parameters()}
    remove_empty_layers(model, layers)
    model.zero_grad()
    model(ids).logits.square().sum().backward()
    for old, new in ((0, 0), (2, 1), (3, 2)):
        for name, parameter in model.get_submodule(f"bert.encoder.layer.{new}").named_parameters():
            torch.testing.assert_close(bypassed[f"bert.encoder.layer.{old}.{name}"], parameter.grad)
    removed = [grad for name, grad in bypassed.items() if ".layer.1." in name]
    assert removed
    assert not any(grad.any() for grad in removed if grad is not None)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["magnitude", "soft_movement"])  # all of them: test_structures.py
def test_a_run_gives_a_model_of_fewer_layers(
    model_folder: Path, data: ClassificationData, tmp_path: Path, name: str
) -> None:
    result = compress(model_folder, data, method=name, density=0.5, **OPTIONS)
    counts, state = result.accounting, result.model.state_dict()
    assert (counts.prunable_weights, counts.kept_weights, counts.density) == (LAYERS * LAYER, 2 * LAYER, 0.5)
    whole = sum(one.numel() for one in BertModel.from_pretrained(model_folder).encoder.parameters())
    assert (counts.encoder_parameters, 2 * counts.encoder_nonzero) == (whole, pytest.approx(whole, rel=0.01))
    assert counts.dense_flops == pytest.approx(2 * counts.sparse_flops, rel=0.05)
    assert sum(state[weight].numel() for weight in result.pruned) == 2 * LAYER
    assert {layer.name for layer in result.layers} == set(result.pruned)
    assert {layer.density for layer in result.layers} == {1.0}
    [note] = [note for note in result.notes if "layers are left" in note]
    assert note.startswith("2 of 4 layers are left; removed: bert.encoder.layer.")
    folder = tmp_path / "out"
    manifest = result.save(folder)
    assert manifest.spec["structure"] == "layers"
    assert len(manifest.layers) == len(inspect(folder).matrices) == 12
    assert json.loads((folder / "config.json").read_text())["num_hidden_layers"] == 2
    assert "whole layers" in (folder / "README.md").read_text()
    loaded = load(folder)
    assert torch.equal(read(loaded).logits, read(result.model).logits)
    assert 0 <= result.metrics["eval/accuracy"] <= 1


@pytest.mark.slow
def test_every_way_to_open_the_artifact(model_folder: Path, data: ClassificationData, tmp_path: Path) -> None:
    result = compress(model_folder, data, method="magnitude", density=0.25, **OPTIONS)
    result.save(tmp_path / "out")
    expected = read(result.model).logits
    torch.testing.assert_close(read(load_in(tmp_path / "out", runtime="sparse")).logits, expected, rtol=1e-4, atol=1e-5)
    export(tmp_path / "out", tmp_path / "dense", to="dense")
    plain = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "dense").eval()
    assert plain.config.num_hidden_layers == 1
    torch.testing.assert_close(read(plain).logits, expected)
    with_hf = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    torch.testing.assert_close(read(with_hf).logits, expected, rtol=1e-4, atol=1e-5)
    exported = export(tmp_path / "out", tmp_path / "onnx", to="onnx")
    assert exported.difference is not None
    assert exported.difference < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "teacher"),
    [("movement", Teacher(hidden_states=1.0)), ("magnitude", None), ("platon", None)],
    ids=["hidden states", "magnitude", "platon"],
)
def test_an_interrupted_run_ends_as_one_that_is_not(
    model_folder: Path, data: ClassificationData, tmp_path: Path, name: str, teacher: Any
) -> None:
    options: dict[str, Any] = {**OPTIONS, "method": name, "density": 0.5, "teacher": teacher}
    whole = compress(model_folder, data, **options)
    for step in (4, 9):
        with pytest.raises(Stopped):
            compress(model_folder, data, checkpoint=tmp_path / "c", callback=StopIn("pruning", step), **options)
    assert same(whole, compress(model_folder, data, checkpoint=tmp_path / "c", **options))


@pytest.mark.slow
def test_weights_can_be_sparse_inside_the_layers(model_folder: Path, data: ClassificationData) -> None:
    result = compress(model_folder, data, method="magnitude", density=0.1, structure_density=0.5, **OPTIONS)
    assert result.accounting.density == pytest.approx(0.1, rel=1e-3)
    assert len(result.pruned) == 12
    assert result.model.config.num_hidden_layers == 2


def test_a_model_that_is_kept_as_it_is_keeps_a_layer_of_zeros(
    save: Callable[..., Path], data: ClassificationData, bert_config: Callable[..., Any]
) -> None:
    """Nothing bypassed that layer when the model was trained."""
    model = transformers.BertForSequenceClassification(bert_config(num_hidden_layers=LAYERS, **LABELS))
    model.bert.encoder.layer[1].output.dense.weight.data.zero_()
    result = compress(save(model), data, density=1, method="magnitude", keep_fine_tuned=True, teacher=None, **OPTIONS)
    assert result.model.config.num_hidden_layers == LAYERS
    assert any("was not trained again" in note for note in result.notes)


@pytest.mark.slow
def test_excluded_layers_stay(model_folder: Path, data: ClassificationData) -> None:
    options = {**OPTIONS, "method": "magnitude", "density": 1 / 3, "exclude": ["*.1.*"]}
    result = compress(model_folder, data, **options)
    original = BertModel.from_pretrained(model_folder)
    assert result.model.config.num_hidden_layers == 2
    assert result.accounting.prunable_weights == 3 * LAYER
    assert len(result.pruned) == 6
    [note] = [note for note in result.notes if "layers are left" in note]
    assert "1 of 3 layers are left" in note
    assert "bert.encoder.layer.1" not in note
    assert sum(one.numel() for one in original.encoder.layer[1].parameters()) == sum(
        one.numel()
        for one in result.model.bert.encoder.layer[0].parameters()  # type: ignore[union-attr,operator]
    )


@pytest.mark.parametrize(
    ("options", "reason", "text"),
    [
        (
            {"density": 0.1},
            Reason.DENSITY_NOT_REACHED,
            r"density must be 0\.1 within 10 %, got 0\.25 .*; take 0\.25, the nearest that whole layers have, with at "
            "least one of them, or allow_density_miss",
        ),
        (
            {"density": 0.05, "structure_density": 0.3},
            Reason.DENSITY_NOT_REACHED,
            r"structure_density must be a density of whole layers, with at least one of them, within 10 %, got 0\.3; "
            r"take 0\.25",
        ),
        (
            {"density": 0.5, "exclude": ["*.query"]},
            Reason.UNSUPPORTED_ARCHITECTURE,
            "include and exclude must select all matrices of a layer or none, got some without .*query",
        ),
        (
            {"density": 0.5, "include": ["*.layer.*.attention.*"]},
            Reason.UNSUPPORTED_ARCHITECTURE,
            "include and exclude must select all matrices of a layer or none, got some without .*intermediate",
        ),
    ],
)
def test_what_layers_cannot_do_is_refused_before_training(
    model_folder: Path, data: ClassificationData, options: dict[str, Any], reason: Reason, text: str
) -> None:
    recorder = Recorder()
    with pytest.raises(CompressionError, match=text) as raised:
        compress(model_folder, data, method="movement", callback=recorder, **OPTIONS, **options)
    assert raised.value.reason is reason
    assert recorder.phases == ["loading"]


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (
            AlbertModel(AlbertConfig(**SIZES, embedding_size=16, hidden_size=32, num_attention_heads=2)),
            "structure must be other than layers for a model whose layers share their weights, got layers for a Albert"
            ".*; take heads_and_units",
        ),
        (
            GPT2Model(GPT2Config(vocab_size=40, n_embd=32, n_layer=2, n_head=2, n_positions=64)),
            "structure must be unset for a model whose layers are not known, got layers for a GPT2.*; known are",
        ),
    ],
    ids=["albert", "gpt2"],
)
def test_models_without_layers_of_their_own_are_refused(model: Any, text: str) -> None:
    layers: Any = {name: one for name, one in model.named_modules() if type(one) is nn.Linear}
    with pytest.raises(CompressionError, match=text) as raised:
        pruned_structures(model, layers, "layers")
    assert raised.value.reason is Reason.UNSUPPORTED_ARCHITECTURE


@pytest.mark.slow
def test_a_density_that_is_missed_is_said(model_folder: Path, data: ClassificationData) -> None:
    result = compress(model_folder, data, method="movement", density=0.1, allow_density_miss=True, **OPTIONS)
    assert result.accounting.density == 0.25
    assert "the density is 0.25, the nearest that whole layers have, not 0.1" in result.notes
