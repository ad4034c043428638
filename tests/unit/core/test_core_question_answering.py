from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertModel

from mvprune.tasks import get_task
from mvprune_core import CompressionError, Reason, Training, compress, load_task
from mvprune_core.metrics import exact_match, token_f1
from mvprune_core.models import find_model, load_model
from mvprune_core.squad import Question, QuestionAnsweringData
from mvprune_core.tasks import objective_for
from mvprune_core.tasks.question_answering import best_span


def questions(count: int, seed: int, length: int = 6) -> tuple[Question, ...]:
    """The answer is the one word of judgement in the passage."""
    source = random.Random(seed)
    made = []
    for number in range(count):
        words = [f"word{source.randrange(20)}" for _ in range(length)]
        answer = source.choice(("good", "bad"))
        words.insert(source.randrange(len(words) + 1), answer)
        context = " ".join(words)
        made.append(Question(str(number), "word1 word2", context, ((answer, context.index(answer)),)))
    return tuple(made)


@pytest.fixture
def squad() -> QuestionAnsweringData:
    return QuestionAnsweringData(get_task("squad"), questions(300, 1), questions(60, 2))


def as_file(path: Path, split: tuple[Question, ...]) -> Path:
    paragraphs = [
        {
            "context": item.context,
            "qas": [
                {
                    "id": item.id,
                    "question": item.question,
                    "answers": [{"text": text, "answer_start": start} for text, start in item.answers],
                }
            ],
        }
        for item in split
    ]
    path.write_text(json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}))
    return path


def test_compresses_and_answers(
    save: Callable[..., Path], bert_config: Callable[..., Any], squad: QuestionAnsweringData, tmp_path: Path
) -> None:
    torch.manual_seed(1)
    folder = save(BertModel(bert_config()))
    result = compress(
        folder,
        squad,
        method="magnitude",
        density=0.5,
        training=Training(max_steps=100, batch_size=32, learning_rate=5e-3, max_length=32),
    )
    assert result.primary_metric == "f1"
    assert result.metrics["dense/exact_match"] > 0.9
    assert result.metrics["eval/exact_match"] > 0.9
    assert result.save(tmp_path / "artifact").metrics["eval/f1"] == result.metrics["eval/f1"]


def test_long_passages_become_overlapping_windows_that_hold_every_token(
    model_folder: Path, squad: QuestionAnsweringData
) -> None:
    long = QuestionAnsweringData(squad.task, questions(40, 3, length=80), squad.validation)
    objective = objective_for(long)
    loaded = load_model(find_model(model_folder, None), objective, seed=0)
    examples = objective.training_examples(loaded.tokenizer, loaded.config, 32)
    assert examples.lengths.max() == 32
    assert len(examples) > 3 * 40
    starts, ends = examples.targets["start_positions"], examples.targets["end_positions"]
    answered = {4: 0, 7: 0}  # ids of good and bad
    for index, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        if start > 0:
            assert start == end
            answered[int(examples.inputs["input_ids"][index][start])] += 1
    assert sum(answered.values()) >= 40, "every answer is in some window"
    assert min(answered.values()) > 0


def test_best_span_is_in_the_passage_in_order_and_short() -> None:
    spans = np.array([[-1, -1], [-1, -1], [0, 3], [4, 7], [8, 11], [-1, -1]], dtype=np.int32)
    starts = np.array([9.0, 9.0, 0.0, 3.0, 1.0, 9.0, 9.0])  # one token of padding
    ends = np.array([9.0, 9.0, 4.0, 0.0, 2.0, 9.0, 9.0])
    assert best_span(starts, ends, spans) == (5.0, 4, 11)
    assert best_span(starts, ends, spans[:2]) is None
    far = np.array([[index, index + 1] for index in range(80)], dtype=np.int32)
    starts, ends = np.zeros(80), np.zeros(80)
    starts[0] = ends[79] = 5.0
    score, begin, end = best_span(starts, ends, far) or (0, 0, 0)
    assert end - begin <= 30
    assert score == 5.0


@pytest.mark.parametrize(
    ("prediction", "answer", "exact", "f1"),
    [
        ("The Denver Broncos!", "denver broncos", 1.0, 1.0),
        ("Broncos", "Denver Broncos", 0.0, 2 / 3),
        ("a b c", "c b d", 0.0, 0.8),
        ("", "Denver", 0.0, 0.0),
        ("the", "a", 1.0, 0.0),
    ],
)
def test_official_measures(prediction: str, answer: str, exact: float, f1: float) -> None:
    assert exact_match(prediction, answer) == exact
    assert token_f1(prediction, answer) == pytest.approx(f1)


def test_files_in_the_official_format(squad: QuestionAnsweringData, tmp_path: Path) -> None:
    (tmp_path / "SQuAD").mkdir()
    train = as_file(tmp_path / "SQuAD" / "train-v1.1.json", squad.train)
    validation = as_file(tmp_path / "SQuAD" / "dev-v1.1.json", squad.validation)
    found = load_task("squad", data_root=tmp_path)
    assert found == squad
    assert found.fingerprint == squad.fingerprint
    assert load_task("squad", train=train, validation=validation) == squad
    other = QuestionAnsweringData(squad.task, squad.train[:-1], squad.validation)
    assert other.fingerprint != squad.fingerprint


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"data": [', r"train\.json, line 1: broken JSON"),
        ('{"data": [{"title": "t"}]}', "not SQuAD's format"),
        ("[]", "not SQuAD's format"),
        ('{"data": []}', "no questions"),
    ],
)
def test_broken_files_are_named(squad: QuestionAnsweringData, tmp_path: Path, content: str, words: str) -> None:
    validation = as_file(tmp_path / "dev.json", squad.validation)
    (tmp_path / "train.json").write_text(content)
    with pytest.raises(CompressionError, match=words) as raised:
        load_task("squad", train=tmp_path / "train.json", validation=validation)
    assert raised.value.reason is Reason.INVALID_DATASET


@pytest.mark.parametrize(
    ("answers", "words"), [((), "no answer"), ((("good", 3),), "is not at 3"), ((("good", -1),), "is not at -1")]
)
def test_answers_must_stand_in_the_passage(
    squad: QuestionAnsweringData, tmp_path: Path, answers: tuple[tuple[str, int], ...], words: str
) -> None:
    wrong = (Question("q7", "word1", "good word2", answers),)
    train, validation = as_file(tmp_path / "train.json", wrong), as_file(tmp_path / "dev.json", squad.validation)
    with pytest.raises(CompressionError, match=rf"'q7'.* {words}"):
        load_task("squad", train=train, validation=validation)
