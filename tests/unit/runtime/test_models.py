"""Sparse models give what their dense twins give, whatever the architecture."""

from __future__ import annotations

import copy
import inspect
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import transformers
from tests.unit.runtime.pruned_models import (
    ARCHITECTURES,
    BACKENDS,
    SIZES,
    inputs,
    needs_kernel,
    needs_layers,
    prune,
    pruned,
)
from torch import nn

from mvprune.runtime import backends, layers, optimize

TOLERANCE = 1e-5  # of the largest logit, as docs/runtime.md says


def logits(model: Any, **shape: int) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = model(**inputs(**shape)).logits
    return found


def off(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).abs().max() / wanted.abs().max())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_outputs_agree(architecture: str, backend: Any) -> None:
    dense = pruned(architecture)
    sparse = optimize(copy.deepcopy(dense), backend=backend)
    assert backends(sparse)[backend] >= 6
    for batch, tokens in ((3, 17), (1, 1), (2, 50)):
        assert off(logits(sparse, batch=batch, tokens=tokens), logits(dense, batch=batch, tokens=tokens)) < TOLERANCE


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("architecture", ["Bart", "T5"])
def test_encoders_with_decoders_agree(architecture: str, backend: Any) -> None:
    sizes: dict[str, dict[str, Any]] = {
        "Bart": {
            "d_model": 48,
            "max_position_embeddings": 60,
            **{f"{part}_layers": 2 for part in ("encoder", "decoder")},
            **{f"{part}_attention_heads": 4 for part in ("encoder", "decoder")},
            **{f"{part}_ffn_dim": 100 for part in ("encoder", "decoder")},
        },
        "T5": {"d_model": 48, "d_kv": 12, "d_ff": 100, "num_layers": 2, "num_heads": 4},
    }
    config = getattr(transformers, f"{architecture}Config")(vocab_size=SIZES["vocab_size"], **sizes[architecture])
    torch.manual_seed(0)
    dense = getattr(transformers, f"{architecture}Model")(config).eval()
    prune(dense)
    sparse = optimize(copy.deepcopy(dense), backend=backend)
    assert backends(sparse)[backend] >= 6
    given = inputs() | {"decoder_input_ids": inputs(tokens=9)["input_ids"]}
    with torch.inference_mode():
        found, usual = (model(**given).last_hidden_state.double() for model in (sparse, dense))
        wanted = copy.deepcopy(dense).double()(**given).last_hidden_state
    # T5 does not scale its attention: with random weights a dense model's own rounding may exceed the tolerance.
    assert off(found, wanted) < max(TOLERANCE, 2 * off(usual, wanted))


@pytest.mark.parametrize("backend", BACKENDS)
def test_with_random_masks(backend: Any) -> None:
    dense = pruned("Bert", uneven=False)
    assert off(logits(optimize(copy.deepcopy(dense), backend=backend)), logits(dense)) < TOLERANCE


def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(examples, length) of all calls of whole layers from now on, once for each layer."""
    calls: list[tuple[int, int]] = []
    run = layers.Layers.run

    def counting(self: layers.Layers, y: int, *, lengths: Any, **others: Any) -> None:
        calls.extend([(len(lengths), int(lengths.max()))] * len(self._layers))
        run(self, y, lengths=lengths, **others)

    monkeypatch.setattr(layers.Layers, "run", counting)
    return calls


@needs_layers
@pytest.mark.parametrize(
    ("architecture", "whole", "feed_forwards", "residuals"),
    [
        ("Bert", 2, 2, 4),
        ("Roberta", 2, 2, 4),
        ("XLMRoberta", 2, 2, 4),
        ("Camembert", 2, 2, 4),
        ("Electra", 2, 2, 4),
        ("DistilBert", 2, 2, 0),
        ("Albert", 2, 1, 0),
        ("DebertaV2", 2, 2, 4),
        ("MPNet", 2, 2, 2),
        ("ModernBert", 2, 0, 0),
        ("GPT2", 0, 0, 0),
    ],
)
def test_what_is_fused(
    architecture: str, whole: int, feed_forwards: int, residuals: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sparse = optimize(pruned(architecture), backend="kernel")
    kinds = [type(module).__name__ for module in sparse.modules()]
    assert (kinds.count("FeedForward"), kinds.count("ResidualNorm")) == (feed_forwards, residuals)
    calls = counted(monkeypatch)
    logits(sparse, batch=3, tokens=30)
    assert calls == [(3, 30)] * whole


@needs_layers
@pytest.mark.parametrize("shape", [{"batch": 1, "tokens": 3}, {"batch": 2, "tokens": 10}, {"batch": 40, "tokens": 11}])
def test_short_examples_share_blocks_of_tokens(shape: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    dense = pruned("Bert")
    sparse = optimize(copy.deepcopy(dense), backend="kernel")
    calls = counted(monkeypatch)
    assert off(logits(sparse, **shape), logits(dense, **shape)) < TOLERANCE
    assert len(calls) == 2


@needs_layers
@pytest.mark.parametrize("kind", ["hidden", "queries differ", "additive", "one for all"])
def test_any_mask_is_obeyed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dense = pruned("Bert")
    sparse = optimize(copy.deepcopy(dense), backend="kernel")
    calls = counted(monkeypatch)
    given = inputs(batch=2, tokens=15)
    shown = torch.ones(2, 1, 15, 15, dtype=torch.bool)
    if kind == "hidden":
        shown[1, :, :, 9:] = False
    elif kind == "one for all":
        shown = shown[:1]
        shown[:, :, :, 3] = False
    else:
        shown = shown.tril()
    mask = torch.where(shown, 0.0, torch.finfo(torch.float32).min) if kind == "additive" else shown
    with torch.inference_mode():
        found, wanted = (model(**given | {"attention_mask": mask}).logits for model in (sparse, dense))
    assert off(found, wanted) < TOLERANCE
    assert len(calls) == (2 if kind in ("hidden", "one for all") else 0)


@pytest.mark.parametrize("name", ["FFN", "BertLayer", "BertOutput", "TransformerBlock"])
def test_a_class_of_the_same_name_is_another_one(name: str) -> None:
    kind = type(name, (torch.nn.Sequential,), {})
    dense = kind(torch.nn.Linear(32, 32), torch.nn.ReLU())
    prune(torch.nn.ModuleList([dense]))
    x = torch.randn(3, 32)
    with torch.inference_mode():
        wanted = dense(x)
        assert off(optimize(copy.deepcopy(dense), backend="csr")(x), wanted) < TOLERANCE
        assert off(optimize(dense)(x), wanted) < TOLERANCE


@needs_kernel
def test_hidden_states_are_recorded() -> None:
    dense = pruned("Bert")
    sparse = optimize(copy.deepcopy(dense), backend="kernel")
    with torch.inference_mode():
        found, wanted = (model(**inputs(tokens=30), output_hidden_states=True) for model in (sparse, dense))
    assert len(found.hidden_states) == 3
    for mine, theirs in zip(found.hidden_states, wanted.hidden_states, strict=True):
        assert off(mine, theirs) < TOLERANCE


@needs_layers
@pytest.mark.parametrize("architecture", ["Bert", "Roberta", "XLMRoberta", "Camembert"])
@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"attention_mask": None},
        {"token_type_ids": torch.arange(60).view(2, 30) % 2},
        {"position_ids": torch.arange(60).view(2, 30).flip(0) % 50},
        {"position_ids": torch.arange(30).view(1, 30)},  # not one for each example: layer by layer
        {"attention_mask": torch.ones(2, 30, dtype=torch.bool)},
        {"return_dict": False},
        {"input_ids": None, "inputs_embeds": torch.randn(2, 30, 48)},
    ],
)
def test_any_input_of_a_model(architecture: str, changed: dict[str, Any]) -> None:
    dense = pruned(architecture)
    config = dense.config
    if architecture != "Bert":
        changed = changed | {"token_type_ids": None}  # the embeddings have one type here and there
    dense.base_model.embeddings.token_type_embeddings.weight.data.normal_()
    sparse = optimize(copy.deepcopy(dense), backend="kernel")
    given = inputs(batch=2, tokens=30) | changed
    if architecture != "Bert" and given["input_ids"] is not None:
        given["input_ids"][1, 20:] = config.pad_token_id
    with torch.inference_mode():
        found, wanted = (model(**given) for model in (sparse, dense))
    assert type(found) is type(wanted)
    assert off(found[0], wanted[0]) < TOLERANCE


@needs_layers
def test_a_base_model_gives_what_it_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    dense = pruned("Bert").bert
    sparse = optimize(copy.deepcopy(dense), backend="kernel")
    calls = counted(monkeypatch)
    with torch.inference_mode():
        found, wanted = (model(**inputs(tokens=30)) for model in (sparse, dense))
    assert len(calls) == 2
    assert list(found) == list(wanted)
    kept = inputs(tokens=30)["attention_mask"].bool()
    assert off(found.last_hidden_state[kept], wanted.last_hidden_state[kept]) < TOLERANCE
    assert not found.last_hidden_state[~kept].any()  # of padding
    assert off(found.pooler_output, wanted.pooler_output) < TOLERANCE
    with pytest.raises(IndexError):
        sparse(torch.tensor([[3, 60]]))


@needs_layers
def test_hooks_see_each_layer() -> None:
    sparse = optimize(pruned("Bert"), backend="kernel")
    seen: list[Any] = []
    sparse.bert.encoder.layer[1].register_forward_hook(lambda _, __, output: seen.append(output))
    wanted = logits(sparse, tokens=30)
    assert len(seen) == 1
    other = optimize(pruned("Bert"), backend="kernel")
    assert off(logits(other, tokens=30), wanted) < TOLERANCE


@needs_layers
def test_replaced_parameters_are_used() -> None:
    """A copy, and a model whose parameters were replaced, read their own memory."""
    sparse = optimize(pruned("Bert"), backend="kernel")
    wanted = logits(sparse, tokens=30)
    other = copy.deepcopy(sparse)
    with torch.no_grad():
        norm = other.bert.embeddings.LayerNorm
        norm.weight = torch.nn.Parameter(2 * norm.weight, requires_grad=False)
    assert off(logits(other, tokens=30), wanted) > 100 * TOLERANCE
    assert torch.equal(logits(sparse, tokens=30), wanted)
    norm.double()
    with pytest.raises(RuntimeError, match=r"must be float32 on the CPU, got torch.float64 on cpu"):
        logits(other, tokens=30)


@needs_kernel
def test_a_decoder_goes_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    config = transformers.BertConfig(**SIZES, is_decoder=True)
    dense = transformers.BertLMHeadModel(config).eval()
    prune(dense)
    sparse = optimize(copy.deepcopy(dense), backend="kernel")
    calls = counted(monkeypatch)
    assert off(logits(sparse), logits(dense)) < TOLERANCE
    assert calls == []


@needs_kernel
@pytest.mark.parametrize("name", ["cache", "past_key_values"])
def test_a_cache_of_keys_and_values_is_filled(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Whatever it is called in this version of transformers, the layer goes part by part."""
    sparse = optimize(pruned("Bert"), backend="kernel")
    layer, cache = sparse.bert.encoder.layer[0], transformers.DynamicCache()
    if name not in inspect.signature(type(layer).forward).parameters and name == "cache":
        pytest.skip("this version of transformers has the other name")
    calls = counted(monkeypatch)
    with torch.no_grad():
        layer(torch.randn(1, 8, sparse.config.hidden_size), **{name: cache})
        assert calls == []
        assert cache.get_seq_length() == 8
        layer(torch.randn(1, 8, sparse.config.hidden_size), **{name: None})
    assert len(calls) == 1


@needs_kernel
def test_an_activation_that_the_kernel_lacks_stays() -> None:
    dense = pruned("Bert")
    for layer in dense.bert.encoder.layer:
        layer.intermediate.intermediate_act_fn = torch.nn.Tanh()
    assert off(logits(optimize(copy.deepcopy(dense), backend="kernel")), logits(dense)) < TOLERANCE


@pytest.mark.parametrize("backend", BACKENDS)
def test_copies_and_pickles_are_the_same(backend: Any) -> None:
    sparse = optimize(pruned("Bert"), backend=backend)
    wanted = logits(sparse)
    assert torch.equal(logits(copy.deepcopy(sparse)), wanted)
    assert torch.equal(logits(pickle.loads(pickle.dumps(sparse))), wanted)  # noqa: S301 (our own)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_threads_share_a_model(backend: Any) -> None:
    sparse = optimize(pruned("Bert"), backend=backend)
    shapes = [{"batch": 1 + number % 3, "tokens": 5 + number} for number in range(16)]
    wanted = [logits(sparse, **shape) for shape in shapes]
    with ThreadPoolExecutor(4) as pool:
        for found, expected in zip(pool.map(lambda shape: logits(sparse, **shape), shapes), wanted, strict=True):
            assert torch.equal(found, expected)


@needs_kernel
def test_the_number_of_threads_does_not_matter() -> None:
    one, two = (optimize(pruned("Bert"), backend="kernel", threads=threads) for threads in (1, 2))
    assert torch.equal(logits(one), logits(two))


@pytest.mark.parametrize("backend", BACKENDS)
def test_attentions_can_be_asked_for(backend: Any) -> None:
    dense = pruned("Bert")
    dense.set_attn_implementation("eager")
    sparse = optimize(copy.deepcopy(dense), backend=backend)
    with torch.inference_mode():
        found, wanted = (model(**inputs(), output_attentions=True) for model in (sparse, dense))
    for mine, theirs in zip(found.attentions, wanted.attentions, strict=True):
        assert off(mine, theirs) < TOLERANCE


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_gradient_is_needed_or_given(backend: Any) -> None:
    sparse = optimize(pruned("Bert"), backend=backend)
    assert not sparse(**inputs()).logits.requires_grad
    embedded = torch.zeros(1, 3, 48, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"for inference only.*inference_mode"):
        sparse(inputs_embeds=embedded)
    with torch.no_grad():
        sparse(inputs_embeds=embedded)


def test_training_and_state_dicts_are_refused(tmp_path: Any) -> None:
    sparse = optimize(pruned("Bert"), backend="csr")
    state = pruned("Bert").state_dict()
    with pytest.raises(RuntimeError, match=r"for inference only.*for training"):
        sparse.train()
    with pytest.raises(RuntimeError, match="for a state dict"):
        sparse.state_dict()
    with pytest.raises(RuntimeError, match="for a state dict"):
        sparse.save_pretrained(tmp_path)
    with pytest.raises(RuntimeError, match="load the state dict"):
        sparse.load_state_dict(state)


@pytest.mark.parametrize("backend", BACKENDS)
def test_other_dtypes_are_refused(backend: Any) -> None:
    with pytest.raises(ValueError, match=r"model must be float32 on the CPU, got bert\..* in torch.bfloat16 on cpu"):
        optimize(pruned("Bert").bfloat16())
    changes = nn.Module.half, nn.Module.bfloat16, nn.Module.double, lambda model: model.to("meta")
    for change in changes:
        sparse = optimize(pruned("Bert"), backend=backend)
        with pytest.raises(
            RuntimeError, match=r"must be float32 on the CPU, got torch\..*; load the artifact again, with"
        ):
            change(sparse)  # at once: in a call a layer of torch may come first, which raises an error of its own
    sparse = optimize(pruned("Bert"), backend=backend)
    assert torch.equal(logits(sparse.float().cpu().to(torch.float32)), logits(sparse))


def test_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="got an optimized model"):
        optimize(optimize(pruned("Bert"), backend="csr"))


@pytest.mark.parametrize("options", [{"tokens": 0}, {"threads": 0}, {"threads": -1}])
def test_numbers_below_1_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^(tokens|threads) must be at least 1, got -?\d"):
        optimize(pruned("Bert"), backend="csr", **options)


def test_shared_layers_stay_shared() -> None:
    """ALBERT applies one block many times."""
    model = pruned("Albert")
    model.twin = model.albert.encoder.albert_layer_groups[0].albert_layers[0].attention.query
    sparse = optimize(model, backend="csr")
    assert sparse.twin is sparse.albert.encoder.albert_layer_groups[0].albert_layers[0].attention.query


def test_dense_layers_are_left_alone() -> None:
    model = pruned("Bert")
    pooler, head = model.bert.pooler.dense, model.classifier
    optimize(model, backend="csr")
    assert (model.bert.pooler.dense, model.classifier) == (pooler, head)


@pytest.mark.parametrize(("option", "allowed"), [("values", "fp32, bf16, int8"), ("backend", "auto, kernel, csr")])
def test_an_unknown_option_is_refused(option: str, allowed: str) -> None:
    options: dict[str, Any] = {option: "int4"}
    with pytest.raises(ValueError, match=f"{option} must be one of {allowed}, got 'int4'"):
        optimize(pruned("Bert"), **options)
