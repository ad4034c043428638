"""Whole passes of MPNet, ModernBERT and DeBERTa give what the models of transformers give."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
import transformers
from tests.unit.runtime.pruned_models import SIZES, WORDS, inputs, needs_int8, needs_layers, prune, pruned
from tests.unit.runtime.test_models import TOLERANCE, counted, logits, off

from mvprune.runtime import backends, optimize
from mvprune.runtime.rounding import int8_simulated

pytestmark = needs_layers

LONG = SIZES | {"max_position_embeddings": 300}
TOKENS = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 0)
DISTANCES = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
V3 = DISTANCES | {
    "position_buckets": 32,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_biased_input": False,
    "type_vocab_size": 0,
}
MODERN = LONG | TOKENS | {"num_hidden_layers": 3, "global_attn_every_n_layers": 2, "local_attention": 16}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "MPNet": ("MPNet", LONG),
    "ModernBERT": ("ModernBert", MODERN),
    "ModernBERT with biases": (
        "ModernBert",
        MODERN | dict.fromkeys(("norm_bias", "mlp_bias", "attention_bias"), True),
    ),
    "DeBERTa-v2": ("DebertaV2", LONG | DISTANCES),
    "DeBERTa-v3": ("DebertaV2", LONG | V3),
    "far positions": ("DebertaV2", LONG | V3 | {"share_att_key": False, "max_relative_positions": 40}),
}
SHAPES = ((1, 1), (3, 17), (5, 130), (2, 290))


def made(name: str) -> Any:
    """A base model whose scores depend much on places."""
    torch.manual_seed(0)
    kind, sizes = MODELS[name]
    config = getattr(transformers, f"{kind}Config")(**sizes)
    model = getattr(transformers, f"{kind}Model")(config).eval()
    prune(model)
    with torch.no_grad():
        for path, weight in model.named_parameters():
            if "relative_attention_bias" in path or "rel_embeddings" in path:
                weight.normal_(0, 1)
            elif "Norm" in path or "norm" in path:
                weight.add_(0.2 * torch.randn_like(weight))
    return model


def padded(batch: int, tokens: int, *, left: bool = False) -> dict[str, torch.Tensor]:
    """Random tokens, each text shorter than the one before."""
    ids = torch.randint(3, WORDS, (batch, tokens), generator=torch.Generator().manual_seed(tokens))
    mask = torch.ones_like(ids)
    for row in range(batch):
        count = max(1, tokens - row * (tokens // 5 + 1))
        mask[row] = torch.arange(tokens) >= tokens - count if left else torch.arange(tokens) < count
    return {"input_ids": ids, "attention_mask": mask}


def states(model: Any, given: dict[str, Any]) -> torch.Tensor:
    """The hidden states of the tokens that are no padding."""
    with torch.inference_mode():
        found: torch.Tensor = model(**given).last_hidden_state
    mask = given.get("attention_mask")
    return found if mask is None else found[mask.bool()]


@pytest.mark.parametrize("name", MODELS)
def test_outputs_agree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dense = made(name)
    sparse, calls = optimize(copy.deepcopy(dense), backend="kernel"), counted(monkeypatch)
    for batch, tokens in SHAPES:  # each longer than the one before: tables grow
        for given in (
            padded(batch, tokens),
            padded(batch, tokens, left=True),
            {"input_ids": padded(batch, tokens)["input_ids"]},
        ):
            calls.clear()
            assert off(states(sparse, given), states(dense, given)) < TOLERANCE
            assert len(calls) == dense.config.num_hidden_layers
    holes = padded(2, 60)
    holes["attention_mask"][0, 7:11] = 0
    assert off(states(sparse, holes), states(dense, holes)) < TOLERANCE


@pytest.mark.parametrize("name", MODELS)
def test_places_matter(name: str) -> None:
    """The other tests would not tell otherwise."""
    dense = made(name)
    given = padded(1, 40)
    wanted = states(dense, given)
    with torch.no_grad():
        if "ModernBERT" in name:
            dense.config.local_attention = 60
        elif name == "MPNet":
            dense.encoder.relative_attention_bias.weight.zero_()
        else:
            dense.encoder.rel_embeddings.weight.copy_(dense.encoder.rel_embeddings.weight.flip(0))
    assert off(states(dense, given), wanted) > 100 * TOLERANCE


@pytest.mark.parametrize("name", MODELS)
def test_int8_is_near_and_a_text_does_not_depend_on_its_batch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dense = made(name)
    sparse = optimize(copy.deepcopy(dense), backend="kernel", activations="int8")
    assert set(backends(sparse)) <= {"int8", "dense"}
    calls = counted(monkeypatch)
    given = padded(5, 130)
    found, wanted = states(sparse, given), states(dense, given)
    assert len(calls) == dense.config.num_hidden_layers
    assert 1e-5 < off(found, wanted) < 0.2
    assert torch.corrcoef(torch.stack([found.flatten(), wanted.flatten()]))[0, 1] > 0.99
    for row, count in enumerate(given["attention_mask"].sum(1)):
        alone = states(sparse, {key: value[row : row + 1, :count] for key, value in given.items()})
        start = given["attention_mask"][:row].sum()
        assert torch.equal(alone, found[start : start + count])


@needs_int8
@pytest.mark.parametrize("name", MODELS)
def test_int8_is_what_torch_simulates(name: str) -> None:
    """But for few tokens, in which rounding errors of fp32 make a number the next integer."""
    dense = made(name)
    sparse = optimize(copy.deepcopy(dense), backend="kernel", activations="int8")
    given = padded(4, 60)
    with int8_simulated(dense):
        simulated = states(dense, given)
    difference = (states(sparse, given) - simulated).abs().amax(1) / simulated.abs().max()
    assert float(difference.quantile(0.2)) < 1e-4
    assert float(difference.max()) < 0.05
    assert off(simulated, states(dense, given)) > 1e-3


@pytest.mark.parametrize("name", ["MPNet", "ModernBERT", "DeBERTa-v3"])
@pytest.mark.parametrize(
    ("changed", "whole"),
    [
        ({"position_ids": torch.arange(30).flip(0)[None].repeat(2, 1)}, False),
        ({"return_dict": False}, False),
        ({"output_hidden_states": True}, False),
        ({"output_hidden_states": False, "return_dict": True}, True),
        ({"input_ids": None, "inputs_embeds": torch.randn(2, 30, 48)}, False),
    ],
)
def test_other_calls(name: str, changed: dict[str, Any], whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    dense = made(name)
    sparse, calls = optimize(copy.deepcopy(dense), backend="kernel"), counted(monkeypatch)
    given = padded(2, 30) | changed
    whole |= name == "MPNet" and "position_ids" in changed  # rows of an embedding there
    mask = given["attention_mask"].bool()
    with torch.inference_mode():
        found, wanted = sparse(**given), dense(**given)
    assert type(found) is type(wanted)
    assert off(found[0][mask], wanted[0][mask]) < TOLERANCE
    assert bool(calls) == whole
    if "output_hidden_states" in changed and not whole:
        for mine, theirs in zip(found.hidden_states, wanted.hidden_states, strict=True):
            assert off(mine[mask], theirs[mask]) < TOLERANCE


@pytest.mark.parametrize("name", ["MPNet", "ModernBERT", "DeBERTa-v3"])
def test_copies_pickles_and_replaced_tables(name: str) -> None:
    sparse = optimize(made(name), backend="kernel")
    given = padded(3, 40)
    wanted = states(sparse, given)
    for twin in (copy.deepcopy(sparse), pickle.loads(pickle.dumps(sparse))):  # noqa: S301 (our own)
        assert torch.equal(states(twin, given), wanted)
        if name != "ModernBERT":
            part = "relative_attention_bias" if name == "MPNet" else "rel_embeddings"
            table = getattr(twin.encoder, part)
            table.weight = torch.nn.Parameter(table.weight.flip(0), requires_grad=False)
            assert off(states(twin, given), wanted) > 100 * TOLERANCE
    assert torch.equal(states(sparse, given), wanted)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("DeBERTa-v2", {"pos_att_type": ["c2p"]}),
        ("DeBERTa-v2", {"relative_attention": False}),
        ("DeBERTa-v2", {"conv_kernel_size": 3}),
        ("DeBERTa-v2", {"embedding_size": 24}),
        ("ModernBERT", {"hidden_activation": "silu"}),
    ],
)
def test_what_the_kernel_lacks_goes_part_by_part(
    name: str, changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MODELS, name, (MODELS[name][0], MODELS[name][1] | changed))
    dense = made(name)
    sparse, calls = optimize(copy.deepcopy(dense), backend="kernel"), counted(monkeypatch)
    given = padded(3, 40)
    assert off(states(sparse, given), states(dense, given)) < TOLERANCE
    assert calls == []


@pytest.mark.parametrize("architecture", ["Bert", "ModernBert"])
def test_a_call_after_one_that_recorded_is_whole_again(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers leaves its hooks in the layers."""
    sparse = optimize(pruned(architecture), backend="kernel")
    wanted = logits(sparse, tokens=30)
    with torch.inference_mode():
        sparse(**inputs(tokens=30), output_hidden_states=True)
    hooks = [module for module in sparse.modules() if module._forward_hooks]
    assert hooks
    passes = sparse.base_model.forward
    monkeypatch.setattr(type(sparse.base_model), "forward", None)  # layer by layer
    assert torch.equal(logits(sparse, tokens=30), wanted)
    assert sparse.base_model.forward is passes
