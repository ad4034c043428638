"""The data of a task, from files or rows, read and checked by the task's kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from mvprune.data.columns import FOUND_BY_NAME, Columns
from mvprune.data.kinds.base import Task, TaskData
from mvprune.data.kinds.classification.labelled import ClassificationData, Split
from mvprune.data.kinds.embedding.texts import EmbeddingData
from mvprune.data.kinds.passages import PassageData
from mvprune.data.kinds.question_answering import Question, QuestionAnsweringData
from mvprune.data.kinds.text_to_text import TextPairs, TextToTextData
from mvprune.data.kinds.token_classification.sentences import TaggedSplit, TokenClassificationData
from mvprune.data.tables import TABLES, Rows, table_of_rows
from mvprune.data.textfiles import COMPRESSED, DataError

__all__ = [
    "FOUND_BY_NAME",
    "ClassificationData",
    "Columns",
    "DataError",
    "EmbeddingData",
    "PassageData",
    "Question",
    "QuestionAnsweringData",
    "Split",
    "TaggedSplit",
    "TaskData",
    "TaskFiles",
    "TextPairs",
    "TextToTextData",
    "TokenClassificationData",
    "find_task_files",
    "load_files",
    "load_rows",
    "load_validation",
]

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

    The formats are those of the task's kind: labelled texts are in tables (`mvprune.data.tables`), questions in SQuAD's
    JSON or tables, tagged words in CoNLL's format or tables, passages in tables or as lines of text.

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
    kind = task.kind
    kind.check_columns(task, columns, train)
    splits = kind.read_file(task, train, columns), kind.read_file(task, validation, columns)
    more = {ending: kind.read_file(task, path, columns) for ending, path in more_validation.items()}
    return kind.data(task, *splits, columns, more)


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
    task.kind.check_columns(task, columns, path)
    return task.kind.validation_data(task, task.kind.read_file(task, path, columns), columns, labels)


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
    """Reads a task's data from rows in memory, such as the splits of a data set of the hub.

    Args:
        task: the task.
        train: rows, as mappings with the same keys.
        validation: rows of the same form.
        columns: names of columns; None: found by name.
        name: the data set's name, for errors.
        classes: by column, the names that its numbers stand for, where the data set knows them; the task's own labels
            come first.
        more_validation: further rows to evaluate on, by the ending of their metrics' names.

    Raises:
        DataError: what is wrong, in which split and row, and what is allowed.
    """
    kind = task.kind
    kind.check_columns(task, columns, name)
    splits = [
        kind.read_table(table_of_rows(f"{name} ({split})", rows, classes), columns)
        for split, rows in (("train", train), ("validation", validation))
    ]
    more = {
        ending: kind.read_table(table_of_rows(f"{name} ({ending})", rows), columns)
        for ending, rows in more_validation.items()
    }
    return kind.data(task, splits[0], splits[1], columns, more)


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
