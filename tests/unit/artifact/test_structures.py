"""Models without some of their heads and units: the same outputs, and every way to open their artifacts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from tests.unit.artifact.saved_models import TINY_BERT, Tokenizer, bert, identical, kept
from torch import Tensor, nn

import mvprune.hf  # noqa: F401 (registers the format)
from mvprune.artifact import LayerCount, ResultInfo, load, round_values, save_model
from mvprune.artifact.inspection import inspect
from mvprune.artifact.structures import Structures, find_structures, remove_empty, restore_shapes, shrink_to
from mvprune.export import export
from mvprune.runtime import load as load_in
from mvprune.runtime import optimize

ALBERT = {"embedding_size": 16, "inner_group_num": 1, "num_hidden_groups": 1}
TINY = {key: value for key, value in TINY_BERT.items() if key != "max_position_embeddings"} | {
    "max_position_embeddings": 26
}
MODELS = {
    "bert": lambda: transformers.BertForSequenceClassification(transformers.BertConfig(**TINY_BERT)),
    "roberta": lambda: transformers.RobertaForSequenceClassification(transformers.RobertaConfig(**TINY)),
    "camembert": lambda: transformers.CamembertForSequenceClassification(transformers.CamembertConfig(**TINY)),
    "xlm-roberta": lambda: transformers.XLMRobertaForSequenceClassification(transformers.XLMRobertaConfig(**TINY)),
    "electra": lambda: transformers.ElectraForTokenClassification(
        transformers.ElectraConfig(**TINY_BERT, embedding_size=16)
    ),
    "albert": lambda: transformers.AlbertForSequenceClassification(transformers.AlbertConfig(**TINY_BERT, **ALBERT)),
    "distilbert": lambda: transformers.DistilBertForSequenceClassification(
        transformers.DistilBertConfig(
            vocab_size=40, dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=24
        )
    ),
}
# Heads and units to remove, by block, as many as there are blocks.
HEADS = ([0, 2], [1, 2, 3])
UNITS = (list(range(0, 64, 2)), list(range(20)))


def make(name: str) -> Any:
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    with torch.no_grad():
        for parameter in model.parameters():  # biases too
            parameter.normal_(0, 0.2)
    return model


def masked(model: nn.Module) -> list[Structures]:
    """Zeros where heads and units are pruned; biases stay."""
    structures = list(find_structures(model))
    blocks = list(dict.fromkeys(each.block for each in structures))
    with torch.no_grad():
        for each in structures:
            numbers = (HEADS if each.kind == "heads" else UNITS)[blocks.index(each.block)]
            for number in numbers:
                part = slice(number * each.size, (number + 1) * each.size)
                for layer in each.inputs:
                    model.get_submodule(layer).weight[part] = 0  # type: ignore[index,operator]
                model.get_submodule(each.output).weight[:, part] = 0  # type: ignore[index,operator]
    return structures


def logits(model: Any, examples: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(4, 40, (examples, 12), generator=generator)
    mask = torch.ones_like(ids)
    mask[0, 8:] = 0
    with torch.no_grad():
        found: Tensor = model(input_ids=ids, attention_mask=mask).logits
    return found


@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_those_of_the_masked_model(name: str) -> None:
    model = make(name)
    structures = masked(model)
    before = logits(model)
    parameters = sum(one.numel() for one in model.parameters())
    left = remove_empty(model, structures)
    torch.testing.assert_close(logits(model), before, rtol=1e-5, atol=1e-6)
    removed = sum(
        len((HEADS if each.kind == "heads" else UNITS)[number // 2])
        * each.size
        * (sum(32 for _ in each.layers) + len(each.inputs))  # rows of 32 with their biases, columns of 32
        for number, each in enumerate(structures)
    )
    assert sum(one.numel() for one in model.parameters()) == parameters - removed
    assert [left[each] for each in structures][:2] == [2, 32]


def test_a_block_keeps_one_of_each() -> None:
    model = bert()
    with torch.no_grad():
        for each in find_structures(model):
            model.get_submodule(each.output).weight.zero_()  # type: ignore[operator]
    before = logits(model)
    assert set(remove_empty(model, list(find_structures(model))).values()) == {1}
    torch.testing.assert_close(logits(model), before)


def test_one_removed_structure_is_named_in_the_singular() -> None:
    model = bert()
    heads, units = list(find_structures(model))[:2]
    with torch.no_grad():
        for each in (heads, units):
            model.get_submodule(each.output).weight[:, : each.size] = 0  # type: ignore[index,operator]
    remove_empty(model, list(find_structures(model)))
    assert [note.partition(",")[0] for note in restore_shapes(model)] == [
        "1 removed head is written as zeros",
        "1 removed unit is written as zeros",
    ]


def test_models_of_other_architectures_have_no_known_structures() -> None:
    model = transformers.GPT2Model(transformers.GPT2Config(vocab_size=40, n_embd=32, n_layer=1, n_head=2))
    assert list(find_structures(model)) == []
    assert restore_shapes(model) == []


def test_shapes_that_no_number_of_heads_gives_are_left_alone() -> None:
    model, same = bert(), bert()
    output = "bert.encoder.layer.0.attention.output.dense.weight"
    for columns in (0, 12, 40, 32):  # of heads of 8
        shrink_to(model, {output: (32, columns)})
        assert identical(model, same)
    shrink_to(model, {output: (32,)})
    assert identical(model, same)
    shrink_to(model, {output: (32, 16)})
    assert model.get_parameter(output).shape == (32, 16)
    assert model.get_submodule("bert.encoder.layer.0.attention.self").num_attention_heads == 2


@pytest.fixture(params=["bert", "distilbert"])
def saved(request: pytest.FixtureRequest, result: ResultInfo, tmp_path: Path) -> tuple[Path, Any]:
    """An artifact of a shrunk model, and the model."""
    model = make(request.param)
    structures = masked(model)
    remove_empty(model, structures)
    names = [f"{layer}.weight" for each in structures for layer in each.layers]
    round_values(model, names)
    counts = dataclasses.replace(
        result.accounting, kept_weights=kept(model, names), prunable_weights=10**6, total_parameters=10**6
    )
    weights = {name: model.get_parameter(name) for name in names}
    layers = tuple(LayerCount(name, tuple(one.shape), 1.0, one.numel()) for name, one in weights.items())
    info = dataclasses.replace(result, accounting=counts, layers=layers)
    save_model(tmp_path / "out", model, Tokenizer(), pruned=names, result=info)
    return tmp_path / "out", model


def test_an_artifact_opens_with_its_smaller_shapes(saved: tuple[Path, Any]) -> None:
    folder, model = saved
    loaded = load(folder)
    assert identical(loaded, model)
    assert torch.equal(logits(loaded), logits(model))
    shapes = {(matrix.block[-1:], matrix.kind): matrix.shape for matrix in inspect(folder).matrices}
    assert shapes["0", "query"] == (16, 32)
    assert shapes["1", "output"] == (32, 44)


def test_transformers_opens_it_with_its_smaller_shapes(saved: tuple[Path, Any]) -> None:
    folder, model = saved
    loaded = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    assert identical(loaded, model)
    torch.testing.assert_close(logits(loaded), logits(model))
    body = transformers.AutoModel.from_pretrained(folder)
    assert identical(body, model.base_model)


def test_transformers_does_not_open_what_it_saved_of_it_in_silence(saved: tuple[Path, Any], tmp_path: Path) -> None:
    """Only an artifact, or an export, can be opened: config.json does not know the smaller layers."""
    loaded = transformers.AutoModelForSequenceClassification.from_pretrained(saved[0])
    loaded.save_pretrained(tmp_path / "again")
    with pytest.raises(RuntimeError, match=r"size mismatch|mismatched"):
        transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "again")


@pytest.mark.parametrize("backend", ["kernel", "csr"])
def test_the_sparse_runtime_computes_it(saved: tuple[Path, Any], backend: Any) -> None:
    folder, model = saved
    with torch.no_grad():
        for each in find_structures(model):
            for layer in each.layers:
                weight = model.get_submodule(layer).weight
                weight.mul_((torch.rand(weight.shape, generator=torch.Generator().manual_seed(2)) < 0.3).float())
    expected = logits(model)
    torch.testing.assert_close(logits(optimize(model, backend=backend)), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(logits(load_in(folder, runtime="sparse")), logits(load(folder)), rtol=1e-4, atol=1e-5)


def test_a_dense_export_has_zeros_where_the_configuration_cannot_say_more(
    saved: tuple[Path, Any], tmp_path: Path
) -> None:
    folder, model = saved
    done = export(folder, tmp_path / "dense", to="dense")
    assert done.notes[:2] == (
        "5 removed heads are written as zeros, because config.json cannot describe such layers",
        "12 removed units are written as zeros, because config.json has one size for all layers",
    )
    assert done.notes[2].startswith("dense has not the size of the artifact: its weights take ")
    loaded = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "dense").eval()
    torch.testing.assert_close(logits(loaded), logits(model), rtol=1e-5, atol=1e-6)
    sizes = loaded.config.to_dict()
    assert sizes.get("intermediate_size", sizes.get("hidden_dim")) == 44, "the larger of 32 and 44 units"
    assert not any(name.startswith("quantization") for name in sizes)
    tensors: Mapping[str, Tensor] = load_file(tmp_path / "dense" / "model.safetensors")
    assert {tensor.shape for name, tensor in tensors.items() if name.endswith(("query.weight", "q_lin.weight"))} == {
        (32, 32)
    }


@pytest.mark.slow
@pytest.mark.parametrize("saved", ["bert"], indirect=True)  # the graph is traced, whatever the names of the parts
def test_an_onnx_export_has_the_smaller_shapes(saved: tuple[Path, Any], tmp_path: Path) -> None:
    done = export(saved[0], tmp_path / "onnx", to="onnx")
    assert [note.partition(" has not the size")[0] for note in done.notes] == ["onnx"]
    assert done.difference is not None
    assert done.difference < 1e-4


def test_an_export_of_matrices_has_the_smaller_shapes(saved: tuple[Path, Any], tmp_path: Path) -> None:
    assert export(saved[0], tmp_path / "csr", to="csr").notes == ()
