"""Masked language modelling: blocks of text, what is hidden, perplexity."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertConfig, BertForMaskedLM, GPT2Config, PreTrainedTokenizerFast

from mvprune.data.loading import PassageData
from mvprune.data.tasks import get_task
from mvprune_core import CompressionError, Reason, Training, compress
from mvprune_core.tasks import objective_for
from mvprune_core.tasks.batching import IGNORED, Examples

CPU = torch.device("cpu")
CLS, SEP, UNKNOWN = 2, 3, 1


@pytest.fixture
def masked(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """The tokenizer, with a mask."""
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="word19",  # a word that the texts do not have
    )


def passages(count: int, seed: int) -> tuple[str, ...]:
    """One word, again and again: a block of 16 tokens long."""
    source = random.Random(seed)
    return tuple(" ".join([f"word{source.randrange(19)}"] * 14) for _ in range(count))


def of(*texts: str) -> Any:
    return objective_for(PassageData(get_task("masked-lm"), texts, texts))


def blocks(examples: Examples) -> list[list[int]]:
    return [ids.tolist() for ids in examples.inputs["input_ids"]]


def test_a_type_without_such_models_is_refused() -> None:
    with pytest.raises(CompressionError, match=r"must be .* an AutoModelForMaskedLM for, got gpt2; give") as raised:
        of("good").check_config(GPT2Config())
    assert raised.value.reason is Reason.UNSUPPORTED_ARCHITECTURE
    of("good").check_config(BertConfig())


def test_an_input_has_room_for_more_than_special_tokens(masked: PreTrainedTokenizerFast) -> None:
    with pytest.raises(ValueError, match=r"^training\.max_length must be at least 3 for masked-lm, got 2"):
        of("good bad").training_examples(masked, None, 2)


def test_texts_are_joined_and_cut_into_blocks(masked: PreTrainedTokenizerFast) -> None:
    objective = of("good bad", "great unseen fine", "<unk> poor [SEP] good")
    assert objective.outputs == ()
    examples = objective.training_examples(masked, None, 7)
    good, bad, great, fine, poor = masked.convert_tokens_to_ids(["good", "bad", "great", "fine", "poor"])
    assert blocks(examples) == [
        [CLS, good, bad, great, UNKNOWN, fine, SEP],
        [CLS, UNKNOWN, poor, SEP, good, SEP],
    ]
    assert [labels.tolist() for labels in examples.inputs["labels"]] == [
        [IGNORED, good, bad, great, IGNORED, fine, IGNORED],
        [IGNORED, IGNORED, poor, IGNORED, good, IGNORED],
    ]
    assert examples.masking is not None
    assert (examples.masking.mask_token, examples.masking.vocabulary) == (masked.mask_token_id, len(masked))


@settings(max_examples=40)
@given(count=st.integers(1, 12), seed=st.integers(0, 99), length=st.integers(8, 40))
def test_no_token_is_lost_and_evaluation_hides_always_the_same(
    tokenizer: PreTrainedTokenizerFast, count: int, seed: int, length: int
) -> None:
    tokenizer.mask_token = "word19"
    texts = passages(count, seed)
    objective = of(*texts)
    training = objective.training_examples(tokenizer, None, length)
    whole = [token for block in blocks(training) for token in block[1:-1]]
    assert whole == tokenizer(" ".join(texts), add_special_tokens=False)["input_ids"]
    assert max(map(len, blocks(training))) <= length
    first, second = (objective.validation_examples(tokenizer, None, length) for _ in range(2))
    assert blocks(first) == blocks(second)
    assert first.masking is None
    for original, ids, labels in zip(blocks(training), blocks(first), first.notes["label"], strict=True):
        hidden = labels != IGNORED
        assert hidden.any()
        assert (np.array(original)[hidden] == labels[hidden]).all()
        assert (np.array(original)[~hidden] == np.array(ids)[~hidden]).all()


class _Sure(torch.nn.Module):
    """Says `token` for every place, with probability `share`, and all others alike; in 16 bits."""

    def __init__(self, token: int, share: float, vocabulary: int) -> None:
        super().__init__()
        probabilities = torch.full((vocabulary,), (1 - share) / (vocabulary - 1))
        probabilities[token] = share
        self.logits = probabilities.log().bfloat16()

    def forward(self, input_ids: torch.Tensor, **_: Any) -> SimpleNamespace:
        return SimpleNamespace(logits=self.logits.expand(*input_ids.shape, -1))


def test_perplexity_is_the_exponential_of_the_mean_loss(masked: PreTrainedTokenizerFast) -> None:
    objective = of(" ".join(["good"] * 300))
    examples = objective.validation_examples(masked, None, 16)
    good, bad = (masked.convert_tokens_to_ids(word) for word in ("good", "bad"))
    model = _Sure(good, 0.5, len(masked))
    metrics = objective.measure(objective.predict(model, examples, CPU))
    assert metrics == {"perplexity": pytest.approx(2, rel=0.02), "accuracy": 1.0}
    assert not model.training
    metrics = objective.measure(objective.predict(_Sure(bad, 0.5, len(masked)), examples, CPU))
    assert metrics == {"perplexity": pytest.approx(2 * (len(masked) - 1), rel=0.05), "accuracy": 0.0}
    assert math.isfinite(
        objective.measure(objective.predict(_Sure(bad, 1.0, len(masked)), examples, CPU))["perplexity"]
    )


@pytest.mark.slow
def test_compresses_and_fills_in(
    tmp_path: Path, masked: PreTrainedTokenizerFast, bert_config: Callable[..., Any]
) -> None:
    torch.manual_seed(1)
    BertForMaskedLM(bert_config(hidden_size=64)).save_pretrained(tmp_path)
    masked.save_pretrained(tmp_path)
    data = PassageData(get_task("masked-lm"), passages(300, 1), passages(60, 2))
    training = Training(max_steps=80, batch_size=32, learning_rate=6e-3, max_length=16, train_embeddings=True)
    result = compress(tmp_path, data, method="magnitude", density=0.5, training=training)
    assert result.primary_metric == "perplexity"
    assert 1 <= result.metrics["eval/perplexity"] < 4, "of 19 words"
    assert result.metrics["eval/accuracy"] > 0.6
    saved = result.save(tmp_path / "artifact")
    assert saved.metrics["eval/perplexity"] == result.metrics["eval/perplexity"]


def test_models_and_texts_that_will_not_do(tokenizer: PreTrainedTokenizerFast, masked: PreTrainedTokenizerFast) -> None:
    bare = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, pad_token="[PAD]", unk_token="[UNK]")
    with pytest.raises(CompressionError, match="no mask token") as raised:
        of("good").training_examples(bare, None, 16)
    assert raised.value.reason is Reason.INVALID_MODEL
    with pytest.raises(CompressionError, match="no token that the model's tokenizer knows") as raised:
        of("unseen unseen").training_examples(masked, None, 16)
    assert raised.value.reason is Reason.INVALID_DATASET
