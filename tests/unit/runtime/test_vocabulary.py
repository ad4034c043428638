"""The head of a decoder: its logits beside those of torch, and what may be rounded when."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.runtime.decoders import decoder, prompts, twin, written
from tests.unit.runtime.pruned_models import needs_kernel
from torch import Tensor, nn
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from mvprune.artifact.values import Values, rounded
from mvprune.runtime import _vocabulary, backends, model_bytes, optimize
from mvprune.runtime._vocabulary import Vocabulary, first_words
from mvprune.runtime.masked import multiplies_few
from mvprune.runtime.vocabulary import RoundedVocabulary, exact_int8

pytestmark = [
    needs_kernel,
    pytest.mark.skipif(not multiplies_few(), reason="there are no products of few tokens here"),
]


def product(weight: Tensor, x: Tensor, top: int, bias: Tensor | None = None, threads: int = 1) -> Tensor | None:
    y = torch.full((len(x), len(weight)), torch.nan)
    places = {"weight": weight.data_ptr(), "bias": 0 if bias is None else bias.data_ptr()}
    head = RoundedVocabulary(weight.numpy())
    taken = head.product(x.data_ptr(), y.data_ptr(), len(x), top=top, threads=threads, **places)
    return y if taken else None


def float64(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return x.double() @ weight.double().T + (0 if bias is None else bias.double())


@pytest.mark.parametrize("words", [3, 64, 1000, 5003])
@pytest.mark.parametrize("features", [1, 48, 513, 1024])
@pytest.mark.parametrize("top", [1, 16, 50])
def test_the_first_words_are_exact(words: int, features: int, top: int) -> None:
    weight = torch.randn(words, features) * torch.rand(words, 1)
    bias = torch.randn(words)
    for tokens in (1, 3, 9):
        x = torch.randn(tokens, features) * 10
        found, wanted = product(weight, x, top, bias), float64(x, weight, bias)
        assert found is not None
        first = wanted.topk(min(top, words)).indices
        sizes = x.norm(dim=1, keepdim=True) * weight.norm(dim=1)
        differences = (found - wanted).abs()
        assert (differences.gather(1, first) <= 1e-6 * sizes.gather(1, first) + 1e-6).all()
        assert (
            differences <= 0.012 * sizes + 1e-5
        ).all()  # 1 / 127 / 2 of the largest number, and its root mean square
        assert torch.equal(found.topk(min(top, words)).indices.sort().values, first.sort().values)


def test_bounds_that_tell_nothing_make_all_exact() -> None:
    weight = torch.randn(1, 300).expand(500, 300).contiguous() * (1 + 1e-6 * torch.arange(500.0)[:, None])
    x = torch.randn(1, 300)
    found = product(weight, x, 1)
    assert found is not None
    differences = (found - float64(x, weight)).abs()
    assert (differences <= 1e-6 * x.norm(dim=1, keepdim=True) * weight.norm(dim=1)).all()


def test_hostile_weights_and_inputs() -> None:
    weight = torch.randn(700, 40)
    weight[0], weight[1], weight[2, 0], weight[3] = 0, weight[1] * 1e-30, 1e6, weight[3] * 1e-42
    x = torch.randn(2, 40)
    for scale in (1, 1e-20, 1e6):
        found, wanted = product(weight, x * scale, 5), float64(x * scale, weight)
        assert found is not None
        assert torch.equal(found.argmax(1), wanted.argmax(1))
    assert product(torch.zeros(700, 40), x, 5) is not None
    assert product(weight, x * 1e20, 5) is None
    for bad in (torch.nan, torch.inf):
        x[1, 3] = bad
        assert product(weight, x, 5) is None


def test_threads_change_nothing() -> None:
    weight, x = torch.randn(3000, 70), torch.randn(5, 70)
    wanted = product(weight, x, 4)
    for threads in (2, 3):
        found = product(weight, x, 4, threads=threads)
        assert found is not None
        assert wanted is not None
        assert torch.equal(found, wanted)


def test_a_matrix_of_int8_numbers_is_found_and_exact() -> None:
    weight = torch.randn(5000, 128)
    assert exact_int8(weight.numpy()) is None
    assert exact_int8(np.zeros((0, 5), np.float32)) is None
    stored = rounded(weight.numpy(), Values.INT8)
    found = exact_int8(stored)
    assert found is not None
    assert found.nbytes < 1.1 * weight.numel()
    stored[4999] = weight[4999].numpy()  # the last row is not
    assert exact_int8(stored) is None


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small vocabularies are rounded too."""
    monkeypatch.setattr(_vocabulary, "SMALLEST", 10)


def sparse(model: Any) -> Any:
    return optimize(twin(model), backend="kernel")


class Forced(LogitsProcessor):
    """Only one of the last words may follow: one that is not among the first."""

    def __call__(self, input_ids: Any, scores: Any) -> Tensor:
        worst = scores.argsort()[:, :3]
        return torch.full_like(scores, -torch.inf).scatter(1, worst, scores.gather(1, worst))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "LlamaForCausalLM"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"eos_token_id": [2, 5, 7]},
        {"do_sample": True, "top_k": 3},
        {"do_sample": True, "top_k": 3, "top_p": 0.8, "temperature": 2.0},
        {"do_sample": True, "top_k": 0},
        {"num_beams": 3},
        {"logits_processor": LogitsProcessorList([Forced()])},
        {"prefix_allowed_tokens_fn": lambda _, ids: [3, 4, 1 + len(ids)]},
        {"repetition_penalty": 3.0},
        {"suppress_tokens": list(range(3, 50))},
    ],
    ids=lambda settings: "-".join(settings),
)
def test_generate_writes_what_exact_logits_say(name: str, settings: dict[str, Any]) -> None:
    model = decoder(name)
    runtime = sparse(model)
    assert isinstance(runtime.get_output_embeddings(), Vocabulary)
    for batch in (1, 3):
        assert torch.equal(written(runtime, batch=batch, **settings), written(model, batch=batch, **settings))


@pytest.mark.usefixtures("small")
def test_logits_outside_generate_are_exact() -> None:
    model = decoder("LlamaForCausalLM")
    runtime = sparse(model)
    for inputs in (prompts(1, 1), prompts(1, 12)):
        with torch.inference_mode():
            found, wanted = runtime(**inputs), model(**inputs)
        assert (found.logits - wanted.logits).abs().max() < 1e-5 * wanted.logits.abs().max()
    settings = {"output_logits": True, "return_dict_in_generate": True, "max_new_tokens": 4}
    found, wanted = (one.generate(**prompts(), **settings).logits for one in (runtime, model))
    for one, other in zip(found, wanted, strict=True):
        assert (one - other).abs().max() < 1e-5 * other.abs().max()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("values", [Values.INT8, Values.FP32])
def test_heads_of_either_kind_are_copied_and_counted(values: Values) -> None:
    model = decoder("GPT2LMHeadModel")
    weight = model.get_output_embeddings().weight
    with torch.no_grad():
        weight.copy_(torch.from_numpy(rounded(weight.numpy(), values)))
    runtime = sparse(model)
    head = runtime.get_output_embeddings()
    assert head.weight is runtime.get_input_embeddings().weight
    assert (head._exact is None) == (values is Values.FP32)
    assert backends(runtime) == {"kernel": 8, "dense": 1}
    others = sum(one.nbytes for one in runtime.modules() if one is not head and hasattr(one, "nbytes"))
    assert model_bytes(runtime) > head.extra_nbytes + others
    wanted = written(model)
    for one in (runtime, copy.deepcopy(runtime)):
        assert torch.equal(written(one), wanted)


def test_small_vocabularies_stay() -> None:
    head = sparse(decoder("GPT2LMHeadModel")).get_output_embeddings()
    assert type(head) is nn.Linear


@pytest.mark.parametrize(
    ("own", "given", "words"),
    [
        ({}, {}, 16),
        ({}, {"do_sample": True}, 50),
        ({"do_sample": True, "top_k": 100}, {}, 100),
        ({"do_sample": True}, {"top_k": 0}, 0),
        ({"do_sample": True}, {"top_k": 500}, 0),
        ({"repetition_penalty": 1.2}, {}, 0),
        ({}, {"repetition_penalty": 1.0, "num_beams": 1, "attention_mask": None}, 16),
        ({}, {"num_beams": 2}, 0),
        ({}, {"generation_config": GenerationConfig(num_beams=2)}, 0),
        ({}, {"generation_config": GenerationConfig(do_sample=True, top_k=20)}, 50),
        ({}, {"output_scores": True}, 0),
        ({}, {"a_setting_of_tomorrow": 3}, 0),
        ({}, {"eos_token_id": list(range(20))}, 0),
    ],
    ids=str,
)
def test_only_what_is_known_to_look_at_the_first_words_rounds(
    own: dict[str, Any], given: dict[str, Any], words: int
) -> None:
    assert first_words(GenerationConfig(**own), given) == words
