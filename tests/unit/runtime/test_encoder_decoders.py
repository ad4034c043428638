"""Steps of BART and its like in one call, beside transformers with its caches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from tests.unit.runtime.decoders import ENCODER_DECODERS, decoder, prompts, steps, twin, written
from tests.unit.runtime.instruction_sets import needs_kernel
from tests.unit.runtime.pruned_models import SIZES, prune
from torch import Tensor

from mvprune.runtime import optimize
from mvprune.runtime._fusion import FeedForward
from mvprune.runtime._linear import KernelLinear
from mvprune.runtime.masked import multiplies_few

pytestmark = [
    needs_kernel,
    pytest.mark.skipif(not multiplies_few(), reason="there are no products of few tokens here"),
]

__all__ = ["steps"]  # a fixture


def sparse(model: Any, **settings: Any) -> Any:
    return optimize(twin(model), backend="kernel", **settings)


@pytest.mark.parametrize("name", ENCODER_DECODERS)
@pytest.mark.parametrize(
    ("settings", "texts"),
    [
        ({}, 2),
        ({"num_beams": 3}, 6),
        ({"do_sample": True, "top_k": 4}, 2),
        ({"prompt_lookup_num_tokens": 2}, 0),
        ({"cache_implementation": "static"}, 0),
    ],
    ids=str,
)
def test_generate_writes_what_the_dense_model_writes(
    name: str, settings: dict[str, Any], texts: int, steps: list[int]
) -> None:
    model = decoder(name)
    batch = 1 if "prompt_lookup_num_tokens" in settings else 2
    varied = settings | {"no_repeat_ngram_size": 1, "new": 15}
    wanted = written(model, batch=batch, **varied)
    assert torch.equal(written(sparse(model), batch=batch, **varied), wanted)
    assert len(wanted[0].unique()) >= 12
    if texts:
        assert steps == [texts] * 14


@pytest.mark.parametrize("name", ENCODER_DECODERS)
def test_logits_are_those_of_the_dense_model(name: str, steps: list[int]) -> None:
    model = decoder(name)
    runtime = sparse(model)
    ids = torch.randint(3, 50, (3, 7), generator=torch.Generator().manual_seed(5))

    def logits(one: Any, **settings: Any) -> Tensor:
        found, cache = [], {}
        for place in range(7):
            with torch.inference_mode():
                out = one(
                    **prompts(3, 12), decoder_input_ids=ids[:, place : place + 1], use_cache=True, **cache, **settings
                )
            cache = {name: out[name] for name in ("cache", "past_key_values") if name in out}
            found.append(out.logits)
        return torch.cat(found, 1)

    found, wanted = logits(runtime), logits(model)
    assert (found - wanted).abs().max() < 2e-5 * wanted.abs().max()
    assert steps == [3] * 6
    assert torch.equal(logits(runtime, output_attentions=True).argmax(-1), wanted.argmax(-1))
    assert steps == [3] * 6


@pytest.mark.slow
def test_two_threads_and_int8_activations() -> None:
    model = decoder("BartForConditionalGeneration")
    settings: dict[str, Any] = {"batch": 2, "no_repeat_ngram_size": 1, "new": 15}
    for activations in ("fp32", "int8"):
        one, two = (sparse(model, activations=activations, threads=threads) for threads in (1, 2))
        assert torch.equal(written(one, **settings), written(two, **settings))


def test_only_the_decoder_holds_matrices_for_few_tokens() -> None:
    runtime = sparse(decoder("BartForConditionalGeneration"))
    for name, stack in (("encoder", runtime.get_encoder()), ("decoder", runtime.get_decoder())):
        layers = [one for one in stack.modules() if isinstance(one, KernelLinear)]
        assert layers
        assert all((one.masked is None) == (name == "encoder") for one in layers)


def test_two_berts() -> None:
    torch.manual_seed(0)
    sizes = SIZES | {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    reader = transformers.BertModel(transformers.BertConfig(**sizes))
    writer = transformers.BertLMHeadModel(transformers.BertConfig(**sizes, is_decoder=True, add_cross_attention=True))
    model = transformers.EncoderDecoderModel(encoder=reader, decoder=writer).eval()
    prune(model, 0.3)
    model.generation_config.decoder_start_token_id = 1
    runtime = sparse(model)
    layers = dict(runtime.named_modules())
    assert isinstance(layers["encoder.encoder.layer.0.output.dense"], FeedForward)
    up = layers["decoder.bert.encoder.layer.0.intermediate.dense"]
    assert isinstance(up, KernelLinear)
    assert up.masked is not None
    for settings in ({}, {"num_beams": 3}):
        found, wanted = (written(one, batch=2, no_repeat_ngram_size=1, new=12, **settings) for one in (runtime, model))
        assert torch.equal(found, wanted)
        assert len(wanted[0].unique()) >= 10


def test_a_residual_is_added_to_few_tokens() -> None:
    runtime = sparse(decoder("BartForConditionalGeneration"))
    layer = next(one for one in runtime.get_decoder().modules() if isinstance(one, KernelLinear))
    x, residual = torch.randn(3, layer.in_features), torch.randn(3, layer.out_features)
    wanted = layer(x) + residual
    assert torch.equal(layer(x, residual=residual), wanted)
    layer.few = 0
    assert torch.allclose(layer(x, residual=residual), wanted, atol=1e-5)
