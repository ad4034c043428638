"""What config.json says of a model's outputs stays, or a note says what it is now."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tests.unit.core.conftest import sentences
from tests.unit.core.training_runs import SHORT
from transformers import BertForSequenceClassification

import mvprune.hf  # noqa: F401 (registers the format)
from mvprune.data.loading import ClassificationData, Split
from mvprune.data.tasks import get_task
from mvprune.export import export
from mvprune_core import CompressionError, Reason, Teacher, Training, compress
from mvprune_core.evaluation import evaluate
from mvprune_core.models.loading import Loaded, Source, find_model, load_model
from mvprune_core.prediction import Predictor
from mvprune_core.tasks import objective_for

TEXTS = ["good word1", "bad word2 word3", "word4 great"]


def values(low: float, high: float) -> ClassificationData:
    def split(count: int, seed: int) -> Split:
        found = sentences(count, seed)
        return Split(found.texts, None, [(low, high)[int(label)] for label in found.labels])

    return ClassificationData(get_task("text-regression"), (), split(64, 1), split(32, 2))


@pytest.fixture
def one_logit(save: Callable[..., Path], bert_config: Callable[..., Any]) -> Callable[..., Path]:
    """A fine-tuned BERT with one output, and keys of its config.json."""

    def make(name: str = "model", **keys: Any) -> Path:
        torch.manual_seed(2)
        folder = save(BertForSequenceClassification(bert_config(num_labels=1)), name)
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | keys))
        return folder

    return make


def loaded(folder: Path, data: ClassificationData) -> Loaded:
    return load_model(find_model(folder, None), objective_for(data), seed=0)


def scores(folder: Path) -> list[float]:
    pipeline: Any = transformers.pipeline("text-classification", model=str(folder))
    return [answer["score"] for answer in pipeline(TEXTS)]


@pytest.mark.slow
@pytest.mark.parametrize("keys", [{}, {"problem_type": "multi_label_classification"}])
def test_a_cross_encoder_keeps_its_scores(one_logit: Callable[..., Path], tmp_path: Path, keys: dict[str, Any]) -> None:
    folder, exact = one_logit(**keys), {"weight_dtype": "fp32", "embedding_dtype": "fp32"}
    result = compress(folder, values(0.0, 1.0), density=1.0, keep_fine_tuned=True, **exact)  # type: ignore[arg-type]
    result.save(tmp_path / "out")
    before = scores(folder)
    assert scores(tmp_path / "out") == pytest.approx(before, abs=1e-5)
    served = Predictor.open(tmp_path / "out").predict([{"text": text} for text in TEXTS])
    assert [answer["value"] for answer in served] == pytest.approx(before, abs=1e-5)
    assert any("a score is the sigmoid of the logit" in note for note in result.notes)


def test_it_is_trained_with_binary_cross_entropy(one_logit: Callable[..., Path], tmp_path: Path) -> None:
    data, folder = values(0.0, 1.0), one_logit()
    found = loaded(folder, data)
    examples = objective_for(data).training_examples(found.tokenizer, found.config, 32)
    batch = examples.batch(np.arange(8), torch.device("cpu"))
    with torch.inference_mode():
        output = found.model(**batch)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(output.logits[:, 0], batch["labels"][:, 0])
    assert output.loss.item() == pytest.approx(expected.item(), rel=1e-5)
    options: dict[str, Any] = {"method": "magnitude", "teacher": Teacher(), "training": replace(SHORT, max_steps=8)}
    compress(folder, data, density=0.5, **options).save(tmp_path / "out")
    assert all(0 < score < 1 for score in scores(tmp_path / "out"))


def test_values_beyond_one_are_no_probabilities(one_logit: Callable[..., Path]) -> None:
    found = loaded(one_logit(), values(0.0, 5.0))
    assert found.config.problem_type == "regression"
    assert any("a score is now the logit itself" in note for note in found.notes)


def test_a_regression_stays_one(one_logit: Callable[..., Path]) -> None:
    found = loaded(one_logit(problem_type="regression"), values(0.0, 1.0))
    assert found.config.problem_type == "regression"
    assert not found.notes


@pytest.mark.parametrize(
    "key",
    [
        {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity", "version": "5"}},
        {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"},
    ],
)
def test_an_activation_of_sentence_transformers_stays_and_is_named(
    one_logit: Callable[..., Path], key: dict[str, Any]
) -> None:
    found = loaded(one_logit(**key), values(0.0, 1.0))
    assert found.config.to_dict().items() >= key.items()
    [note] = found.notes
    assert note.endswith("; torch.nn.modules.linear.Identity, which sentence-transformers applies, stays")


def test_a_teacher_of_values_does_not_teach_probabilities(one_logit: Callable[..., Path]) -> None:
    teacher = Teacher(Source("t", "", one_logit("teacher", problem_type="regression")))
    with pytest.raises(CompressionError, match=r"outputs that mean the same .* problem_type regression") as raised:
        compress(
            one_logit(),
            values(0.0, 1.0),
            method="magnitude",
            density=0.5,
            teacher=teacher,
            training=Training(max_steps=8),
        )
    assert raised.value.reason is Reason.INVALID_MODEL


@pytest.mark.parametrize(
    ("keys", "note"),
    [
        ({}, "the model's classes have the names of the data, by number: LABEL_0 is negative, LABEL_1 is positive"),
        (
            {"id2label": {"0": "joy", "1": "anger"}, "label2id": {"joy": 0, "anger": 1}},
            "the model's classes have the names of the data, by number: joy is negative, anger is positive",
        ),
        (
            {"problem_type": "multi_label_classification", "id2label": {"0": "negative", "1": "positive"}},
            "the model's problem_type was multi_label_classification and is single_label_classification",
        ),
    ],
)
def test_what_a_classification_replaces_is_said(
    save: Callable[..., Path],
    bert_config: Callable[..., Any],
    data: ClassificationData,
    keys: dict[str, Any],
    note: str,
) -> None:
    folder = save(BertForSequenceClassification(bert_config()))
    path = folder / "config.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | keys))
    assert note in loaded(folder, data).notes


def test_evaluate_and_exports_have_the_scores_too(one_logit: Callable[..., Path], tmp_path: Path) -> None:
    data = values(0.0, 1.0)
    options: dict[str, Any] = {"method": "magnitude", "teacher": None, "training": replace(SHORT, max_steps=8)}
    compress(one_logit(), data, density=0.5, **options).save(tmp_path / "out")
    rows = [f"{text}\t{value}" for text, value in zip(data.validation.texts, data.validation.labels, strict=True)]
    (tmp_path / "own.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    found = evaluate(tmp_path / "out", tmp_path / "own.tsv")
    assert found.metrics == pytest.approx(found.recorded, abs=1e-5)
    export(tmp_path / "out", tmp_path / "dense", to="dense")
    assert scores(tmp_path / "dense") == pytest.approx(scores(tmp_path / "out"), abs=1e-4)
