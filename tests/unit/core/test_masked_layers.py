"""Layers that form W' = M ⊙ W, beside the same model with W' as its parameters."""

from __future__ import annotations

import copy
import weakref
from typing import Any

import pytest
import torch
from tests.unit.core.masks import new_masks
from tests.unit.core.test_masking import ARCHITECTURES
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import AlbertConfig, AutoModelForSequenceClassification, BertConfig

from mvprune.runtime import kernel
from mvprune_core import L0, Movement
from mvprune_core.pruning.packed_masks import masked, pack, unpack
from mvprune_core.training import masked_layers as tested
from mvprune_core.training.masking import Masks

TOTAL = 10
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 40}


def pruned(config: Any) -> tuple[nn.Module, Masks]:
    """A model of which half is masked, without dropout."""
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_config(config).eval()
    masks = new_masks(model, Movement(), density=0.5, total_steps=TOTAL, seed=0)
    masks.update(TOTAL)
    return model, masks


def plain(model: nn.Module, masks: Masks) -> nn.Module:
    """A copy whose parameters are W'."""
    with masks.finalized():
        return copy.deepcopy(model)


def examples() -> dict[str, Tensor]:
    ids = torch.randint(3, 40, (3, 7), generator=torch.Generator().manual_seed(0))
    ids[:, -1] = 2  # the end of a sequence, by which some architectures find their summary
    return {"input_ids": ids, "labels": torch.tensor([0, 1, 1])}


@pytest.fixture
def formed(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[Tensor]]:
    """All W' that layers form."""
    found: list[weakref.ref[Tensor]] = []

    def remembered(weight: Tensor, mask: Tensor, dtype: torch.dtype) -> Tensor:
        tensor = masked(weight, mask, dtype)
        found.append(weakref.ref(tensor))
        return tensor

    monkeypatch.setattr(tested, "masked", remembered)
    return found


@pytest.mark.parametrize("config", [config for config, *_ in ARCHITECTURES], ids=lambda config: str(config.model_type))
def test_loss_and_gradients_are_those_of_a_model_with_zeros(config: Any) -> None:
    """Bit for bit, where layers share a weight too."""
    model, masks = pruned(config)
    reference = plain(model, masks)
    losses = []
    for some in (model, reference):
        losses.append(some(**examples()).loss)
        losses[-1].backward()
    assert torch.equal(*losses)
    expected = dict(reference.named_parameters())
    for name, parameter in model.named_parameters():
        assert (parameter.grad is None) == (expected[name].grad is None), name
        assert parameter.grad is None or torch.equal(parameter.grad, expected[name].grad), name
    grads = {name: parameter.grad for name, parameter in expected.items()}
    masks.backward()
    for matrix, scores in zip(masks.matrices, masks.scores, strict=True):
        assert torch.equal(matrix.weight.grad, grads[matrix.name] * matrix.kept)
        assert torch.equal(scores.grad, grads[matrix.name] * matrix.weight)


def test_several_passes_add_their_gradients() -> None:
    model, masks = pruned(BertConfig(**SMALL))
    reference = plain(model, masks)
    for some in (model, reference):
        for part in range(3):
            some(**{name: value[part : part + 1] for name, value in examples().items()}).loss.backward()
    for matrix in masks.matrices:
        assert torch.equal(matrix.weight.grad, reference.get_parameter(matrix.name).grad)


def test_a_masked_weight_lives_as_long_as_its_layer_computes(formed: list[weakref.ref[Tensor]]) -> None:
    model, masks = pruned(BertConfig(**SMALL))
    model.bert.embeddings.requires_grad_(False)
    loss = model(**examples()).loss
    assert len(formed) == 12
    assert not any(one() is not None for one in formed)
    loss.backward()
    assert len(formed) == 12 + 12 - 3, "the first query, key and value read what has no gradient"
    assert not any(one() is not None for one in formed)

    layer = model.bert.encoder.layer[0].output.dense
    kept = linear(torch.ones(1, 64, requires_grad=True), layer.weight)
    assert formed[-1]() is not None, "code that reads the weight itself keeps it"
    assert torch.equal(kept, linear(torch.ones(1, 64), masks.matrices[5].masked))


@pytest.mark.parametrize(
    "config", [BertConfig(**SMALL), AlbertConfig(**SMALL, embedding_size=16)], ids=["bert", "albert"]
)
def test_autocast_too(config: Any, formed: list[weakref.ref[Tensor]]) -> None:
    model, masks = pruned(config)
    reference = plain(model, masks)
    with torch.autocast("cpu", torch.bfloat16):
        loss, expected = model(**examples()).loss, reference(**examples()).loss
    assert torch.equal(loss, expected)
    assert not any(one() is not None for one in formed)
    loss.backward()
    expected.backward()
    for matrix in masks.matrices:
        found, grad = matrix.weight.grad, reference.get_parameter(matrix.name).grad
        assert found.dtype == torch.float32
        # Where layers share a weight, autocast adds up the plain model's gradients in bf16.
        torch.testing.assert_close(found, grad, rtol=2e-2, atol=2e-3)


def test_gradient_checkpointing_too(formed: list[weakref.ref[Tensor]]) -> None:
    model, masks = pruned(BertConfig(**SMALL, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
    reference = plain(model, masks)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    for some in (model, reference):
        some.train()
        some(**examples()).loss.backward()
    assert len(formed) == 12 + 12 + 12, "the blocks compute again"
    for matrix in masks.matrices:
        assert torch.equal(matrix.weight.grad, reference.get_parameter(matrix.name).grad)


def test_gates_too() -> None:
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_config(BertConfig(**SMALL)).eval()
    masks = Masks(model, L0().for_run(TOTAL), density=0.5, total_steps=TOTAL, seed=0)
    masks.update(TOTAL // 2)
    reference = copy.deepcopy(plain(model, masks))
    for matrix in masks.matrices:
        reference.get_parameter(matrix.name).data.copy_(matrix.weight.detach() * matrix.mask)
    losses = [some(**examples()).loss for some in (model, reference)]
    assert torch.equal(*losses)
    for loss in losses:
        loss.backward()
    for matrix in masks.matrices:
        assert torch.equal(matrix.weight.grad, reference.get_parameter(matrix.name).grad)


def test_a_masked_weight_is_found_by_its_name() -> None:
    model, masks = pruned(BertConfig(**SMALL))
    for matrix in masks.matrices:
        found = model.get_parameter(matrix.name)
        assert torch.equal(found, matrix.masked)
        assert dict(model.named_parameters())[matrix.name] is matrix.weight
    assert model(**examples()).loss.isfinite()


def test_new_bits_are_where_the_old_ones_were() -> None:
    _, masks = pruned(BertConfig(**SMALL))
    matrix = masks.matrices[0]
    bits = matrix.applied
    assert bits is not None
    before, kept = bits.clone(), matrix.weight.detach().abs().argsort(dim=1)[:, :16]
    matrix.weight.data.scatter_(1, kept, 10.0)  # the smallest weights become the largest
    masks.update(TOTAL)
    assert matrix.applied is bits
    assert not torch.equal(bits, before)
    assert bool(matrix.kept.gather(1, kept).all())


def test_the_model_is_plain_while_it_is_evaluated_and_afterwards() -> None:
    model, masks = pruned(BertConfig(**SMALL))
    layer = model.bert.encoder.layer[0].output.dense
    before, values = layer._parameters["weight"], layer.weight.detach()
    with masks.finalized():
        assert type(layer) is nn.Linear
        assert torch.equal(layer.weight, values)
        assert torch.equal(model.get_parameter("bert.encoder.layer.0.output.dense.weight"), values)
    assert type(layer) is not nn.Linear
    assert isinstance(layer, nn.Linear)
    assert layer._parameters["weight"] is before
    assert torch.equal(layer.weight, values)
    masks.finalize()
    assert type(layer) is nn.Linear
    assert torch.equal(layer.weight, values)
    assert isinstance(layer.weight, nn.Parameter)
    assert not torch.equal(before, values), "W is beside the model, with the values of masked weights"
    assert before is masks.matrices[5].weight


@pytest.mark.parametrize("shape", [(3, 5), (8, 16), (1, 1), (31, 33)])
def test_masks_of_bits(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    mask, weight = torch.rand(shape) < 0.4, torch.randn(shape)
    bits = pack(mask)
    assert bits.shape == ((mask.numel() + 7) // 8,)
    assert torch.equal(unpack(bits, mask.shape), mask)
    assert_masked(weight, mask, bits)
    monkeypatch.setattr(kernel, "load", lambda: "no kernel")
    assert_masked(weight, mask, bits)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)  # as on a GPU
    assert torch.equal(unpack(bits, mask.shape), mask)
    assert pack(mask.to("meta")).shape == bits.shape


def assert_masked(weight: Tensor, mask: Tensor, bits: Tensor) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        found = masked(weight, bits, dtype)
        assert found.dtype == dtype
        assert torch.equal(found, (weight * mask).to(dtype))
        assert torch.equal(masked(weight, 0.3 * mask, dtype), (weight * (0.3 * mask)).to(dtype)), "gates"
