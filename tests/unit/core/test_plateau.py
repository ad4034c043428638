"""Runs that are far too short: their results are near a constant answer, or their losses did not fall."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
from mvprune_core import Magnitude, Schedule, Training, compress
from mvprune_core.runs.plateau import above_constant, notes_on_loss, notes_on_result
from mvprune_core.tasks import objective_for
from mvprune_core.tasks.batching import IGNORED, Examples

UNKNOWN = "no dense model was evaluated, so it is not known how much of its accuracy the result keeps"
ASKED = (Question("a", "who?", "the cat", (("cat", 4),)), Question("b", "who?", "a house", ()))
TAGS = TaggedSplit([["a", "b", "c"], ["d", "e"]], [[0, 1, 0], [0, 1]])


def examples(number: int, **notes: Any) -> Examples:
    ids = [np.array([2, 3], dtype=np.int32)] * number
    return Examples({"input_ids": ids}, {}, pad_token=0, notes=notes)


@pytest.mark.slow
def test_a_run_that_is_far_too_short_says_so(
    model_folder: Path, data: ClassificationData, save: Callable[..., Path]
) -> None:
    short = Training(max_steps=10, batch_size=8, learning_rate=1e-9)
    result = compress(model_folder, data, method="magnitude", density=0.05, training=short, dense_baseline=False)
    assert sum("of a constant answer" in note for note in result.notes) == 1
    assert result.metrics["above_constant"] < 1 / math.sqrt(len(data.validation))
    enough = Training(max_steps=120, batch_size=32, learning_rate=5e-3)
    good = compress(model_folder, data, method="soft_movement", density=0.3, training=enough, dense_baseline=False)
    assert not any("constant answer" in note or "did not fall" in note for note in good.notes)
    labels = np.bincount(data.validation.labels)
    usual = labels.max() / len(data.validation)
    assert good.metrics["above_constant"] == pytest.approx(good.metrics["eval/accuracy"] - usual)
    assert UNKNOWN in good.notes

    dense = save(good.model, "dense")  # whose gain over a constant answer is known, and which no run trains again
    few = Training(max_steps=10, batch_size=8, learning_rate=1e-4)
    for shape, density in (("events", 0.08), ("cubic", 0.08), ("events", 0.95)):  # 46, 40 and 100 % are kept
        method = Magnitude(schedule=Schedule(shape, cooldown=0.1))  # type: ignore[arg-type]
        lost = compress(dense, data, method=method, density=density, training=few, teacher=None)
        notes = [note for note in lost.notes if "constant answer" in note or note == UNKNOWN]
        kept = lost.metrics["above_constant"] / (lost.metrics["dense/accuracy"] - usual)
        assert 0.2 < kept < 0.6 if density < 0.5 else kept > 0.8, "far from two thirds and from chance on any machine"
        assert [note.startswith(f"the result keeps {kept:.0%} of the dense model's gain") for note in notes] == (
            [True] if density < 0.5 else []
        )


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
    dense: Any = {"is_pruned": False, "remedy": "this helps"}
    assert len(list(notes_on_result(task, {name: best + 0.05}, constants, 100, **dense))) == 1
    assert not list(notes_on_result(task, {name: best + 0.05}, constants, 10_000, **dense))
    assert above_constant(task, {name: 1.0}, []) is None
    words, unigram = get_task("masked-lm"), [{"perplexity": 100.0, "accuracy": 0.1}]
    assert above_constant(words, {"perplexity": 60.0}, unigram) == (40.0, 100.0)
    [near] = notes_on_result(words, {"perplexity": 96.0}, unigram, 10, **dense)
    [worse] = notes_on_result(
        words, {"perplexity": 500.0}, unigram, 10, {"perplexity": 5.0}, is_pruned=True, remedy="this helps"
    )
    assert "the perplexity 96.0000, near 100.0000 of a constant answer" in near
    assert "the perplexity 500.0000, worse than 100.0000 of a constant answer (dense model 5.0000)" in worse
    assert not list(notes_on_result(words, {"perplexity": 60.0}, unigram, 10, **dense))


PAIRS = [{"accuracy": 0.6, "f1": 0.0}, {"accuracy": 0.4, "f1": 0.5}]
KEPT_LITTLE = (
    "{:.0%} of the dense model's gain over a constant answer: the {} is {:.4f} (dense model {:.4f}, constant answer"
)


@pytest.mark.parametrize(
    ("task", "value", "dense", "constants", "note"),
    [
        ("mrpc", 0.74, 0.84, PAIRS, KEPT_LITTLE.format(0.14 / 0.24, "accuracy", 0.74, 0.84)),
        ("mrpc", 0.77, 0.84, PAIRS, KEPT_LITTLE.format(0.17 / 0.24, "accuracy", 0.77, 0.84)),
        ("mrpc", 0.82, 0.84, PAIRS, ""),
        ("mrpc", 0.65, 0.649, PAIRS, ""),  # the dense model has no gain, but nothing is lost
        ("mrpc", 0.64, 0.649, PAIRS, "the dense model is hardly better than a constant answer"),
        ("mrpc", 0.64, 0.6, PAIRS, ""),
        ("stsb", 0.4, 0.632, [{"pearson": 0.0}], KEPT_LITTLE.format(0.4 / 0.632, "pearson", 0.4, 0.632)),
        (
            "stsb",
            0.4,
            None,
            [{"pearson": 0.0}],
            "no dense model was evaluated, so it is not known how much of its pearson",
        ),
        ("stsb", 0.02, -0.3, [{"pearson": 0.0}], ""),
        ("ner", 0.5, 0.9, [{"f1": 0.0}], KEPT_LITTLE.format(0.5 / 0.9, "f1", 0.5, 0.9)),
        ("squad", 0.5, 0.7, [{"f1": 0.2}], KEPT_LITTLE.format(0.6, "f1", 0.5, 0.7)),
        # ln(100 / 25) / ln(100 / 5): of 95 points of perplexity 75 are kept, but of the loss less than half
        ("masked-lm", 25.0, 5.0, [{"perplexity": 100.0}], KEPT_LITTLE.format(0.463, "perplexity", 25.0, 5.0)),
        ("masked-lm", 10.0, 5.0, [{"perplexity": 100.0}], ""),
        ("masked-lm", 90.0, 96.0, [{"perplexity": 100.0}], ""),
        ("masked-lm", 98.0, 97.0, [{"perplexity": 104.0}], ""),
        ("masked-lm", 98.0, 100.0, [{"perplexity": 104.0}], ""),
    ],
)
def test_a_result_far_below_the_dense_model_says_so(
    task: str, value: float, dense: float | None, constants: Sequence[dict[str, float]], note: str
) -> None:
    named, count = get_task(task), 10_000
    of_dense = None if dense is None else {named.primary_metric: dense}
    result = {named.primary_metric: value}
    found = list(notes_on_result(named, result, constants, count, of_dense, is_pruned=True, remedy="this helps"))
    assert [note in text for text in found if "near" not in text] == ([True] if note else []), found
    assert (
        not list(notes_on_result(named, result, constants, count, of_dense, is_pruned=False, remedy=""))
        or task == "masked-lm"
    )


@pytest.mark.parametrize(
    ("losses", "count"),
    [(torch.linspace(1, 0.5, 40), 0), (torch.linspace(0.7, 0.7, 40), 1), (torch.linspace(0.7, 0.9, 10), 0)],
)
def test_a_loss_that_did_not_fall(losses: torch.Tensor, count: int) -> None:
    steps = tuple(range(1, len(losses) + 1))
    curve = Phase("pruning", len(steps), steps, tuple(losses.tolist()), (1.0,) * len(steps), ())
    assert len(list(notes_on_loss(curve, "this helps"))) == count
