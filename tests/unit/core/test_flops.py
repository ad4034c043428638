"""FLOPs of a forward pass, against formulas and torch's counter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    AlbertConfig,
    AutoModelForSequenceClassification,
    BartConfig,
    BertConfig,
    DebertaConfig,
    DebertaV2Config,
    DistilBertConfig,
    GPT2Config,
    LongformerConfig,
    ModernBertConfig,
    RobertaConfig,
    T5Config,
)

from mvprune.artifact import Manifest, load, read_manifest
from mvprune.artifact.card import flops_in_words
from mvprune.data.loading import ClassificationData
from mvprune_core import Training, compress
from mvprune_core.models.prunable import prunable_layers
from mvprune_core.storing.flops import count_flops, one_input

TOKENS, WIDTH, INNER, LAYERS, LABELS = 24, 16, 40, 2, 2
SMALL: dict[str, Any] = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": 2}
SMALL |= {"intermediate_size": INNER, "vocab_size": 20, "num_labels": LABELS, "pad_token_id": 0}
SEQ2SEQ: dict[str, Any] = {"d_model": WIDTH, "vocab_size": 20, "eos_token_id": 3, "pad_token_id": 0}
SEQ2SEQ |= {"decoder_start_token_id": 0, "num_labels": LABELS}
# Four matrices of the attention, two of the feed-forward part, and two products of attention scores.
BLOCKS = LAYERS * 2 * TOKENS * (4 * WIDTH**2 + 2 * WIDTH * INNER + 2 * TOKENS * WIDTH)
POOLED = 2 * WIDTH**2 + 2 * WIDTH * LABELS
DISTIL = {"dim": WIDTH, "hidden_dim": INNER, "n_layers": LAYERS, "n_heads": 2, "vocab_size": 20, "num_labels": LABELS}
GPT = {"n_embd": WIDTH, "n_inner": INNER, "n_layer": LAYERS, "n_head": 2, "vocab_size": 20, "pad_token_id": 0}

FORMULAS = [
    (BertConfig(**SMALL), BLOCKS + POOLED),
    (DistilBertConfig(**DISTIL), BLOCKS + POOLED),
    (RobertaConfig(**SMALL), BLOCKS + POOLED),
    (GPT2Config(**GPT, num_labels=LABELS), BLOCKS + 2 * TOKENS * WIDTH * LABELS),
]
OTHERS = [
    AlbertConfig(**SMALL, embedding_size=8),
    DebertaV2Config(**SMALL),
    DebertaConfig(**SMALL, relative_attention=True, pos_att_type=["c2p", "p2c"]),
    ModernBertConfig(**SMALL),
    T5Config(**SEQ2SEQ, d_kv=8, num_heads=2, d_ff=INNER, num_layers=1),
    BartConfig(**SEQ2SEQ, encoder_layers=1, decoder_layers=1),
]


def model_of(config: Any, **options: Any) -> Any:
    torch.manual_seed(0)
    return AutoModelForSequenceClassification.from_config(config, **options).eval()


def inputs() -> dict[str, torch.Tensor]:
    ids = torch.tensor([[2, 7, 8, 9, 3]])
    return one_input({"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids[:, 0]}, TOKENS)


def test_an_example_is_made_longer() -> None:
    found = inputs()
    assert set(found) == {"input_ids", "attention_mask"}
    assert found["input_ids"].tolist() == [[2, *[7] * (TOKENS - 4), 8, 9, 3]]
    assert found["attention_mask"].tolist() == [[1] * TOKENS]


@pytest.mark.parametrize(("config", "expected"), FORMULAS, ids=lambda one: getattr(one, "model_type", ""))
def test_dense_flops_are_those_of_the_formula(config: Any, expected: int) -> None:
    assert count_flops(model_of(config), inputs(), ()) == (expected, expected)


@pytest.mark.parametrize("config", [*(config for config, _ in FORMULAS), *OTHERS], ids=lambda one: one.model_type)
def test_dense_flops_are_those_of_torchs_counter(config: Any) -> None:
    """With attention written as matrix products, the counter sees all of them."""
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        model_of(config, attn_implementation="eager").requires_grad_(False)(**inputs())
    assert count_flops(model_of(config), inputs(), ())[0] == counter.get_total_flops() > 0


@pytest.mark.parametrize("config", [*(config for config, _ in FORMULAS), *OTHERS], ids=lambda one: one.model_type)
def test_a_pruned_matrix_counts_its_non_zeros_for_each_token(config: Any) -> None:
    model = model_of(config)
    layers = prunable_layers(model)
    dense, _ = count_flops(model, inputs(), ())
    layer = next(iter(layers.values()))
    uses = 0

    def used(*_: Any) -> None:
        nonlocal uses
        uses += 1

    hook = layer.register_forward_hook(used)
    model(**inputs())
    hook.remove()
    with torch.no_grad():
        layer.weight.view(-1)[:50] = 0.0
    pruned = [f"{name}.weight" for name in layers]
    assert count_flops(model, inputs(), pruned) == (dense, dense - 2 * 50 * TOKENS * uses)
    assert not layer._forward_hooks


@pytest.mark.slow
def test_they_are_in_the_artifact_and_where_it_is_shown(
    model_folder: Path, data: ClassificationData, tmp_path: Path
) -> None:
    training = Training(max_steps=6, batch_size=32, max_length=32)
    result = compress(
        model_folder, data, method="magnitude", density=0.25, teacher=None, training=training, dense_baseline=False
    )
    result.save(tmp_path / "artifact")
    counts = read_manifest(tmp_path / "artifact").accounting
    width, inner, tokens = 32, 64, 32
    matrices = 2 * 2 * tokens * (4 * width**2 + 2 * width * inner)
    products = 2 * 2 * tokens * 2 * tokens * width
    rest = 2 * width**2 + 2 * width * 2
    assert counts.dense_flops == matrices + products + rest
    assert counts.sparse_flops == 2 * tokens * counts.kept_weights + products + rest
    words = f"{counts.sparse_flops:,} of the weights left (dense: {counts.dense_flops:,})"
    for page in ("README.md", "report.html"):
        assert words in (tmp_path / "artifact" / page).read_text()
    assert load(tmp_path / "artifact") is not None


def test_a_model_is_left_as_it_was() -> None:
    model = model_of(LongformerConfig(**SMALL | {"pad_token_id": 1}, attention_window=8))
    next(model.parameters()).requires_grad_(False)
    before = [parameter.requires_grad for parameter in model.parameters()]
    assert count_flops(model, inputs(), ())[0] > 0
    assert [parameter.requires_grad for parameter in model.parameters()] == before
    assert True in before


def test_what_cannot_be_counted_is_said_in_words(
    model_folder: Path, data: ClassificationData, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise AssertionError("Expected gradient function to be set")

    monkeypatch.setattr("mvprune_core.runs.steps.count_flops", fails)
    training = Training(max_steps=6, batch_size=32)
    result = compress(
        model_folder, data, method="magnitude", density=0.25, teacher=None, training=training, dense_baseline=False
    )
    [note] = [note for note in result.notes if "FLOPs" in note]
    assert note == "FLOPs are not counted for BertForSequenceClassification: the result says nothing of them"


def test_manifests_from_before_there_were_flops_still_open(
    model_folder: Path, data: ClassificationData, tmp_path: Path
) -> None:
    training = Training(max_steps=6, batch_size=32)
    result = compress(
        model_folder, data, method="magnitude", density=0.25, teacher=None, training=training, dense_baseline=False
    )
    result.save(tmp_path / "artifact")
    lines = (tmp_path / "artifact" / "manifest.json").read_text().splitlines(keepends=True)
    old = "".join(line for line in lines if "_flops" not in line).encode()
    manifest = Manifest.from_json(old)
    assert manifest.to_json() == old
    assert (manifest.accounting.dense_flops, flops_in_words(manifest.accounting)) == (0, "unknown")
