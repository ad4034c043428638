"""Questions over passages: the data of SQuAD 1.1 (Rajpurkar et al. 2016, https://arxiv.org/abs/1606.05250)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from mvprune.data import DataError
from mvprune.tasks import Task

FOLDER = "SQuAD"
_SUFFIX = ".json"


@dataclass(frozen=True)
class Question:
    """One question, its passage, and the answers that people gave: (text, its first character in the passage)."""

    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class QuestionAnsweringData:
    """A task's questions, checked: every answer stands in its passage where it is said to.

    Attributes:
        task: the task.
        train: questions to train on, by their first answer.
        validation: questions to evaluate on.
    """

    task: Task
    train: tuple[Question, ...]
    validation: tuple[Question, ...]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of both splits."""
        digest = hashlib.sha256()
        for split in (self.train, self.validation):
            for question in split:
                digest.update(json.dumps(astuple(question), separators=(",", ":")).encode())
            digest.update(b"\n")
        return digest.hexdigest()


def find_question_files(root: Path) -> tuple[Path, Path] | None:
    """The train and dev files under `root`/SQuAD, as in `train-v1.1.json`; None if they are not there."""
    train, validation = (
        sorted(path for path in (root / FOLDER).glob(f"{part}-v1.1*{_SUFFIX}") if path.is_file())
        for part in ("train", "dev")
    )
    return (train[0], validation[0]) if train and validation else None


def load_question_files(task: Task, train: Path, validation: Path) -> QuestionAnsweringData:
    """Reads two files in SQuAD's own format.

    Raises:
        DataError: what is wrong, in which file and at which question.
    """
    return QuestionAnsweringData(task, _checked(train, _in_file(train)), _checked(validation, _in_file(validation)))


def load_question_rows(
    task: Task, train: Iterable[Mapping[str, Any]], validation: Iterable[Mapping[str, Any]], *, name: str
) -> QuestionAnsweringData:
    """The same from rows with id, question, context and answers (text, answer_start), as on the hub.

    Args:
        task: the task.
        train: rows.
        validation: rows.
        name: the data set's name, for errors.

    Raises:
        DataError: what is wrong, in which split and at which question.
    """
    train_name, validation_name = f"{name} (train)", f"{name} (validation)"
    return QuestionAnsweringData(
        task,
        _checked(train_name, _in_rows(train_name, train)),
        _checked(validation_name, _in_rows(validation_name, validation)),
    )


def _in_file(path: Path) -> Iterator[Question]:
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(path, f"the file cannot be read ({error.strerror})") from error
    except json.JSONDecodeError as error:
        raise DataError(path, f"broken JSON ({error.msg} at column {error.colno})", line=error.lineno) from error
    except (ValueError, RecursionError) as error:
        raise DataError(path, "this is not a JSON file in UTF-8") from error
    found = "?"
    try:
        for article in content["data"]:
            for paragraph in article["paragraphs"]:
                for entry in paragraph["qas"]:
                    found = str(entry["id"])[:80]
                    answers = tuple((answer["text"], answer["answer_start"]) for answer in entry["answers"])
                    yield Question(entry["id"], entry["question"], paragraph["context"], answers)
    except (KeyError, TypeError) as error:
        message = f"this is not SQuAD's format (data, paragraphs, qas, answers), after question {found!r}: {error}"
        raise DataError(path, message) from error


def _in_rows(name: str, rows: Iterable[Mapping[str, Any]]) -> Iterator[Question]:
    try:
        for row in rows:
            answers = tuple(zip(row["answers"]["text"], row["answers"]["answer_start"], strict=True))
            yield Question(row["id"], row["question"], row["context"], answers)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(name, f"the columns id, question, context and answers are needed ({error})") from error


def _checked(path: Path | str, questions: Iterator[Question]) -> tuple[Question, ...]:
    kept = tuple(questions)
    for question in kept:
        texts = (question.id, question.question, question.context, *(text for text, _ in question.answers))
        if not all(isinstance(text, str) and text.strip() for text in texts):
            raise DataError(path, f"question {question.id!r} has a text that is empty or not text")
        if not question.answers:
            raise DataError(path, f"question {question.id!r} has no answer; SQuAD 1.1 has one for every question")
        for text, start in question.answers:
            if type(start) is not int or start < 0 or not question.context.startswith(text, start):
                raise DataError(path, f"the answer {text[:60]!r} of question {question.id!r} is not at {start!r}")
    if not kept:
        raise DataError(path, "there are no questions")
    return kept
