"""Extractive question answering: questions over passages, the data of SQuAD 1.1 and 2.0.

Rajpurkar et al. 2016, https://arxiv.org/abs/1606.05250; Rajpurkar, Jia and Liang 2018, https://arxiv.org/abs/1806.03822.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from mvprune.common.excerpts import listed, shown
from mvprune.data.columns import Columns
from mvprune.data.kinds.base import Kind, Task
from mvprune.data.reading import Reading, shared
from mvprune.data.tables import Table, flaw_of_text
from mvprune.data.textfiles import DataError, check_file, read_bytes

_COLUMNS = ("id", "question", "context", "answers")
_NEEDED = "id, question, context and answers"


@dataclass(frozen=True)
class Question:
    """One question and its passage.

    Attributes:
        id: the question's name in its data set.
        question: the question.
        context: the passage.
        answers: those that people gave, (text, its first character in the passage); () where the passage has none.
    """

    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class QuestionAnsweringData(Reading):
    """A task's questions, checked: every answer stands in its passage where it is said to.

    Attributes:
        task: the task.
        train: questions to train on, by their first answer.
        validation: questions to evaluate on.
    """

    task: Task
    train: tuple[Question, ...]
    validation: tuple[Question, ...]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of both splits."""
        digest = hashlib.sha256()
        for split in (self.train, self.validation):
            for question in split:
                digest.update(json.dumps(astuple(question), separators=(",", ":")).encode())
            digest.update(b"\n")
        return digest.hexdigest()


@dataclass(frozen=True)
class Questions:
    """Questions as they are read, once, from a file or from the data set called `path`."""

    path: Path | str
    questions: Iterator[Question]


class QuestionAnswering(Kind[Questions]):
    """The span of a passage that answers a question.

    Files are in SQuAD's JSON or tables of rows as on the hub, with id, question, context and answers (text,
    answer_start).
    """

    name: ClassVar[str] = "question-answering"
    head: ClassVar[str] = "QuestionAnswering"
    pipeline: ClassVar[str] = "question-answering"
    columns: ClassVar[tuple[str, ...]] = ()
    tables: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson", ".parquet")
    has_windows: ClassVar[bool] = True
    min_tokens: ClassVar[int] = 24  # the end of a question and some of its context

    def read_other(self, path: Path, columns: Columns) -> Questions:
        """The questions of a file in SQuAD's own format."""
        return Questions(path, _in_file(path))

    def read_table(self, table: Table, columns: Columns) -> Questions:
        return Questions(table.path, _in_table(table))

    def check_examples(self, task: Task, source: Questions, columns: Columns) -> None:
        _checked(task, source)

    def data(
        self, task: Task, train: Questions, validation: Questions, columns: Columns, more: Mapping[str, Questions]
    ) -> QuestionAnsweringData:
        splits = _checked(task, train), _checked(task, validation)
        notes = shared(*([(question.question, question.context) for question in split] for split in splits))
        return QuestionAnsweringData(task, *splits, notes=tuple(notes))

    def validation_data(
        self, task: Task, validation: Questions, columns: Columns, labels: Sequence[str]
    ) -> QuestionAnsweringData:
        return QuestionAnsweringData(task, (), _checked(task, validation))


def _in_file(path: Path) -> Iterator[Question]:
    """The questions of a file in SQuAD's own format. Raises DataError."""
    check_file(path)
    try:
        content = json.loads(read_bytes(path))
    except DataError:
        raise
    except json.JSONDecodeError as error:
        message = f"the file must be JSON in SQuAD's format, got {error.msg} at column {error.colno}"
        raise DataError(path, message, line=error.lineno) from error
    except (ValueError, RecursionError) as error:
        raise DataError(path, "the file must be JSON in SQuAD's format and in UTF-8, got something else") from error
    after = ""
    try:
        for article in content["data"]:
            for paragraph in article["paragraphs"]:
                for entry in paragraph["qas"]:
                    after = f", after question {shown(entry['id'])}"
                    given = [] if entry.get("is_impossible") else entry["answers"]
                    answers = tuple((answer["text"], answer["answer_start"]) for answer in given)
                    yield Question(entry["id"], entry["question"], paragraph["context"], answers)
    except (KeyError, TypeError, AttributeError) as error:
        found = f"no {error}" if isinstance(error, KeyError) else "something else in place of an object or a list"
        message = f"the file must be in SQuAD's format (data, paragraphs, qas, answers), got {found}{after}"
        raise DataError(path, message) from error


def _in_table(table: Table) -> Iterator[Question]:
    """The questions of rows with id, question, context and answers (text, answer_start), as on the hub."""
    if missing := [name for name in _COLUMNS if name not in table.columns]:
        raise DataError(table.path, f"the columns must be {_NEEDED}, got none called {listed(missing)}")
    for line, cells in table.rows(_COLUMNS):
        if isinstance(cells, str):
            raise table.error(line, cells)
        row: dict[str, Any] = dict(zip(_COLUMNS, cells, strict=True))
        try:
            answers = tuple(zip(row["answers"]["text"], row["answers"]["answer_start"], strict=True))
        except (KeyError, TypeError, ValueError) as error:
            message = f"the row must have {_NEEDED}, answers with the lists text and answer_start, equally long"
            raise table.error(line, message) from error
        yield Question(row["id"], row["question"], row["context"], answers)


def _checked(task: Task, found: Questions) -> tuple[Question, ...]:
    path, kept = found.path, tuple(found.questions)
    for question in kept:
        which = f"question {shown(question.id)}"
        texts = [("the id", question.id), ("the question", question.question), ("the context", question.context)]
        for name, text in [*texts, *(("an answer", text) for text, _ in question.answers)]:
            if flaw := flaw_of_text(text):
                raise DataError(path, f"{name} of {which} {flaw}")
        if not question.answers and not task.allows_no_answer:
            remedy = "the task squad_v2 takes questions without"
            raise DataError(path, f"{which} must have an answer for the task {task.name}, got none; {remedy}")
        for text, start in question.answers:
            if not _stands_at(question.context, text, start):
                raise DataError(path, _misplaced(kept, question, text, start))
    if not kept:
        raise DataError(path, "the questions must be at least 1, got 0")
    return kept


def _stands_at(context: str, text: str, start: object) -> bool:
    return type(start) is int and start >= 0 and context.startswith(text, start)


def _misplaced(questions: Iterable[Question], question: Question, text: str, start: object) -> str:
    """Why an answer is not where it is said to be, and what to do."""
    message = f"answer_start of question {shown(question.id)} must be where its answer begins, got {shown(start)}"
    places = [match.start() for match in re.finditer(re.escape(text), question.context)]
    if not places:
        return f"{message}; the context does not hold the answer {shown(text)}"
    message += f"; the answer {shown(text)} begins at {listed(map(str, places), limit=3)}"
    for unit, encoding, size in (("UTF-16 units", "utf-16-le", 2), ("UTF-8 bytes", "utf-8", 1)):
        if all(_stands_in(encoding, size, one.context, *answer) for one in questions for answer in one.answers):
            return f"{message}. All offsets of the file fit {unit}; convert them to characters (Unicode code points)"
    return f"{message}. Offsets count characters (Unicode code points) from 0, not UTF-16 units or bytes"


def _stands_in(encoding: str, size: int, context: str, text: str, start: object) -> bool:
    """Whether an answer is where `start` says, which counts units of `size` bytes of an encoding."""
    if type(start) is not int or start < 0:
        return False
    try:
        return context.encode(encoding).startswith(text.encode(encoding), start * size)
    except UnicodeEncodeError:
        return False


QUESTION_ANSWERING = QuestionAnswering()

TASKS = (
    Task(
        name="squad",
        kind=QUESTION_ANSWERING,
        description="the span of a passage that answers a question (SQuAD 1.1)",
        text_columns=("question", "context"),
        label_column="answers",
        metrics=("exact_match", "f1"),
        primary_metric="f1",
        hub_id="rajpurkar/squad",
        folder="SQuAD",
        train_file="train-v1.1*.json",
        validation_file="dev-v1.1*.json",
        max_length=384,
        paper_epochs=10.0,
        batch_size=16,
    ),
    Task(
        name="squad_v2",
        kind=QUESTION_ANSWERING,
        description="the same, or that the passage does not answer it (SQuAD 2.0)",
        text_columns=("question", "context"),
        label_column="answers",
        metrics=("exact_match", "f1", "has_ans_f1", "no_ans_f1"),
        primary_metric="f1",
        hub_id="rajpurkar/squad_v2",
        folder="SQuAD",
        train_file="train-v2.0*.json",
        validation_file="dev-v2.0*.json",
        allows_no_answer=True,
        max_length=384,
        paper_epochs=10.0,
        batch_size=16,
    ),
)
