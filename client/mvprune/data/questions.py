"""Questions over passages: the data of SQuAD 1.1 and 2.0.

Rajpurkar et al. 2016, https://arxiv.org/abs/1606.05250; Rajpurkar, Jia and Liang 2018, https://arxiv.org/abs/1806.03822.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mvprune.common.excerpts import listed, shown
from mvprune.data.reading import Reading, shared
from mvprune.data.tables import Table, flaw_of_text, read_table
from mvprune.data.tasks import Task
from mvprune.data.textfiles import DataError, check_file, read_bytes, suffix_of

_OF_ROWS = (".jsonl", ".ndjson", ".parquet")
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


def questions_in_file(path: Path) -> Iterator[Question]:
    """The questions of a file in SQuAD's own format, or of a table of rows as on the hub, by its suffix. Raises
    DataError."""
    if suffix_of(path) in _OF_ROWS:
        yield from _questions_in_table(read_table(path))
        return
    check_file(path)
    try:
        content = json.loads(read_bytes(path))
    except DataError:
        raise
    except json.JSONDecodeError as error:
        message = f"broken JSON ({error.msg} at column {error.colno}); questions come in SQuAD's own format"
        raise DataError(path, message, line=error.lineno) from error
    except (ValueError, RecursionError) as error:
        raise DataError(path, "this is not a JSON file in UTF-8; questions come in SQuAD's own format") from error
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
        found = f"{error} is missing" if isinstance(error, KeyError) else "an object or a list is something else"
        message = f"this is not SQuAD's format (data, paragraphs, qas, answers){after}: {found}"
        raise DataError(path, message) from error


def questions_in_rows(name: str, rows: Iterable[Mapping[str, Any]]) -> Iterator[Question]:
    """The questions of rows with id, question, context and answers (text, answer_start), as on the hub."""
    for number, row in enumerate(rows, 1):
        yield _question(row, name, number, "row")


def _questions_in_table(table: Table) -> Iterator[Question]:
    if missing := [name for name in _COLUMNS if name not in table.columns]:
        raise DataError(table.path, f"there is no column {listed(missing)}; the columns {_NEEDED} are needed")
    for line, cells in table.rows(_COLUMNS):
        if isinstance(cells, str):
            raise DataError(table.path, cells, line=line, unit=table.unit)
        yield _question(dict(zip(_COLUMNS, cells, strict=True)), table.path, line, table.unit)


def _question(row: Mapping[str, Any], path: Path | str, line: int, unit: str) -> Question:
    try:
        answers = tuple(zip(row["answers"]["text"], row["answers"]["answer_start"], strict=True))
        return Question(row["id"], row["question"], row["context"], answers)
    except (KeyError, TypeError, ValueError) as error:
        message = f"the columns {_NEEDED} are needed, answers with the lists text and answer_start, equally long"
        raise DataError(path, message, line=line, unit=unit) from error


def read_questions(
    task: Task,
    train_name: Path | str,
    train: Iterator[Question],
    validation_name: Path | str,
    validation: Iterator[Question],
) -> QuestionAnsweringData:
    """The data of a task, checked.

    Raises:
        DataError: what is wrong, in which split and at which question.
    """
    splits = _checked(task, train_name, train), _checked(task, validation_name, validation)
    notes = shared(*([(question.question, question.context) for question in split] for split in splits))
    return QuestionAnsweringData(task, *splits, notes=tuple(notes))


def read_validation_questions(task: Task, name: Path | str, questions: Iterator[Question]) -> QuestionAnsweringData:
    """Questions to evaluate a model on, checked; there is nothing to train on. Raises DataError."""
    return QuestionAnsweringData(task, (), _checked(task, name, questions))


def _checked(task: Task, path: Path | str, questions: Iterator[Question]) -> tuple[Question, ...]:
    kept = tuple(questions)
    for question in kept:
        which = f"question {shown(question.id)}"
        texts = [("the id", question.id), ("the question", question.question), ("the context", question.context)]
        for name, text in [*texts, *(("an answer", text) for text, _ in question.answers)]:
            if flaw := flaw_of_text(text):
                raise DataError(path, f"{name} of {which} {flaw}")
        if not question.answers and not task.allows_no_answer:
            advice = "the task squad_v2 takes questions without"
            raise DataError(path, f"{which} has no answer; the task {task.name} needs one, {advice}")
        for text, start in question.answers:
            if not _stands_at(question.context, text, start):
                raise DataError(path, _misplaced(kept, question, text, start))
    if not kept:
        raise DataError(path, "there are no questions")
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
