"""Runs that are far too short: their results are near a constant answer, or their losses did not fall."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mvprune.artifact.history import Phase
from mvprune.data.loading import (
    ClassificationData,
    PassageData,
    Question,
    QuestionAnsweringData,
    TaggedSplit,
    TokenClassificationData,
)
from mvprune.data.tasks import get_task
from mvprune_core import Training, compress
from mvprune_core.batching import IGNORED, Examples
from mvprune_core.plateau import above_constant, notes_on_loss, notes_on_result
from mvprune_core.tasks import objective_for

ASKED = (Question("a", "who?", "the cat", (("cat", 4),)), Question("b", "who?", "a house", ()))
TAGS = TaggedSplit([["a", "b", "c"], ["d", "e"]], [[0, 1, 0], [0, 1]])


def examples(number: int, **notes: Any) -> Examples:
    ids = [np.array([2, 3], dtype=np.int32)] * number
    return Examples({"input_ids": ids}, {}, pad_token=0, notes=notes)


def test_a_run_that_is_far_too_short_says_so(model_folder: Path, data: ClassificationData) -> None:
    short = Training(max_steps=40, batch_size=8, learning_rate=1e-9)
    result = compress(model_folder, data, density=0.05, training=short, dense_baseline=False)
    assert sum("of a constant answer" in note for note in result.notes) == 1
    assert result.metrics["above_constant"] < 1 / math.sqrt(len(data.validation))
    enough = Training(max_steps=120, batch_size=32, learning_rate=5e-3)
    good = compress(model_folder, data, density=0.3, training=enough, dense_baseline=False)
    assert not any("constant answer" in note or "did not fall" in note for note in good.notes)
    labels = np.bincount(data.validation.labels)
    usual = labels.max() / labels.sum()
    assert good.metrics["above_constant"] == pytest.approx(good.metrics["eval/accuracy"] - usual)


def test_the_constant_answers_of_classes_are_the_usual_one_and_class_1(data: ClassificationData) -> None:
    labels = [0] * 7 + [1] * 3
    split = type(data.validation)(["x"] * 10, ["y"] * 10, labels)
    pairs = ClassificationData(get_task("mrpc"), ("no", "yes"), split, split)
    usual, one = objective_for(pairs).constant_metrics(examples(10))
    assert usual == {"accuracy": 0.7, "f1": 0.0}
    assert one == {"accuracy": pytest.approx(0.3), "f1": pytest.approx(6 / 13)}


def test_constant_answers_of_the_other_kinds(data: ClassificationData) -> None:
    split = type(data.validation)(["x"] * 3, ["y"] * 3, [1.0, 2.0, 5.0])
    values = ClassificationData(get_task("stsb"), (), split, split)
    assert objective_for(values).constant_metrics(examples(3)) == [{"pearson": 0.0, "spearman": 0.0}]
    questions = QuestionAnsweringData(get_task("squad_v2"), (), ASKED)
    [silent] = objective_for(questions).constant_metrics(examples(2))
    assert silent["f1"] == 0.5
    [outside] = objective_for(TokenClassificationData(get_task("ner"), ("O", "B-X"), TAGS, TAGS)).constant_metrics(
        examples(2)
    )
    assert (outside["f1"], outside["accuracy"]) == (0.0, 0.6)
    hidden = [np.array([IGNORED, 5, 5], dtype=np.int32), np.array([5, 7, IGNORED], dtype=np.int32)]
    passages = PassageData(get_task("masked-lm"), ("a",), ("a",))
    [unigram] = objective_for(passages).constant_metrics(examples(2, label=hidden))
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert unigram == {"perplexity": pytest.approx(math.exp(entropy)), "accuracy": 0.75}


def test_near_is_within_the_error_of_so_many_examples() -> None:
    task, constants = get_task("mrpc"), [{"accuracy": 0.7, "f1": 0.0}, {"accuracy": 0.3, "f1": 0.4}]
    name = task.primary_metric
    best = max(found[name] for found in constants)
    assert above_constant(task, {name: best + 0.05}, constants) == (pytest.approx(0.05), best)
    assert len(list(notes_on_result(task, {name: best + 0.05}, constants, 100))) == 1
    assert not list(notes_on_result(task, {name: best + 0.05}, constants, 10_000))
    assert above_constant(task, {name: 1.0}, []) is None
    words, unigram = get_task("masked-lm"), [{"perplexity": 100.0, "accuracy": 0.1}]
    assert above_constant(words, {"perplexity": 60.0}, unigram) == (40.0, 100.0)
    [near] = notes_on_result(words, {"perplexity": 96.0}, unigram, 10)
    [worse] = notes_on_result(words, {"perplexity": 500.0}, unigram, 10)
    assert "the perplexity 96.0000, near 100.0000 of a constant answer" in near
    assert "the perplexity 500.0000, worse than 100.0000 of a constant answer" in worse
    assert not list(notes_on_result(words, {"perplexity": 60.0}, unigram, 10))


@pytest.mark.parametrize(
    ("losses", "count"),
    [(torch.linspace(1, 0.5, 40), 0), (torch.linspace(0.7, 0.7, 40), 1), (torch.linspace(0.7, 0.9, 10), 0)],
)
def test_a_loss_that_did_not_fall(losses: torch.Tensor, count: int) -> None:
    steps = tuple(range(1, len(losses) + 1))
    curve = Phase("pruning", len(steps), steps, tuple(losses.tolist()), (1.0,) * len(steps), ())
    assert len(list(notes_on_loss(curve))) == count
