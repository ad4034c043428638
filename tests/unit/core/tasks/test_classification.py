"""Classification and regression: several splits to evaluate on, whatever numbers the model gives."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoModelForSequenceClassification,
    BartConfig,
    BertConfig,
    PreTrainedTokenizerFast,
    T5Config,
)

from mvprune.data.loading import ClassificationData, Split
from mvprune.data.tasks import get_task
from mvprune_core.tasks import objective_for
from mvprune_core.tasks.metrics import compute_metrics

CPU = torch.device("cpu")
CONFIG = BertConfig()


class _Reader(torch.nn.Module):
    """Answers by the first word of the text, in 16 bits."""

    def __init__(self, answers: dict[int, list[float]], names: tuple[str, ...]) -> None:
        super().__init__()
        self.config = SimpleNamespace(id2label=dict(enumerate(names)), num_labels=len(names), problem_type="regression")
        self.answers = answers

    def forward(self, input_ids: torch.Tensor, **_: Any) -> SimpleNamespace:
        return SimpleNamespace(logits=torch.tensor([self.answers[int(row[1])] for row in input_ids]).bfloat16())


def test_matched_and_mismatched_are_measured_apart(tokenizer: Any) -> None:
    mnli = get_task("mnli")
    matched = Split(["good x y z", "bad", "fine"], ["word1", "word2", "word3"], [0, 1, 2])
    mismatched = Split(["good", "good", "bad", "poor"], ["word1"] * 4, [0, 1, 2, 2])
    data = ClassificationData(mnli, mnli.labels, matched, matched, {"mismatched": mismatched})
    objective = objective_for(data)
    assert [output.name for output in objective.outputs] == ["logits"]
    examples = objective.validation_examples(tokenizer, CONFIG, 32)
    assert len(examples) == 7
    # The model numbers its classes in another order than the data: contradiction, entailment, neutral.
    says = {"good": [0, 1, 0], "bad": [0, 0, 1], "fine": [1, 0, 0], "poor": [1, 0, 0]}
    names = ("CONTRADICTION", "ENTAILMENT", "NEUTRAL")
    model = _Reader({tokenizer.convert_tokens_to_ids(word): logits for word, logits in says.items()}, names)
    assert objective.measure(objective.predict(model, examples, CPU)) == {"accuracy": 1.0, "accuracy_mismatched": 0.5}
    assert not model.training
    alone = objective_for(ClassificationData(mnli, mnli.labels, matched, matched))
    assert alone.measure(alone.predict(model, alone.validation_examples(tokenizer, CONFIG, 32), CPU)) == {
        "accuracy": 1.0
    }


def test_values_are_correlated_in_the_order_of_the_rows(tokenizer: Any) -> None:
    stsb = get_task("stsb")
    split = Split(["good word1 word2", "bad", "fine word1"], ["word1"] * 3, [1.0, 4.0, 2.0])
    objective = objective_for(ClassificationData(stsb, (), split, split))
    examples = objective.validation_examples(tokenizer, CONFIG, 32)
    good, bad, fine = tokenizer.convert_tokens_to_ids(["good", "bad", "fine"])
    metrics = objective.measure(
        objective.predict(_Reader({good: [10.0], bad: [40.0], fine: [20.0]}, ("value",)), examples, CPU)
    )
    assert metrics == {"pearson": pytest.approx(1), "spearman": pytest.approx(1)}
    training = objective.training_examples(tokenizer, CONFIG, 32)
    assert training.targets["labels"].tolist() == [1.0, 4.0, 2.0]
    assert training.targets["labels"].dtype == torch.float32


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        # 8 rows: 3 right of class 1, 2 wrong as 1, 1 wrong as 0, 2 right of class 0.
        ("cola", {"matthews_correlation": (3 * 2 - 2 * 1) / (5 * 4 * 4 * 3) ** 0.5, "accuracy": 5 / 8}),
        ("mrpc", {"accuracy": 5 / 8, "f1": 2 * 3 / (2 * 3 + 2 + 1)}),
        ("qqp", {"accuracy": 5 / 8, "f1": 2 * 3 / (2 * 3 + 2 + 1)}),
        ("sst2", {"accuracy": 5 / 8}),
    ],
)
def test_metrics_of_glue_counted_by_hand(task: str, expected: dict[str, float]) -> None:
    predictions = torch.tensor([1, 1, 1, 1, 1, 0, 0, 0]).numpy()
    references = torch.tensor([1, 1, 1, 0, 0, 1, 0, 0]).numpy()
    found = compute_metrics(get_task(task).metrics, predictions, references)
    assert found == {name: pytest.approx(value) for name, value in expected.items()}


@pytest.fixture
def unigram() -> PreTrainedTokenizerFast:
    """As of T5: the end token is a word of the vocabulary."""
    words = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", -2.0), *((letter, -5.0) for letter in "▁abc</s>")]
    tokenizer = Tokenizer(models.Unigram(words, unk_id=2))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")


SIZES: dict[str, Any] = {"d_model": 16, "vocab_size": 20}
SIZES |= {"eos_token_id": 1, "pad_token_id": 0, "decoder_start_token_id": 0}
BART_SIZES = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
BART_SIZES |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2}


@pytest.mark.parametrize(
    "config",
    [
        T5Config(**SIZES, d_kv=8, num_heads=2, d_ff=16, num_layers=1),
        BartConfig(**SIZES, **BART_SIZES, num_labels=2),
    ],
)
@pytest.mark.parametrize("pairs", [None, ["b", "b</s>", "</s></s>", "a"]])
def test_an_end_token_written_in_a_text_is_text(
    config: Any, pairs: list[str] | None, unigram: PreTrainedTokenizerFast
) -> None:
    model = AutoModelForSequenceClassification.from_config(config)
    split = Split(["a", "a</s> b", "</s>", "a b c"], pairs, [0, 1, 0, 1])
    objective = objective_for(ClassificationData(get_task("text-classification"), ("LABEL_0", "LABEL_1"), split, split))
    for examples in (
        objective.training_examples(unigram, config, 32),
        objective.validation_examples(unigram, config, 32),
    ):
        assert {(ids == 1).sum() for ids in examples.inputs["input_ids"]} == {1 if pairs is None else 2}
    assert objective.measure(objective.predict(model, examples, CPU))["accuracy"] >= 0
