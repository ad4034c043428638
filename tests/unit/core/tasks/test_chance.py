"""Models that are no better than chance, or whose classes are named the other way round, are in the notes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertForSequenceClassification

from mvprune.data.loading import (
    ClassificationData,
    Question,
    QuestionAnsweringData,
    TaggedSplit,
    TokenClassificationData,
)
from mvprune.data.tasks import get_task
from mvprune_core import Callback, Training, compress
from mvprune_core.tasks import objective_for
from mvprune_core.tasks.batching import IGNORED, Examples
from mvprune_core.tasks.chance import check_classes, check_values, note_on
from mvprune_core.training.distillation import Teacher

SETTINGS = Training(max_steps=60, batch_size=32, learning_rate=1e-2)


def test_swapped_classes_are_named() -> None:
    true = np.array([0, 1, 0, 1, 2, 2])
    predicted = np.array([1, 0, 1, 0, 2, 2])
    failure = check_classes(predicted, true, ("cat", "dog", "fox"))
    assert failure is not None
    note = note_on(failure, "the model")
    assert "'cat' seems to be 'dog'" in note
    assert "'dog' seems to be 'cat'" in note
    assert "fox" not in note.split(":")[1]


def test_a_constant_answer_is_no_better_than_chance() -> None:
    failure = check_classes(np.zeros(10, dtype=int), np.array([0] * 6 + [1] * 4), ("no", "yes"))
    assert failure is not None
    assert failure.by_chance
    assert failure.fit == ""
    assert "0.6000 of always answering 'no'" in failure.finding


def test_good_predictions_raise_no_doubt() -> None:
    true = np.array([0, 1, 0, 1, 1, 0, 1, 0])
    assert check_classes(np.array([0, 1, 0, 1, 1, 0, 1, 1]), true, ("a", "b")) is None
    assert check_classes(np.zeros(4, dtype=int), np.zeros(4, dtype=int), ("a", "b")) is None  # one class only


@pytest.mark.parametrize(
    ("predicted", "fits"), [([3.0, 2.0, 1.0], "its values seem to run the other way"), ([1.0, 1.0, 1.0], "")]
)
def test_values_that_run_the_other_way(predicted: list[float], fits: str) -> None:
    failure = check_values(np.array(predicted), np.array([1.0, 2.0, 3.0]))
    assert failure is not None
    assert failure.fit == fits


def test_values_in_the_right_order_raise_no_doubt() -> None:
    assert check_values(np.array([1.0, 2.0, 2.5]), np.array([1.0, 2.0, 3.0])) is None


@pytest.mark.slow
def test_a_fine_tuned_model_with_swapped_labels_is_in_the_notes(
    one_layer: Path, data: ClassificationData, tmp_path: Path
) -> None:
    class Heard(Callback):
        notes: list[str] = []  # noqa: RUF012

        def on_note(self, text: str) -> None:
            self.notes.append(text)

    trained = compress(
        one_layer, data, method="magnitude", density=1, training=SETTINGS, dense_baseline=False, callback=Heard()
    )
    folder = tmp_path / "swapped"
    trained.model.save_pretrained(folder)
    trained.tokenizer.save_pretrained(folder)
    for file in one_layer.glob("*token*"):
        if not (folder / file.name).exists():
            shutil.copy(file, folder)
    config = json.loads((folder / "config.json").read_text())
    first, second = config["id2label"]["0"], config["id2label"]["1"]
    config |= {"id2label": {"0": second, "1": first}, "label2id": {second: 0, first: 1}}
    (folder / "config.json").write_text(json.dumps(config))
    brief = replace(SETTINGS, max_steps=6)
    result = compress(folder, data, method="magnitude", density=0.5, training=brief, callback=Heard())
    assert result.metrics["dense/accuracy"] < 0.5
    found = [note for note in result.notes if "seems to be" in note]
    assert found
    assert f"'{first}' seems to be '{second}'" in found[0]
    assert result.save(tmp_path / "artifact").notes == result.notes


TAGS = TaggedSplit([["a", "b", "c"], ["d", "e"]], [[0, 1, 0], [0, 1]])
TAGGED = TokenClassificationData(get_task("ner"), ("O", "B-X"), TAGS, TAGS)
ASKED = (Question("a", "who?", "the cat", (("cat", 4),)), Question("b", "who?", "a house", ()))


def test_tags_that_are_all_the_same_and_tags_that_are_swapped() -> None:
    objective = objective_for(TAGGED)
    constant = objective.sanity_check([["O", "O", "O"], ["O", "O"]])
    assert constant is not None
    assert constant.by_chance
    assert constant.finding == "has the accuracy 0.6000, no better than 0.6000 of always answering 'O'"
    swapped = objective.sanity_check([["B-X", "O", "B-X"], ["B-X", "O"]])
    assert swapped is not None
    assert "its 'B-X' seems to be 'O'" in swapped.fit
    assert objective.sanity_check([["O", "B-X", "O"], ["O", "B-X"]]) is None


def test_questions_that_are_answered_no_better_than_with_nothing() -> None:
    objective = objective_for(QuestionAnsweringData(get_task("squad_v2"), (), ASKED))
    wrong = objective.sanity_check(["the", ""])
    assert wrong is not None
    assert wrong.by_chance
    assert wrong.finding == "has the f1 0.5000, no better than 0.5000 of answering nothing"
    assert objective.sanity_check(["cat", ""]) is None


def test_the_logits_of_a_named_teacher(data: ClassificationData) -> None:
    which, ids = np.array([0, 2]), [np.array([2, 3], dtype=np.int32)] * 3
    classes = Examples({"input_ids": ids}, {"labels": torch.tensor([0, 1, 1])}, pad_token=0)
    names, right = ["negative", "positive"], torch.tensor([[1.0, 0.0], [0.0, 1.0]]).half()
    objective = objective_for(data)
    assert objective.check_teacher({"logits": right}, classes, which, names) is None
    swapped = objective.check_teacher({"logits": right.flip(1)}, classes, which, names)
    assert swapped is not None
    assert "its 'negative' seems to be 'positive'" in swapped.fit

    labels = [np.array([IGNORED, label], dtype=np.int32) for label in (0, 0, 1)]
    tokens = Examples({"input_ids": ids, "labels": labels}, {}, pad_token=0)
    constant = torch.tensor([[0.0, 9.0], [1.0, 0.0], [0.0, 9.0], [1.0, 0.0]]).half()  # ignored tokens count nothing
    failure = objective_for(TAGGED).check_teacher({"logits": constant}, tokens, which, ["O", "B-X"])
    assert failure is not None
    assert "has the accuracy 0.5000, no better than 0.5000" in failure.finding

    values = Examples({"input_ids": ids}, {"labels": torch.tensor([1.0, 5.0, 2.0])}, pad_token=0)
    similar = objective_for(ClassificationData(get_task("stsb"), (), data.train, data.validation))
    assert similar.check_teacher({"logits": torch.tensor([[0.1], [0.2]])}, values, which, ["x"]) is None
    assert similar.check_teacher({"logits": torch.tensor([[0.2], [0.1]])}, values, which, ["x"]) is not None

    questions = objective_for(QuestionAnsweringData(get_task("squad"), ASKED, ASKED))
    assert questions.check_teacher({"start_logits": torch.zeros(4)}, classes, which, []) is None


def test_a_named_teacher_that_always_answers_the_same_is_in_the_notes(
    model_folder: Path, save: Callable[..., Path], bert_config: Callable[..., Any], data: ClassificationData
) -> None:
    teacher = BertForSequenceClassification(bert_config())
    with torch.no_grad():
        teacher.classifier.weight.zero_()
        teacher.classifier.bias.copy_(torch.tensor([1.0, 0.0]))
    teacher.config.id2label = {0: "negative", 1: "positive"}
    result = compress(
        model_folder,
        data,
        method="magnitude",
        density=0.5,
        training=Training(max_steps=12, batch_size=32),
        teacher=Teacher(save(teacher, "teacher")),
        dense_baseline=False,
    )
    (note,) = [note for note in result.notes if note.startswith("the teacher ")]
    assert "no better than" in note
