"""Data of a task, from files or rows: what is there, found, read and checked by the task's kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from mvprune.data.columns import FOUND_BY_NAME, Columns
from mvprune.data.conll import sentences_in_file
from mvprune.data.labelled import ClassificationData, Split, read_labelled, read_labelled_validation
from mvprune.data.passages import (
    PassageData,
    passages_in_file,
    passages_in_table,
    read_passages,
    read_validation_passages,
)
from mvprune.data.questions import (
    Question,
    QuestionAnsweringData,
    questions_in_file,
    questions_in_rows,
    read_questions,
    read_validation_questions,
)
from mvprune.data.tables import TABLES, read_table, table_of_rows
from mvprune.data.tagging import (
    TaggedSplit,
    TokenClassificationData,
    read_tagged,
    read_validation_tagged,
    sentences_in_table,
)
from mvprune.data.tasks import Task, TaskKind
from mvprune.data.textfiles import COMPRESSED, DataError

__all__ = [
    "FOUND_BY_NAME",
    "ClassificationData",
    "Columns",
    "DataError",
    "PassageData",
    "Question",
    "QuestionAnsweringData",
    "Split",
    "TaggedSplit",
    "TaskData",
    "TaskFiles",
    "TokenClassificationData",
    "find_task_files",
    "load_files",
    "load_rows",
    "load_validation",
]

TaskData = ClassificationData | QuestionAnsweringData | TokenClassificationData | PassageData
Rows = Iterable[Mapping[str, object]]

_NO_FILES: Mapping[str, Path] = MappingProxyType({})
_NO_ROWS: Mapping[str, Rows] = MappingProxyType({})
_NO_CLASSES: Mapping[str, Sequence[str]] = MappingProxyType({})


@dataclass(frozen=True)
class TaskFiles:
    """The files of a task.

    Attributes:
        train: to train on.
        validation: to evaluate on.
        more_validation: to evaluate on as well, by the ending of their metrics' names (mismatched).
    """

    train: Path
    validation: Path
    more_validation: Mapping[str, Path] = field(default_factory=dict)

    @property
    def paths(self) -> tuple[Path, ...]:
        """All of them."""
        return (self.train, self.validation, *self.more_validation.values())


def load_files(
    task: Task,
    train: Path,
    validation: Path,
    columns: Columns = FOUND_BY_NAME,
    *,
    more_validation: Mapping[str, Path] = _NO_FILES,
) -> TaskData:
    """Reads a task's data from files.

    Labelled texts come in tables (`mvprune.data.tables`), questions in SQuAD's JSON or tables
    (`mvprune.data.questions`), tagged words in CoNLL's format (`mvprune.data.conll`) or tables
    (`mvprune.data.tagging`), passages as lines of text or in tables (`mvprune.data.passages`).

    Args:
        task: the task.
        train: the file to train on.
        validation: the file to evaluate on.
        columns: names of columns; None: found by name. Those of CoNLL's format have numbers, from 1. SQuAD's JSON and
            plain text have none.
        more_validation: files to evaluate on as well, by the ending of their metrics' names (mismatched).

    Raises:
        DataError: what is wrong, in which file and line, and what is allowed.
    """
    _check_columns(task, columns, train)
    match task.kind:
        case TaskKind.QUESTION_ANSWERING:
            return read_questions(task, train, questions_in_file(train), validation, questions_in_file(validation))
        case TaskKind.TOKEN_CLASSIFICATION:
            return read_tagged(task, sentences_in_file(train, columns), sentences_in_file(validation, columns))
        case TaskKind.MASKED_LM:
            return read_passages(task, passages_in_file(train, columns), passages_in_file(validation, columns))
        case _:
            train_table, validation_table = (read_table(path, task.implied_header) for path in (train, validation))
            more = {name: read_table(path, task.implied_header) for name, path in more_validation.items()}
            return read_labelled(task, train_table, validation_table, columns, more)


def load_validation(task: Task, path: Path, labels: Sequence[str], columns: Columns = FOUND_BY_NAME) -> TaskData:
    """Reads a file to evaluate a model on; there is nothing to train on.

    Args:
        task: the task.
        path: the file, in one of the formats of `load_files`.
        labels: the model's classes or tags in the order of their numbers, where the task's are discovered in the data.
        columns: names of columns; None: found by name.

    Raises:
        DataError: what is wrong, in which line, and what is allowed.
    """
    _check_columns(task, columns, path)
    match task.kind:
        case TaskKind.QUESTION_ANSWERING:
            return read_validation_questions(task, path, questions_in_file(path))
        case TaskKind.TOKEN_CLASSIFICATION:
            return read_validation_tagged(task, sentences_in_file(path, columns), labels)
        case TaskKind.MASKED_LM:
            return read_validation_passages(task, passages_in_file(path, columns))
        case _:
            return read_labelled_validation(task, read_table(path, task.implied_header), columns, labels)


def load_rows(
    task: Task,
    train: Rows,
    validation: Rows,
    columns: Columns = FOUND_BY_NAME,
    *,
    name: str,
    classes: Mapping[str, Sequence[str]] = _NO_CLASSES,
    more_validation: Mapping[str, Rows] = _NO_ROWS,
) -> TaskData:
    """The same from rows in memory, such as the splits of a data set of the hub.

    Args:
        task: the task.
        train: rows, as mappings with the same keys.
        validation: likewise.
        columns: names of columns; None: found by name.
        name: the data set's name, for errors.
        classes: by column, the names that its numbers stand for, where the data set knows them; the task's own labels
            come first.
        more_validation: further rows to evaluate on, by the ending of their metrics' names.

    Raises:
        DataError: what is wrong, in which split and row, and what is allowed.
    """
    _check_columns(task, columns, name)
    train_name, validation_name = f"{name} (train)", f"{name} (validation)"
    if task.kind is TaskKind.QUESTION_ANSWERING:
        questions = questions_in_rows(train_name, train), questions_in_rows(validation_name, validation)
        return read_questions(task, train_name, questions[0], validation_name, questions[1])
    tables = table_of_rows(train_name, train, classes), table_of_rows(validation_name, validation, classes)
    match task.kind:
        case TaskKind.TOKEN_CLASSIFICATION:
            train_sentences, validation_sentences = (sentences_in_table(table, columns) for table in tables)
            return read_tagged(task, train_sentences, validation_sentences)
        case TaskKind.MASKED_LM:
            return read_passages(task, *(passages_in_table(table, columns) for table in tables))
        case _:
            more = {ending: table_of_rows(f"{name} ({ending})", rows) for ending, rows in more_validation.items()}
            return read_labelled(task, *tables, columns, more)


def find_task_files(task: Task, root: Path) -> TaskFiles | None:
    """A task's files in their official layout under `root`, as in SST-2/train.tsv; None if they are not there.

    They may be compressed, as train.tsv.gz, and a table may have another format, as train.jsonl.
    """
    if task.folder is None:
        return None
    folder = root / task.folder
    train, validation = _first(folder, task.train_file), _first(folder, task.validation_file)
    if train is None or validation is None:
        return None
    more = {further.name: _first(folder, further.file) for further in task.more_validation}
    return TaskFiles(train, validation, {name: path for name, path in more.items() if path is not None})


def _first(folder: Path, pattern: str) -> Path | None:
    """The first file of that name, or else of one of the names that the same content has in other forms."""
    stem, dot, last = pattern.rpartition(".")
    suffix = dot + last
    formats = (suffix, *(other for other in TABLES if other != suffix)) if suffix == ".tsv" else (suffix,)
    for ending in (one + compression for compression in ("", *COMPRESSED) for one in formats):
        if found := sorted(path for path in folder.glob(stem + ending) if path.is_file()):
            return found[0]
    return None


def _check_columns(task: Task, columns: Columns, path: Path | str) -> None:
    if task.kind is TaskKind.QUESTION_ANSWERING and columns != FOUND_BY_NAME:
        raise DataError(path, f"the columns of {task.name} have fixed names; leave the names of columns out")
    if task.kind in (TaskKind.TOKEN_CLASSIFICATION, TaskKind.MASKED_LM) and columns.text_pair is not None:
        raise DataError(path, f"the task {task.name} needs only text_column")
    if task.kind is TaskKind.MASKED_LM and columns.label is not None:
        raise DataError(path, f"the task {task.name} has no labels; leave label_column out")
