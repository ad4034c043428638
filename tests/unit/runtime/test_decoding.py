"""Decoders in the sparse runtime write what the dense pruned models write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.runtime.conftest import save
from tests.unit.runtime.decoders import DECODERS, decoder, prompts, twin, written
from tests.unit.runtime.pruned_models import needs_kernel, pruned

import mvprune
from mvprune.artifact import Coding
from mvprune.artifact.packing import Unpacked
from mvprune.artifact.values import Values
from mvprune.common.blocks import in_block
from mvprune.runtime import _vocabulary, optimize
from mvprune.runtime._linear import LINEAR, Int8Linear, KernelLinear
from mvprune.runtime._optimize import Replacement
from mvprune.runtime._vocabulary import Vocabulary
from mvprune.runtime.masked import FEW, multiplies_few
from mvprune.runtime.rounding import int8_simulated

pytestmark = needs_kernel
needs_few = pytest.mark.skipif(not multiplies_few(), reason="there are no products of few tokens here")


def sparse(model: Any, **settings: Any) -> Any:
    """A sparse copy, on the kernel in any case."""
    return optimize(twin(model), backend="kernel", **settings)


@pytest.mark.parametrize("name", DECODERS)
def test_greedy_decoding_writes_what_the_dense_model_writes(name: str) -> None:
    model = decoder(name)
    runtime = sparse(model)
    for batch, tokens in ((1, 9), (3, 12)):
        wanted = written(model, batch=batch, tokens=tokens)
        assert torch.equal(written(runtime, batch=batch, tokens=tokens), wanted)
        assert len(wanted[0].unique()) > 5


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "LlamaForCausalLM"])
@pytest.mark.parametrize(
    "settings",
    [
        {"num_beams": 3},
        {"num_beams": 4, "num_return_sequences": 2, "length_penalty": 0.5},
        {"do_sample": True},
        {"do_sample": True, "top_k": 5, "temperature": 0.7},
        {"do_sample": True, "top_k": 0, "top_p": 0.9},
        {"do_sample": True, "num_beams": 2},
        {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2},
        {"use_cache": False},
        {"cache_implementation": "static"},
        {"prompt_lookup_num_tokens": 3},
    ],
    ids=str,
)
def test_beams_sampling_and_other_caches(name: str, settings: dict[str, Any]) -> None:
    model = decoder(name)
    batch = 1 if "prompt_lookup_num_tokens" in settings else 2
    found = written(sparse(model), batch=batch, **settings)
    assert torch.equal(found, written(model, batch=batch, **settings))


def test_the_number_of_threads_changes_nothing() -> None:
    model = decoder("LlamaForCausalLM")
    wanted = written(sparse(model, threads=1), batch=2)
    assert torch.equal(written(sparse(model, threads=2), batch=2), wanted)


@needs_few
@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "LlamaForCausalLM"])
def test_int8_activations_round_as_the_simulation_says(name: str) -> None:
    model = decoder(name)
    runtime = sparse(model, activations="int8")
    with int8_simulated(model):
        wanted = written(model, new=6)
    assert torch.equal(written(runtime, new=6), wanted)


@needs_few
def test_only_models_that_write_hold_matrices_for_few_tokens() -> None:
    layers = [one for one in sparse(decoder("GPT2LMHeadModel")).modules() if isinstance(one, KernelLinear)]
    assert len(layers) == 8
    assert all(layer.few == FEW and layer.masked is not None for layer in layers)
    whole = optimize(twin(decoder("GPT2LMHeadModel")), backend="kernel", activations="int8")
    rounded = [one for one in whole.modules() if isinstance(one, Int8Linear)]
    assert rounded
    assert all(layer.masked is not None and layer.masked.nbytes < layer.nbytes for layer in rounded)
    others = optimize(pruned("Bert"), backend="kernel").modules()
    assert all(one.masked is None for one in others if isinstance(one, KernelLinear))


@needs_few
def test_the_crossover_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    model = decoder("GPT2LMHeadModel")
    seen: list[tuple[int, int]] = []

    def few(_: Any, backend: str, shape: tuple[int, int], density: float, quads: float) -> int:
        assert backend == "kernel"
        assert 0 < density <= quads <= 1
        seen.append(shape)
        return 3

    monkeypatch.setattr("mvprune.runtime._choice.Choices.few", few)
    monkeypatch.setattr("mvprune.runtime._choice.Choices.backend", lambda *_: "kernel")
    runtime = Replacement(twin(model))
    for name, module in model.named_modules():
        if type(module).__name__ == "Conv1D":
            weight = module.weight.detach().numpy()
            runtime.take([f"{name}.weight"], Unpacked(weight.shape, weight))
    layers = [one for one in runtime.finish().modules() if isinstance(one, KernelLinear)]
    assert set(seen) == {(144, 48), (48, 48), (192, 48), (48, 192)}
    assert {layer.few for layer in layers} == {3}


@needs_few
def test_what_is_not_finite_goes_where_many_tokens_send_it() -> None:
    layer = next(one for one in sparse(decoder("GPT2LMHeadModel")).modules() if isinstance(one, KernelLinear))
    x = torch.ones(2, layer.in_features)
    x[0, :8] = torch.nan
    many = layer(x.repeat(FEW, 1))
    assert torch.equal(layer(x).isnan(), many[:2].isnan())
    assert many[0].isnan().any()
    assert not many[1].isnan().any()


def test_logits_of_a_whole_text_are_those_of_the_dense_model() -> None:
    model = decoder("LlamaForCausalLM")
    inputs = prompts(2, 12)
    with torch.inference_mode():
        wanted, found = model(**inputs).logits, sparse(model)(**inputs).logits
    assert (found - wanted).abs().max() < 1e-5 * wanted.abs().max()


@needs_few
@pytest.mark.parametrize("embeddings", [Values.INT8, Values.FP16])
@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "LlamaForCausalLM"])
def test_an_artifact_writes_the_same_dense_and_sparse(
    name: str, embeddings: Values, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_vocabulary, "SMALLEST", 10)
    model = decoder(name)
    names = [f"{path}.weight" for path, module in model.named_modules() if in_block(path) and type(module) in LINEAR]
    folder = save(tmp_path / "artifact", model, names, coding=Coding(embeddings=embeddings))
    dense = mvprune.load(folder)
    monkeypatch.setattr("mvprune.runtime._choice.Choices.backend", lambda *_: "kernel")
    monkeypatch.setattr("mvprune.runtime._choice.Choices.few", lambda *_: FEW)
    runtime: Any = mvprune.load(folder, runtime="sparse")
    head = runtime.get_output_embeddings()
    assert isinstance(head, Vocabulary)
    assert (head._exact is None) == (embeddings is Values.FP16)
    layers = [one for one in runtime.modules() if isinstance(one, KernelLinear)]
    assert len(layers) == len(names)
    assert all(one.masked is not None and one.masked.layout[1] == "float16" for one in layers)
    for settings in ({}, {"num_beams": 3}, {"do_sample": True, "top_k": 4}):
        assert torch.equal(written(runtime, batch=2, **settings), written(dense, batch=2, **settings))
