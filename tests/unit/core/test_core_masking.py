from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import (
    AlbertConfig,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    DistilBertConfig,
    ElectraConfig,
    GPT2Config,
    RobertaConfig,
)

from mvprune_core import CompressionError, Magnitude, Method, Movement, Reason
from mvprune_core.accounting import account
from mvprune_core.masking import Masks, prunable_layers

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 40}
BLOCK = 4 * 32 * 32 + 2 * 32 * 64  # prunable weights of one layer


def one_block(rows: int = 6, columns: int = 8) -> nn.Module:
    torch.manual_seed(0)
    return nn.ModuleDict({"layer": nn.ModuleList([nn.Linear(columns, rows)])})


@pytest.mark.parametrize("method", [Movement(), Magnitude()])
@pytest.mark.parametrize("density", [0.4, 1.0])
def test_gradients_are_those_of_the_straight_through_estimator(method: Method, density: float) -> None:
    model = one_block()
    layer = model["layer"][0]
    weight, bias = layer.weight.detach().clone(), layer.bias.detach().clone()
    masks = Masks(model, method, target=0.1, seed=0)
    scores = [torch.randn_like(weight) for _ in masks.scores]
    for parameter, value in zip(masks.scores, scores, strict=True):
        parameter.data.copy_(value)
    masks.select(density)

    inputs, targets = torch.randn(5, 8), torch.randn(5, 6)
    (layer(inputs) - targets).square().sum().backward()

    # By hand: W' = M * W, L = sum((x W'^T + b - y)^2), G = dL/dW'.
    importance = scores[0] if scores else weight.abs()
    kept = importance.flatten().argsort(descending=True)[: int(density * weight.numel())]
    mask = torch.zeros(weight.numel()).index_fill_(0, kept, 1.0).view_as(weight)
    residual = inputs @ (mask * weight).T + bias - targets
    gradient = 2 * residual.T @ inputs
    original = layer.parametrizations["weight"].original
    torch.testing.assert_close(original.grad, gradient * mask)
    torch.testing.assert_close(layer.bias.grad, 2 * residual.sum(dim=0))
    for parameter in masks.scores:
        torch.testing.assert_close(parameter.grad, gradient * weight)


@pytest.mark.parametrize("method", [Movement(), Magnitude()])
def test_dense_is_free_and_masks_leave_the_weights_alone(method: Method) -> None:
    model = one_block()
    layer = model["layer"][0]
    weight = layer.weight.detach().clone()
    masks = Masks(model, method, target=0.1, seed=0)
    assert layer.weight.data_ptr() == layer.parametrizations["weight"].original.data_ptr()
    masks.select(0.25)
    assert torch.count_nonzero(layer.weight) == 12
    assert torch.equal(layer.parametrizations["weight"].original, weight)
    assert not any("mask" in name for name in model.state_dict())
    masks.select(1.0)
    assert torch.equal(layer.weight, weight)


@pytest.mark.parametrize("method", [Movement(), Magnitude()])
def test_fold_leaves_a_plain_model_with_exactly_the_counted_zeros(method: Method) -> None:
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(**SMALL))
    names = sorted(model.state_dict())
    masks = Masks(model, method, target=0.1, seed=0)
    masks.select(0.1)
    inputs = torch.randint(40, (3, 7))
    model.eval()
    expected = model(inputs).logits
    masks.fold()
    assert torch.equal(model(inputs).logits, expected)
    assert sorted(model.state_dict()) == names
    assert type(model.bert.encoder.layer[0].output.dense) is nn.Linear

    accounting, layers = account(model, masks.weight_names, 0.1)
    state = model.state_dict()
    kept = {name: int((state[name] != 0).sum()) for name in masks.weight_names}
    assert kept == {name: int(0.1 * state[name].numel()) for name in masks.weight_names}
    assert {layer.name: layer.nonzero for layer in layers} == kept
    assert accounting.kept_weights == sum(kept.values())
    assert accounting.prunable_weights == 2 * BLOCK
    assert accounting.total_nonzero == sum(int((value != 0).sum()) for value in model.parameters())
    assert accounting.total_parameters == sum(value.numel() for value in model.parameters())
    assert accounting.dense_bytes == 4 * accounting.total_parameters


@pytest.mark.parametrize(
    ("config", "prunable", "encoder"),
    [
        (BertConfig(**SMALL), 2 * BLOCK, 2 * (BLOCK + 4 * 32 + 64 + 32 + 4 * 32)),
        (RobertaConfig(**SMALL), 2 * BLOCK, 2 * (BLOCK + 4 * 32 + 64 + 32 + 4 * 32)),
        (ElectraConfig(**SMALL, embedding_size=16), 2 * BLOCK, 2 * (BLOCK + 4 * 32 + 64 + 32 + 4 * 32)),
        (
            DistilBertConfig(dim=32, n_layers=2, n_heads=2, hidden_dim=64, vocab_size=40),
            2 * BLOCK,
            2 * (BLOCK + 4 * 32 + 64 + 32 + 4 * 32),
        ),
        # ALBERT's layers share their weights: counted once.
        (AlbertConfig(**SMALL, embedding_size=16), BLOCK, BLOCK + 4 * 32 + 64 + 32 + 4 * 32),
        # Conv1D; one matrix for query, key and value.
        (
            GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=40, n_positions=64, pad_token_id=0),
            2 * (4 * 32 * 32 + 2 * 32 * 128),
            2 * (4 * 32 * 32 + 2 * 32 * 128 + 4 * 32 + 128 + 32 + 4 * 32),
        ),
    ],
    ids=lambda value: getattr(value, "model_type", ""),
)
def test_every_architecture_is_wrapped_trained_and_counted(config: Any, prunable: int, encoder: int) -> None:
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_config(config)
    masks = Masks(model, Movement(), target=0.1, seed=0)
    masks.select(0.5)
    with masks.once_per_pass():
        loss = model(torch.randint(1, 40, (3, 7)), labels=torch.tensor([0, 1, 1])).loss
    loss.backward()
    assert all(score.grad is not None and score.grad.abs().sum() > 0 for score in masks.scores)
    masks.fold()
    accounting, _ = account(model, masks.weight_names, 0.5)
    assert accounting.prunable_weights == prunable
    assert accounting.kept_weights == prunable // 2
    assert accounting.encoder_parameters == encoder


def test_bert_base_counts() -> None:
    with torch.device("meta"):
        model = BertForSequenceClassification(BertConfig())
    layers = prunable_layers(model)
    assert len(layers) == 72
    assert sum(layer.weight.numel() for layer in layers.values()) == 84_934_656
    assert sum(value.numel() for name, value in model.named_parameters() if ".layer." in name) == 85_054_464


def test_a_model_without_blocks_is_refused() -> None:
    with pytest.raises(CompressionError, match="numbered block") as raised:
        Masks(nn.Sequential(), Movement(), target=0.1, seed=0)
    assert raised.value.reason is Reason.UNSUPPORTED_ARCHITECTURE
    with pytest.raises(CompressionError):
        prunable_layers(nn.ModuleDict({"pooler": nn.Linear(3, 3)}))
