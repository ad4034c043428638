from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tests.tiers import first_fast
from tests.unit.core.masks import new_masks, update
from torch import nn
from transformers import (
    AlbertConfig,
    AutoModelForSequenceClassification,
    BartConfig,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    GPT2Config,
    ModernBertConfig,
    RobertaConfig,
    T5Config,
)

from mvprune.spec.kept import kept_count
from mvprune_core import METHODS, CompressionError, Method, Movement, Random, Reason, Schedule, SoftMovement
from mvprune_core.methods import Gated
from mvprune_core.models.prunable import prunable_layers
from mvprune_core.storing.accounting import account
from mvprune_core.training.masking import Masks
from mvprune_core.training.training_mode import without_dropout

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 40}
BLOCK = 4 * 32 * 32 + 2 * 32 * 64  # prunable weights of one layer


def masks_of(model: nn.Module, method: Method | None = None, density: float = 0.1, **options: Any) -> Masks:
    return new_masks(model, method or Movement(), density=density, total_steps=10, seed=0, **options)


@pytest.mark.parametrize("name", first_fast([*METHODS], 2))
def test_zeros_stay_zero_under_momentum_and_weight_decay(name: str) -> None:
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(**SMALL))
    masks = new_masks(model, METHODS[name](), density=0.2, total_steps=30, seed=0)
    optimizer = torch.optim.AdamW(
        [{"params": list(model.parameters()), "lr": 1e-2, "weight_decay": 0.1}, *masks.score_groups()]
    )
    for step in range(30):
        model(torch.randint(40, (3, 7)), labels=torch.tensor([0, 1, 1])).loss.backward()
        zeros = [matrix.masked == 0 for matrix in masks.matrices]
        masks.backward()
        for matrix, zero in zip(masks.matrices, zeros, strict=True):  # whatever momentum moves dead weights by
            assert matrix.weight.grad is None or not matrix.weight.grad[zero].any()
        optimizer.step()
        optimizer.zero_grad()
        update(masks, step + 1)
        for matrix in masks.matrices if not isinstance(masks.method, Gated) else []:
            assert torch.equal(matrix.masked[matrix.kept], matrix.weight[matrix.kept])
        if masks.current_density == 0.2 and not isinstance(masks.method, Gated):
            kept = sum(int(matrix.masked.count_nonzero()) for matrix in masks.matrices)
            assert kept == pytest.approx(0.2 * 2 * BLOCK, rel=0.02)
    masks.finalize()
    kept = sum(int(matrix.masked.count_nonzero()) for matrix in masks.matrices)
    assert kept == pytest.approx(0.2 * 2 * BLOCK, rel=0.02)


def test_the_model_stays_plain_and_dense_at_density_one() -> None:
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(**SMALL)).eval()
    names, inputs = sorted(model.state_dict()), torch.randint(40, (3, 7))
    expected = model(inputs).logits
    masks = masks_of(model)
    assert torch.equal(model(inputs).logits, expected)
    masks.update(10)
    assert not torch.equal(model(inputs).logits, expected)
    assert sorted(model.state_dict()) == names
    masks.finalize()
    assert sorted(model.state_dict()) == names
    assert type(model.bert.encoder.layer[0].output.dense) is nn.Linear
    assert masks.current_density == 0.1
    assert {int(matrix.masked.count_nonzero()) for matrix in masks.matrices} == {102, 204}


@pytest.mark.parametrize("name", METHODS)
def test_what_is_left_is_counted_exactly(name: str) -> None:
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(**SMALL))
    masks = masks_of(model, METHODS[name]())
    for scores in masks.scores:
        scores.data.add_(torch.randn_like(scores))
    update(masks, 10)
    masks.finalize()
    accounting, layers = account(model, masks.weight_names, 0.1)
    state = model.state_dict()
    kept = {name: int((state[name] != 0).sum()) for name in masks.weight_names}
    assert {layer.name: layer.nonzero for layer in layers} == kept
    assert accounting.kept_weights == sum(kept.values())
    assert accounting.prunable_weights == 2 * BLOCK
    assert accounting.total_nonzero == sum(int((value != 0).sum()) for value in model.parameters())
    assert accounting.total_parameters == sum(value.numel() for value in model.parameters())
    assert accounting.dense_bytes == 4 * accounting.total_parameters


# Configuration, prunable weights, parameters of the encoder.
ARCHITECTURES: list[tuple[Any, int, int]] = [
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
    # Two blocks of each stack; cross-attention in the decoder.
    (
        BartConfig(
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            vocab_size=40,
        ),
        4 * BLOCK + 2 * 4 * 32 * 32,
        4 * (BLOCK + 4 * 32 + 64 + 32 + 4 * 32) + 2 * (4 * 32 * 32 + 4 * 32 + 2 * 32),
    ),
    # No biases; the first block of each stack holds the table of relative positions.
    (
        T5Config(
            d_model=32,
            d_kv=16,
            num_heads=2,
            d_ff=64,
            num_layers=2,
            vocab_size=40,
            decoder_start_token_id=0,
            eos_token_id=2,
        ),
        4 * BLOCK + 2 * 4 * 32 * 32,
        4 * (BLOCK + 2 * 32) + 2 * (4 * 32 * 32 + 32) + 2 * 32 * 2,
    ),
    (
        DebertaV2Config(**SMALL, relative_attention=True, pos_att_type=["p2c", "c2p"], share_att_key=True),
        2 * BLOCK,
        2 * (BLOCK + 4 * 32 + 64 + 32 + 4 * 32),
    ),
    # Gated: the first feed-forward matrix is twice as wide. The first block has no norm before its attention.
    (
        ModernBertConfig(**SMALL, pad_token_id=0, cls_token_id=1, sep_token_id=2, bos_token_id=1, eos_token_id=2),
        2 * (4 * 32 * 32 + 3 * 32 * 64),
        2 * (4 * 32 * 32 + 3 * 32 * 64) + 3 * 32,
    ),
]


@pytest.mark.parametrize(
    ("config", "prunable", "encoder"), ARCHITECTURES, ids=[config.model_type for config, *_ in ARCHITECTURES]
)
def test_every_architecture_is_masked_trained_and_counted(config: Any, prunable: int, encoder: int) -> None:
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_config(config)
    masks = masks_of(model, density=0.5)
    masks.update(10)
    inputs = torch.randint(3, 40, (3, 7))
    inputs[:, -1] = 2  # the end of a sequence, by which some architectures find their summary
    model(inputs, labels=torch.tensor([0, 1, 1])).loss.backward()
    masks.backward()
    assert all(score.grad is not None and score.grad.abs().sum() > 0 for score in masks.scores)
    masks.update(10)
    masks.finalize()
    accounting, _ = account(model, masks.weight_names, 0.5)
    assert accounting.prunable_weights == prunable
    assert accounting.kept_weights == prunable // 2
    assert accounting.encoder_parameters == encoder


@pytest.mark.parametrize("config", [config for config, *_ in ARCHITECTURES], ids=lambda config: str(config.model_type))
def test_every_architecture_trains_without_dropout(config: Any) -> None:
    config = copy.deepcopy(config)
    chances = {name for name, value in vars(config).items() if "drop" in name and isinstance(value, float)}
    for name in chances:
        setattr(config, name, 0.5)
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_config(config).train()
    inputs = torch.randint(3, 40, (3, 7))
    inputs[:, -1] = 2  # the end of a sequence, by which some architectures find their summary

    def differ() -> bool:
        first, second = model(inputs).logits, model(inputs).logits
        return not torch.equal(first, second)

    assert differ()
    with without_dropout(model):
        assert not differ()
    assert differ()


@pytest.mark.parametrize(("density", "kept"), [(0.03, 2_547_984), (0.1, 8_493_432), (0.2, 16_986_888)])
def test_bert_base_counts(density: float, kept: int) -> None:
    with torch.device("meta"):
        model = BertForSequenceClassification(BertConfig())
    layers = prunable_layers(model)
    sizes = [layer.weight.numel() for layer in layers.values()]
    assert len(sizes) == 72
    assert sum(sizes) == 84_934_656
    assert sum(value.numel() for name, value in model.named_parameters() if ".layer." in name) == 85_054_464
    # 48 matrices of 768 x 768 and 24 of 768 x 3072
    assert sum(kept_count(size, density) for size in sizes) == kept
    assert kept == 48 * int(density * 589_824) + 24 * int(density * 2_359_296)


def test_layers_are_chosen_by_pattern() -> None:
    model = BertForSequenceClassification(BertConfig(**SMALL))
    attention = prunable_layers(model, include=["*.attention.*"])
    assert len(attention) == 8
    assert len(prunable_layers(model, exclude=["bert.encoder.layer.1.*"])) == 6
    assert set(prunable_layers(model, include=["bert.pooler.dense"])) == {"bert.pooler.dense"}
    masks = masks_of(model, layers=prunable_layers(model, ["*.attention.*"], ["*.layer.0.*"]))
    assert len(masks.weight_names) == 4
    assert all(".layer.1.attention." in name for name in masks.weight_names)


@pytest.mark.parametrize("field", ["include", "exclude"])
def test_a_pattern_that_matches_nothing_is_refused(field: str) -> None:
    model = BertForSequenceClassification(BertConfig(**SMALL))
    words = rf"^{field} must match the name of a layer, .*bert.encoder.layer.0.*, got 'encoder.layers.\*'"
    with pytest.raises(CompressionError, match=words):
        prunable_layers(model, **{field: ["encoder.layers.*"]})


def test_a_model_without_blocks_is_refused() -> None:
    with pytest.raises(CompressionError, match="numbered block") as raised:
        masks_of(nn.Sequential())
    assert raised.value.reason is Reason.UNSUPPORTED_ARCHITECTURE
    with pytest.raises(CompressionError):
        prunable_layers(nn.ModuleDict({"pooler": nn.Linear(3, 3)}))


def test_what_is_tied_to_the_embeddings_is_never_pruned() -> None:
    model = BertForMaskedLM(BertConfig(**SMALL))
    everything = prunable_layers(model, include=["*"])
    assert "cls.predictions.transform.dense" in everything
    assert "cls.predictions.decoder" not in everything


def test_tied_weights_count_once() -> None:
    first, second, third = (nn.Linear(4, 4) for _ in range(3))
    second.weight = first.weight
    model = nn.ModuleDict({"layer": nn.ModuleList([first, second, third])})
    assert list(prunable_layers(model)) == ["layer.0", "layer.2"]
    assert list(prunable_layers(model, include=["layer.1"])) == ["layer.0"], "as the model's parameters name it"
    assert list(prunable_layers(model, exclude=["layer.0"])) == ["layer.2"]


@pytest.mark.parametrize(
    "method", [Random(schedule=Schedule("one_shot", pruning_start=0)), Movement(initial_scores="zero")]
)
def test_a_weight_of_zero_that_is_kept_has_a_gradient(method: Method) -> None:
    """As of a model that was pruned before: 0 is not masked."""
    model = BertForSequenceClassification(BertConfig(**SMALL))
    for layer in prunable_layers(model).values():
        layer.weight.data[::2] = 0
    masks = masks_of(model, method, density=0.5)
    masks.update(10)
    assert masks.current_density == 0.5
    for matrix in masks.matrices:
        assert matrix.kept.float().mean() == 0.5
        matrix.weight.grad = torch.ones_like(matrix.weight)
    kept = [matrix.kept for matrix in masks.matrices]
    masks.backward()
    for matrix, where in zip(masks.matrices, kept, strict=True):
        assert torch.equal(matrix.weight.grad, where.float())


@pytest.mark.parametrize("shrunk", [0.0, 0.01])
def test_a_matrix_that_starts_near_zero_does_not_take_the_weights_of_all_others(shrunk: float) -> None:
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(**SMALL))
    model.bert.encoder.layer[1].output.dense.weight.data.mul_(shrunk)
    masks = masks_of(model, SoftMovement().for_run(10), density=0.1)
    for matrix in masks.matrices:
        matrix.weight.data.add_(torch.randn_like(matrix.weight), alpha=1e-3)
    masks.update(10)
    assert masks.current_density == pytest.approx(0.1, rel=0.02)
    densities = [float(matrix.kept.float().mean()) for matrix in masks.matrices]
    assert densities[-1] < 0.1
    assert min(densities[:-1]) > 0.05


def test_a_weight_that_is_computed_is_refused_by_its_name() -> None:
    layer = torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    with pytest.raises(TypeError, match=r"block\.0\.weight is computed, not a parameter"):
        masks_of(nn.ModuleDict({"block": nn.ModuleList([layer])}))
