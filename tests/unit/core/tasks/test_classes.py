"""Classes of a model's config: numbered from 0, each with a name, also for transformers' own pipelines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import BertConfig, BertForSequenceClassification, BertForTokenClassification

from mvprune.data.loading import ClassificationData, TaggedSplit, TokenClassificationData
from mvprune.data.tasks import get_task
from mvprune.export import export
from mvprune_core import Training, compress
from mvprune_core.prediction import Predictor
from mvprune_core.tasks.classes import number_classes

QUICK = Training(max_steps=4, batch_size=32)


def with_labels(folder: Path, **changes: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


@pytest.mark.parametrize(
    ("labels", "names", "note"),
    [
        ({"id2label": {0: "no", 1: "yes"}, "label2id": {"no": 0, "yes": 1}}, ["no", "yes"], ""),
        ({"id2label": {0: "no", 1: "yes"}}, ["no", "yes"], ""),
        ({"id2label": {0: 0, 1: 1}}, ["0", "1"], ""),
        ({"num_labels": 3}, ["LABEL_0", "LABEL_1", "LABEL_2"], ""),
        (
            {"id2label": {2: "yes", 0: "no"}},
            ["no", "yes"],
            "the numbers 0, 2; its classes were numbered from 0: no, y",
        ),
        (
            {"id2label": {1: "no", 2: "yes"}},
            ["no", "yes"],
            "the numbers 1, 2; its classes were numbered from 0: no, y",
        ),
        ({"id2label": {0: "no", 1: "yes"}, "label2id": {"no": 1, "yes": 0}}, ["no", "yes"], "label2id differs"),
        (
            {"id2label": {0: "a", 1: "a"}},
            ["LABEL_0", "LABEL_1"],
            "the name 'a' several times; its numbers were used",
        ),
    ],
)
def test_classes_are_numbered_from_0(labels: dict[str, Any], names: list[str], note: str) -> None:
    config = BertConfig(**labels)
    notes = number_classes(config)
    assert config.id2label == dict(enumerate(names))
    assert config.label2id == {name: number for number, name in enumerate(names)}
    assert config.num_labels == len(names)
    assert [note in each for each in notes] == ([True] if note else [])


def test_transformers_classifies_with_what_had_a_gap(
    save: Callable[..., Path], bert_config: Callable[..., Any], data: ClassificationData, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    folder = save(BertForSequenceClassification(bert_config()))
    with_labels(folder, id2label={"0": "positive", "2": "negative"}, label2id={"positive": 0, "negative": 2})
    result = compress(folder, data, method="soft_movement", density=0.5, training=QUICK)
    assert "the model's id2label has the numbers 0, 2" in result.notes[0]
    result.save(tmp_path / "out")
    export(tmp_path / "out", tmp_path / "dense", to="dense")
    pipeline = transformers.pipeline("text-classification", model=str(tmp_path / "dense"), top_k=None)
    predictor = Predictor.open(tmp_path / "out")
    for text in ("good word1", "bad word2", "awful poor"):
        scores = {each["label"]: each["score"] for each in pipeline([text])[0]}
        assert predictor.predict([{"text": text}])[0]["scores"] == pytest.approx(scores, abs=1e-4)


@pytest.mark.slow
def test_transformers_tags_with_what_had_a_gap(
    save: Callable[..., Path], bert_config: Callable[..., Any], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    folder = save(BertForTokenClassification(bert_config(num_labels=3)))
    with_labels(folder, id2label={"0": "O", "3": "B-X", "7": "B-Y"}, label2id={"O": 0, "B-X": 3, "B-Y": 7})
    split = TaggedSplit([["good", "word1"], ["bad", "word2", "word3"]] * 20, [[1, 0], [2, 0, 0]] * 20)
    tagged = TokenClassificationData(get_task("ner"), ("O", "B-X", "B-Y"), split, split)
    compress(folder, tagged, method="magnitude", density=0.5, training=QUICK).save(tmp_path / "out")
    export(tmp_path / "out", tmp_path / "dense", to="dense")
    found = transformers.pipeline("token-classification", model=str(tmp_path / "dense"), ignore_labels=[])("good word1")
    ours = Predictor.open(tmp_path / "out").predict([{"text": "good word1"}])[0]["words"]
    assert [each["entity"] for each in found] == [each["tag"] for each in ours]
