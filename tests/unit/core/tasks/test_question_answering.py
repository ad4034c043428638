from __future__ import annotations

import json
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
from transformers import BertForQuestionAnswering, BertModel

from mvprune.data.loading import Question, QuestionAnsweringData
from mvprune.data.tasks import get_task
from mvprune_core import CompressionError, Reason, Teacher, Training, compress, load_task
from mvprune_core.models.loading import find_model, load_model
from mvprune_core.tasks import objective_for
from mvprune_core.tasks.metrics import answer_metrics, exact_match, token_f1
from mvprune_core.tasks.spans import ANSWER_TOKENS, Span, best_of_windows, best_spans


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


@pytest.mark.slow
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
        training=Training(max_steps=60, batch_size=32, learning_rate=1e-2, max_length=32),
    )
    assert result.primary_metric == "f1"
    assert result.metrics["dense/exact_match"] > 0.9
    assert result.metrics["eval/exact_match"] > 0.9
    assert result.save(tmp_path / "artifact").metrics["eval/f1"] == result.metrics["eval/f1"]


def test_a_model_with_too_few_positions_is_invalid(
    save: Callable[..., Path], bert_config: Callable[..., Any], squad: QuestionAnsweringData
) -> None:
    folder = save(BertModel(bert_config(max_position_embeddings=23)))
    with pytest.raises(CompressionError, match="at least 24 tokens for question-answering, got 23") as e:
        compress(folder, squad, density=0.5, dense_baseline=False)
    assert e.value.reason is Reason.INVALID_MODEL
    with pytest.raises(ValueError, match=r"training\.max_length must be at least 24 for question-answering, got 20"):
        compress(folder, squad, method="magnitude", density=0.5, training=Training(max_length=20), dense_baseline=False)


def test_a_teacher_that_cuts_passages_elsewhere_is_refused(
    save: Callable[..., Path], bert_config: Callable[..., Any], squad: QuestionAnsweringData
) -> None:
    long = QuestionAnsweringData(squad.task, questions(40, 3, length=80), squad.validation)
    student = save(BertModel(bert_config()))
    teacher = save(BertForQuestionAnswering(bert_config(max_position_embeddings=40)), "teacher")
    with pytest.raises(CompressionError, match="must read the same tokens as the student") as raised:
        compress(student, long, density=0.5, teacher=Teacher(teacher), dense_baseline=False)
    assert raised.value.reason is Reason.INVALID_MODEL


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


@pytest.mark.parametrize(("answer", "begin"), [(" good bad", 5), ("good bad ", 6), (" good bad ", 5)])
def test_white_space_around_an_answer_has_no_token(
    model_folder: Path, squad: QuestionAnsweringData, answer: str, begin: int
) -> None:
    question = Question("1", "word1", "word2 good bad word3", ((answer, begin),))
    objective = objective_for(QuestionAnsweringData(squad.task, (question,), (question,)))
    loaded = load_model(find_model(model_folder, None), objective, seed=0)
    examples = objective.training_examples(loaded.tokenizer, loaded.config, 32)
    (ids,) = examples.inputs["input_ids"]
    (start,), (end,) = examples.targets["start_positions"], examples.targets["end_positions"]
    assert loaded.tokenizer.decode(ids[start : end + 1]) == "good bad"


def test_best_spans_are_in_the_passage_in_order_and_short() -> None:
    begins = np.array([-1, -1, 0, 4, 8, -1], dtype=np.int32)
    ends = np.array([-1, -1, 3, 7, 11, -1], dtype=np.int32)
    start_logits = np.array([9.0, 9.0, 0.0, 3.0, 1.0, 9.0, 9.0])  # one token of padding
    end_logits = np.array([9.0, 9.0, 4.0, 0.0, 2.0, 9.0, 9.0])
    assert best_spans(start_logits, end_logits, begins, ends, 3) == [Span(5, 4, 11), Span(4, 0, 3), Span(3, 4, 7)]
    assert len(best_spans(start_logits, end_logits, begins, ends, 99)) == 6
    assert best_spans(start_logits, end_logits, begins[:2], ends[:2], 3) == []
    begins = np.arange(80, dtype=np.int32)
    start_logits, end_logits = np.zeros(80), np.zeros(80)
    start_logits[0] = end_logits[79] = 5.0
    (span,) = best_spans(start_logits, end_logits, begins, begins + 1, 1)
    assert span.end - span.begin <= ANSWER_TOKENS
    assert span.score == 5.0


@settings(max_examples=60)
@given(data=st.data(), tokens=st.integers(1, 15))
def test_best_spans_are_those_of_a_search_over_all(data: st.DataObject, tokens: int) -> None:
    logits = st.lists(st.integers(-50, 50), min_size=tokens, max_size=tokens).map(np.array)
    starts, stops = data.draw(logits), data.draw(logits)
    inside = data.draw(st.lists(st.booleans(), min_size=tokens, max_size=tokens))
    begins = np.where(inside, np.arange(tokens) * 2, -1).astype(np.int32)
    every = sorted(
        (int(starts[i] + stops[j]) for i in range(tokens) for j in range(i, tokens) if inside[i] and inside[j]),
        reverse=True,
    )
    assert [span.score for span in best_spans(starts, stops, begins, begins + 1, 5)] == every[:5]


def test_the_same_span_in_two_windows_counts_once_by_its_better_score() -> None:
    windows = [(1.0, [Span(5.0, 4, 11), Span(2.0, 0, 3)]), (7.0, [Span(6.0, 4, 11), Span(4.0, 20, 30)])]
    assert best_of_windows(windows, 9, allows_no_answer=False) == [Span(6, 4, 11), Span(4, 20, 30), Span(2, 0, 3)]
    assert best_of_windows(windows, 2, allows_no_answer=False) == [Span(6, 4, 11), Span(4, 20, 30)]
    assert best_of_windows([], 2, allows_no_answer=False) == []


def test_no_answer_is_the_answer_where_every_window_says_so() -> None:
    spans = [Span(5.0, 4, 11)]
    assert best_of_windows([(9.0, spans), (5.5, [])], 1, allows_no_answer=True) == [Span(5.5, 0, 0)]
    assert best_of_windows([(9.0, spans), (4.5, [])], 2, allows_no_answer=True) == [Span(5, 4, 11), Span(4.5, 0, 0)]
    assert best_of_windows([(9.0, spans), (5.0, [])], 1, allows_no_answer=True) == spans, "threshold 0"
    assert best_of_windows([(1.0, [])], 1, allows_no_answer=True) == [Span(1.0, 0, 0)]


class _Said(torch.nn.Module):
    """Says what it was told to, window by window, in 16 bits."""

    def __init__(self, starts: torch.Tensor, ends: torch.Tensor) -> None:
        super().__init__()
        self.said = {len(row): (row, end) for row, end in zip(starts, ends, strict=True)}

    def forward(self, attention_mask: torch.Tensor, **_: Any) -> SimpleNamespace:
        logits = [[self.said[int(length)][part] for length in attention_mask.sum(1)] for part in (0, 1)]
        padded = [torch.nn.utils.rnn.pad_sequence(rows, batch_first=True) for rows in logits]
        return SimpleNamespace(start_logits=padded[0].bfloat16(), end_logits=padded[1].bfloat16())


def test_unanswerable_questions_are_measured_as_officially(tokenizer: Any) -> None:
    split = (
        Question("a", "word1", "good word2", (("good", 0), ("the", 0))),
        Question("b", "word1", "good word2 word3", ()),
        Question("c", "word1", "good word2 word3 word4", ()),
        Question("d", "word1", "good word2 word3 word4 word5", (("word5", 23),)),
    )
    task = get_task("squad_v2")
    objective = objective_for(QuestionAnsweringData(task, split, split))
    training = objective.training_examples(tokenizer, None, 32)
    assert training.targets["start_positions"].tolist() == [3, 0, 0, 7]
    examples = objective.validation_examples(tokenizer, None, 32)
    starts = [torch.zeros(length) for length in examples.lengths]
    ends = [torch.zeros(length) for length in examples.lengths]
    starts[0][3] = ends[0][3] = 2.0  # "good": right
    starts[1][0] = ends[1][0] = 2.0  # no answer: right
    starts[2][3] = ends[2][4] = 2.0  # "good word2": wrong, there is none
    starts[3][0] = ends[3][0] = 2.0  # no answer: wrong
    model = _Said(starts, ends)
    metrics = objective.measure(objective.predict(model, examples, torch.device("cpu")))
    assert metrics == {"exact_match": 0.5, "f1": 0.5, "has_ans_f1": 0.5, "no_ans_f1": 0.5}
    assert set(metrics) == set(task.metrics)
    assert not model.training
    best = objective.spans(model, examples, torch.device("cpu"), count=3)
    assert best[0][0] == Span(4.0, 0, 4)
    assert best[3][0] == Span(4.0, 0, 0)
    assert [len(spans) for spans in best] == [3, 3, 3, 3]
    one = objective_for(QuestionAnsweringData(get_task("squad"), split[:1], split[:1]))
    assert one.measure(one.predict(model, one.validation_examples(tokenizer, None, 32), torch.device("cpu"))) == {
        "exact_match": 1.0,
        "f1": 1.0,
    }


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


@pytest.mark.parametrize(
    ("prediction", "answers", "exact", "f1"),
    [
        ("", [], 1.0, 1.0),
        ("the", [], 1.0, 1.0),
        ("Denver", [], 0.0, 0.0),
        ("", ["Denver"], 0.0, 0.0),
        ("Denver", ["Broncos", "Denver Broncos"], 0.0, 2 / 3),
        ("the", ["a"], 1.0, 1.0),
        ("", ["a", "Denver"], 0.0, 0.0),
    ],
)
def test_official_measures_of_squad_2(prediction: str, answers: list[str], exact: float, f1: float) -> None:
    metrics = answer_metrics([prediction], [answers], allows_no_answer=True)
    assert metrics == {"exact_match": exact, "f1": pytest.approx(f1)}


WORDS = st.lists(st.sampled_from(["good", "bad", "great", "word1", "word2", "unseen"]), min_size=1, max_size=40)


@pytest.mark.slow
@settings(max_examples=40)
@given(words=WORDS, data=st.data(), length=st.integers(24, 48))
def test_targets_point_at_the_answer(tokenizer: Any, words: list[str], data: st.DataObject, length: int) -> None:
    first = data.draw(st.integers(0, len(words) - 1))
    last = data.draw(st.integers(first, min(first + 4, len(words) - 1)))
    begin = len(" ".join(["", *words[:first]]))
    answer = " ".join(words[first : last + 1])
    question = Question("q", "word1 word2", " ".join(words), ((answer, begin),))
    objective = objective_for(QuestionAnsweringData(get_task("squad"), (question,), (question,)))
    examples = objective.training_examples(tokenizer, None, length)
    windows = objective.validation_examples(tokenizer, None, length)
    found = []
    for index in range(len(examples)):
        start, end = (int(examples.targets[f"{name}_positions"][index]) for name in ("start", "end"))
        if start > 0:
            characters = windows.notes["begin"][index][start], windows.notes["end"][index][end]
            found.append(question.context[slice(*characters)])
    assert found
    assert set(found) == {answer}


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
        ('{"data": [', r"train\.json, line 1: the file must be JSON in SQuAD's format"),
        ('{"data": [{"title": "t"}]}', "must be in SQuAD's format"),
        ("[]", "must be in SQuAD's format"),
        ('{"data": []}', "the questions must be at least 1, got 0"),
    ],
)
def test_broken_files_are_named(squad: QuestionAnsweringData, tmp_path: Path, content: str, words: str) -> None:
    validation = as_file(tmp_path / "dev.json", squad.validation)
    (tmp_path / "train.json").write_text(content)
    with pytest.raises(CompressionError, match=words) as raised:
        load_task("squad", train=tmp_path / "train.json", validation=validation)
    assert raised.value.reason is Reason.INVALID_DATASET


@pytest.mark.parametrize(
    ("answers", "words"),
    [((), "must have an answer for the task squad, got none"), ((("good", 3),), "got 3"), ((("good", -1),), "got -1")],
)
def test_answers_must_stand_in_the_passage(
    squad: QuestionAnsweringData, tmp_path: Path, answers: tuple[tuple[str, int], ...], words: str
) -> None:
    wrong = (Question("q7", "word1", "good word2", answers),)
    train, validation = as_file(tmp_path / "train.json", wrong), as_file(tmp_path / "dev.json", squad.validation)
    with pytest.raises(CompressionError, match=rf"'q7'.* {words}"):
        load_task("squad", train=train, validation=validation)
