"""What the server refuses because of the model that it has looked into."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Tiny
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from mvprune.sources.model_folder import inspect_model
from mvprune.sources.sentence_transformers import SentenceEmbedding, write_sentence_embedding
from mvprune.spec.run_options import RunOptions
from mvprune.v1 import job_pb2
from mvprune_core.base.errors import CompressionError
from mvprune_core.models.prunable import prunable_layers
from mvprune_core.pruning.sparse_structures import SparseStructures
from mvprune_core.pruning.structure_kinds import Structure, new_selector, pruned_structures
from mvprune_service.api.checks.architectures import check_architecture, check_kept

KNOWN = "albert, bert, camembert, distilbert, electra, roberta, xlm-roberta"


def refused(folder: Path, **spec: Any) -> dict[str, str]:
    values = {"allow_density_miss": "target_density" not in spec} | spec
    return dict(check_architecture(job_pb2.CompressionSpec(**values), inspect_model(folder).architecture))


def of_type(tiny: Tiny, folder: Path, **changes: Any) -> Path:
    """The tiny BERT, by another config."""
    shutil.copytree(tiny.model, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    return folder


@pytest.mark.parametrize("structure", ["HEADS", "UNITS", "HEADS_AND_UNITS"])
@pytest.mark.parametrize("model_type", ["mpnet", "gpt2", "deberta"])
def test_models_without_known_structures(tiny: Tiny, tmp_path: Path, model_type: str, structure: str) -> None:
    found = refused(of_type(tiny, tmp_path / "m", model_type=model_type), structure=structure)
    assert found == {
        "job.spec.structure": (
            f"must be unset for a model whose heads and units are not known, got {structure.lower()} for a "
            f"{model_type}; known are those of the model types {KNOWN}"
        )
    }


@pytest.mark.parametrize(
    ("task", "model_type", "wanted"),
    [
        ("summarization", "gpt2", "an encoder-decoder, such as BART, T5 or Marian,"),
        ("translation", "bert", "an encoder-decoder, such as BART, T5 or Marian,"),
        ("causal-lm", "t5", "a decoder, such as GPT-2, OPT, Llama or Qwen,"),
        ("causal-lm", "bert", "a decoder, such as GPT-2, OPT, Llama or Qwen,"),
    ],
)
def test_models_without_the_head_of_the_task(
    tiny: Tiny, tmp_path: Path, task: str, model_type: str, wanted: str
) -> None:
    folder = of_type(tiny, tmp_path / "m", model_type=model_type)
    assert refused(folder, task=task) == {"job.spec.model": f"must be {wanted} for the task {task}, got a {model_type}"}
    assert refused(of_type(tiny, tmp_path / "n", model_type="bert", is_decoder=True), task="causal-lm") == {}
    assert refused(of_type(tiny, tmp_path / "o", model_type="my-own"), task=task) == {}


def test_models_that_make_no_vectors(tiny: Tiny, tmp_path: Path) -> None:
    folder = of_type(tiny, tmp_path / "m")
    assert refused(folder, task="embedding") == {}
    assert refused(folder, task="embedding", prompt_name="query") == {
        "job.spec.prompt_name": "must be unset: the model has none, got 'query'"
    }
    write_sentence_embedding(folder, SentenceEmbedding(prompts={"query": "q: "}), 32)
    assert refused(folder, task="retrieval", prompt_name="query") == {}
    message = "must be one of the model's prompts, query, got 'code'"
    assert refused(folder, task="retrieval", prompt_name="code") == {"job.spec.prompt_name": message}
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "weightedmean"}')
    assert "pooling must be one of mean, cls, max, lasttoken" in refused(folder, task="embedding")["job.spec.model"]
    assert refused(folder, task="sst2") == {}
    for task, name in (("retrieval", "encoder.layer.*"), ("sst2", "bert.encoder.layer.*")):
        assert "job.spec.include" not in refused(folder, task=task, include=[name])
        assert "job.spec.include" in refused(folder, task=task, include=["other." + name])
    assert "job.spec.include" in refused(folder, task="retrieval", include=["bert.encoder.layer.*"])
    other = of_type(tiny, tmp_path / "n", model_type="t5")
    assert refused(other, task="embedding") == {
        "job.spec.model": "must be no encoder-decoder for the task embedding, got a t5; give an encoder, such as BERT"
    }


def test_densities_that_keep_nothing_or_too_little(tiny: Tiny, tmp_path: Path) -> None:
    weights = inspect_model(tiny.model).prunable_weights
    for density, kept in ((1e-9, 0), (1.5 / weights, 1)):
        assert refused(tiny.model, target_density=density, allow_density_miss=True) == {}
        assert refused(tiny.model, target_density=density) == {
            "job.spec.target_density": (
                f"must be {density:g} within 10 %, got {kept / weights:g} ({kept:,} of {weights:,} weights); take a "
                "density that the model's matrices are large enough for, global selection, or allow_density_miss"
            )
        }
        assert list(refused(tiny.model, target_density=density, pattern="1x4")) == ["job.spec.target_density"]
    assert refused(tiny.model, target_density=0.1) == {}
    assert refused(tiny.model, target_density=1e-9, locked_mask={}) == {}
    loose = job_pb2.CompressionSpec(target_density=1.5 / weights, movement={})
    assert list(check_kept(loose, weights, is_exact=False)) == []
    loose.target_density = 0.9 / weights
    assert [field for field, _ in check_kept(loose, weights, is_exact=False)] == ["job.spec.target_density"]
    assert refused(of_type(tiny, tmp_path / "m", model_type="my-own"), target_density=1e-9) == {}


def test_shared_layers(tiny: Tiny, tmp_path: Path) -> None:
    folder = of_type(tiny, tmp_path / "m", model_type="albert")
    text = "must be other than layers for a model whose layers share their weights, got layers for a albert; take heads"
    assert refused(folder, structure="LAYERS")["job.spec.structure"].startswith(text)
    assert refused(folder, structure="HEADS_AND_UNITS") == {}


def test_a_model_that_consists_of_others_has_their_structures(tiny: Tiny, tmp_path: Path) -> None:
    folder = of_type(tiny, tmp_path / "m", model_type="my-own", encoder={"model_type": "bert"})
    assert refused(folder, structure="HEADS", pattern="1:3") == {}
    pair = of_type(tiny, tmp_path / "n", model_type="encoder-decoder", encoder={"model_type": "bert"})
    assert list(refused(pair, structure="HEADS")) == ["job.spec.structure"], "its decoder has two attentions"


def test_what_a_type_of_models_cannot_do(tiny: Tiny, tmp_path: Path) -> None:
    albert = of_type(tiny, tmp_path / "m", model_type="albert")
    assert refused(albert, training={"gradient_checkpointing": True}, trim_positions=True) == {
        "job.spec.training.gradient_checkpointing": (
            "must be false for a model that does not support it, got true for albert; take more accumulation_steps "
            "to save memory"
        )
    }
    found = refused(of_type(tiny, tmp_path / "n", model_type="deberta"), trim_positions=True)
    assert "must be false for a model that is none of albert, bert" in found["job.spec.trim_positions"]
    assert refused(tiny.model, training={"gradient_checkpointing": True}, trim_positions=True) == {}


@pytest.mark.parametrize(
    ("spec", "field", "text"),
    [
        (
            {"structure": "BLOCKS_AND_UNITS", "structure_block_size": 12},
            "job.spec.structure_block_size",
            "must divide the size of a head, got 12 for heads of 16 in the model; take a divisor of 16",
        ),
        ({"pattern": "3:5"}, "job.spec.pattern", "got 3:5 for bert.encoder.layer.0.attention.output.dense with rows"),
    ],
)
def test_sizes_that_do_not_fit(tiny: Tiny, spec: dict[str, Any], field: str, text: str) -> None:
    found = refused(tiny.model, **spec)
    assert list(found) == [field]
    assert text in found[field]


@pytest.mark.parametrize(
    ("spec", "field", "text"),
    [
        ({"include": ["encoder.layer.*"]}, "include", "must match the name of a layer, such as bert.encoder.layer.0."),
        ({"exclude": ["*.9.*"]}, "exclude", "must match the name of a layer, such as bert.encoder.layer.0."),
        ({"exclude": ["*"]}, "exclude", "must leave a layer to prune, such as bert.encoder.layer.0."),
        ({"include": ["*.query"], "structure": "HEADS"}, "include", "must select all matrices of the heads of a block"),
        ({"exclude": ["*.query"], "structure": "LAYERS"}, "exclude", "must select all matrices of a layer or none"),
        ({"include": ["*.attention.*"], "structure": "UNITS"}, "include", "must select the matrices of some units"),
        (
            {"include": ["*.output.dense"], "pattern": "5:7"},
            "pattern",
            "got 5:7 for bert.encoder.layer.0.attention.out",
        ),
    ],
)
def test_names_that_do_not_fit(tiny: Tiny, spec: dict[str, Any], field: str, text: str) -> None:
    found = refused(tiny.model, **spec)
    assert list(found) == [f"job.spec.{field}"]
    assert text in found[f"job.spec.{field}"]


@pytest.mark.parametrize("density", [0.02, 0.2, 0.3, 0.45, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("structure", ["heads", "units", "heads_and_units", "layers"])
def test_densities_of_units_in_fours_are_those_of_the_worker(
    tmp_path: Path, structure: Structure, density: float
) -> None:
    config = BertConfig(vocab_size=9, hidden_size=20, num_hidden_layers=2, num_attention_heads=5, intermediate_size=12)
    model = BertForSequenceClassification(config)
    model.save_pretrained(tmp_path)
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"a": 0}))).save_pretrained(tmp_path)
    structures = pruned_structures(model, prunable_layers(model), structure, in_blocks=True)
    options = RunOptions(density=1e-3, structure_density=density, pattern="1x4")
    selector = new_selector(model, structures, structure, options)
    assert isinstance(selector, SparseStructures)
    reached = selector.density_of_structures(1e-3)
    spec = {"structure": structure.upper(), "structure_density": density, "pattern": "1x4"}
    found = refused(tmp_path, **spec, target_density=1e-3)
    assert list(found) == ["job.spec.structure_density"] * (abs(reached / density - 1) > 0.1)
    assert all(f"got {density:g}; take {reached:.4g}, the nearest" in problem for problem in found.values())


def test_heads_that_blocks_do_not_fill(tmp_path: Path) -> None:
    config = BertConfig(vocab_size=9, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=12)
    model = BertForSequenceClassification(config)
    model.save_pretrained(tmp_path)
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"a": 0}))).save_pretrained(tmp_path)
    inside: dict[str, Any] = {"structure_density": 0.5, "target_density": 0.1, "pattern": "1x4"}
    text = "must be 1x4 only where 4 divides the size of a head, got heads of 6"
    assert text in refused(tmp_path, structure="HEADS", **inside)["job.spec.pattern"]
    with pytest.raises(CompressionError, match=f"pattern {text}"):
        pruned_structures(model, prunable_layers(model), "heads", in_blocks=True)
    assert refused(tmp_path, structure="UNITS", **inside) == {}
    BertForSequenceClassification(BertConfig(**config.to_dict() | {"intermediate_size": 10})).save_pretrained(tmp_path)
    text = "got 1x4 for bert.encoder.layer.0.output.dense with rows of 10 weights; take another pattern, or exclude"
    assert text in refused(tmp_path, target_density=0.1, pattern="1x4")["job.spec.pattern"]
    assert refused(tmp_path, target_density=0.1, pattern="1x4", exclude=["*.output.dense"]) == {}


@pytest.mark.parametrize("excluded", [(), ("*.1.*",)])
@pytest.mark.parametrize("density", [0.01, 0.2, 0.34, 0.45, 0.5, 0.7, 0.9, 1.0])
@pytest.mark.parametrize("structure", ["heads", "units", "heads_and_units", "layers"])
def test_densities_are_those_of_the_worker(
    tmp_path: Path, structure: Structure, density: float, excluded: Sequence[str]
) -> None:
    config = BertConfig(vocab_size=9, hidden_size=30, num_hidden_layers=3, num_attention_heads=5, intermediate_size=7)
    model = BertForSequenceClassification(config)
    model.save_pretrained(tmp_path)
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"a": 0}))).save_pretrained(tmp_path)
    structures = pruned_structures(model, prunable_layers(model, (), excluded), structure)
    reached = new_selector(model, structures, structure, RunOptions(density=density)).nearest(density)
    spec = {"structure": structure.upper(), "exclude": excluded}
    found = refused(tmp_path, **spec, target_density=density)
    assert list(found) == ["job.spec.target_density"] * (abs(reached / density - 1) > 0.1)
    assert all(f"got {density:g}; take {reached:.4g}, the nearest" in problem for problem in found.values())
    inside = refused(tmp_path, **spec, target_density=1e-3, structure_density=density)
    assert len(inside) == len(found)
    assert refused(tmp_path, **spec, target_density=density, allow_density_miss=True) == {}
    architecture = inspect_model(tmp_path).architecture
    point = job_pb2.CompressionSpec(**spec, target_density=density)
    assert not list(check_architecture(point, architecture, in_sweep=True))


NAMES = (["*.attention.*"], ["*.0.*"], ["bert.encoder.*"], ["*dense"], ["classifier"], ["*.nothing"], ["*"])


@pytest.mark.parametrize("exclude", [(), *NAMES])
@pytest.mark.parametrize("include", [(), *NAMES])
@pytest.mark.parametrize("structure", [None, "heads", "units", "heads_and_units", "layers"])
def test_server_and_worker_say_the_same(
    tiny: Tiny, structure: Structure | None, include: Sequence[str], exclude: Sequence[str]
) -> None:
    model = BertForSequenceClassification(BertConfig.from_pretrained(tiny.model))
    try:
        layers = prunable_layers(model, include, exclude)
        if structure is not None:
            pruned_structures(model, layers, structure)
        text = ""
    except CompressionError as error:
        text = str(error)
    words = {} if structure is None else {"structure": structure.upper()}
    found = refused(tiny.model, include=include, exclude=exclude, **words)
    assert len(found) == bool(text)
    assert all(problem.partition(" such as")[0] in text for problem in found.values())


@pytest.mark.parametrize(
    "spec",
    [
        {"structure": "BLOCKS_AND_UNITS", "structure_block_size": 16},
        {"structure": "LAYERS"},
        {"pattern": "3:32"},
        {"pattern": "3:8", "include": ["*.query"]},
        {"pattern": "1:64", "include": ["*.output.dense"], "exclude": ["*.attention.*"]},
        {"pattern": "5:3"},
        {"include": ["classifier"]},
        {"include": ["bert.encoder.layer.0.*"], "structure": "HEADS"},
        {"exclude": ["*.0.*"], "structure": "LAYERS"},
        {},
    ],
)
def test_what_fits_or_is_checked_elsewhere(tiny: Tiny, spec: dict[str, Any]) -> None:
    assert refused(tiny.model, **spec) == {}
