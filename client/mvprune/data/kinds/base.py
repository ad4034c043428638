"""Tasks and kinds of tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from mvprune.common.excerpts import shown
from mvprune.data.columns import Columns
from mvprune.data.tables import TABLES, Table, read_table
from mvprune.data.textfiles import DataError, suffix_of

GLUE = "nyu-mll/glue"

_PAIR = 2  # texts of an input

Source = TypeVar("Source")


class TaskData(Protocol):
    """The data of a task, checked. Each kind has a class of its own."""

    @property
    def task(self) -> Task:
        """The task."""

    @property
    def train(self) -> Sized:
        """Examples to train on."""

    @property
    def validation(self) -> Sized:
        """Examples to evaluate on."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the content, whatever file format it came in."""

    @property
    def columns(self) -> tuple[str, ...]:
        """See `Reading`."""

    @property
    def notes(self) -> tuple[str, ...]:
        """See `Reading`."""


class Kind(ABC, Generic[Source]):
    """A kind of task: what its models predict, and how its data is read.

    The part that needs torch, such as examples and metrics, is `mvprune_core.tasks.Objective`.

    Attributes:
        name: in lists of tasks, in `mvpctl serve` and in error messages.
        head: the ending of the classes of transformers that solve it, as SequenceClassification; "" where it is solved
            by a model without a head.
        pipeline: its pipeline tag on the hub.
        columns: the names of columns that a user may give, as fields of `Columns`; () where they are fixed.
        tables: the suffixes of files that are tables; those with other suffixes have a format of the kind's own.
        min_tokens: the length of input that a model of this kind must at least take.
        has_labels: whether examples have labels; without them a student learns only from a teacher.
        not_distilled: why a student cannot learn from a teacher, as the rest of a sentence; "" where it can.
        rows_are_examples: whether each row of the data is one example, or at least about one.
        has_groups: whether rows belong together, so that half of them cannot be held out.
        has_windows: whether a long row gives several examples.
        losses: those of its metrics that have a unit of their own, and of which less is better.
        metrics: what the results of any of its tasks can be compared by, beside the task's own metrics.
        not_compared: those of its metrics that results cannot be compared by: a better one is not a better model.
        options: the options of a run that only some kinds take, and this one does, by name.
        predicts_tokens: whether its models predict tokens of the vocabulary, which must then be whole.
        tasks: the named tasks.
    """

    name: ClassVar[str]
    head: ClassVar[str]
    pipeline: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]
    tables: ClassVar[tuple[str, ...]] = TABLES
    min_tokens: ClassVar[int] = 0
    has_labels: ClassVar[bool] = True
    not_distilled: ClassVar[str] = ""
    rows_are_examples: ClassVar[bool] = True
    has_groups: ClassVar[bool] = False
    has_windows: ClassVar[bool] = False
    losses: ClassVar[frozenset[str]] = frozenset()
    metrics: ClassVar[tuple[str, ...]] = ()
    not_compared: ClassVar[frozenset[str]] = frozenset()
    options: ClassVar[frozenset[str]] = frozenset()
    predicts_tokens: ClassVar[bool] = False

    def __str__(self) -> str:
        return self.name

    def check_columns(self, task: Task, columns: Columns, path: Path | str) -> None:
        """Raises DataError where columns are named that the kind does not have."""
        for field in fields(columns):
            if (given := getattr(columns, field.name)) is not None and field.name not in self.columns:
                takes = " and ".join(f"{name}_column" for name in self.columns) or "columns with fixed names"
                rule = f"must not be given for the task {task.name}, which has {takes}"
                raise DataError(path, f"{field.name}_column {rule}, got {shown(given)}")

    def is_table(self, path: Path) -> bool:
        """Whether a file is a table, by its suffix."""
        return suffix_of(path) in self.tables

    def read_file(self, task: Task, path: Path, columns: Columns) -> Source:
        """The examples in a file, not yet checked against the task. Raises DataError."""
        if self.is_table(path):
            return self.read_table(read_table(path, task.implied_header), columns)
        return self.read_other(path, columns)

    def read_other(self, path: Path, columns: Columns) -> Source:
        """The examples in a file that is no table. Raises DataError; by default for every such file."""
        return self.read_table(read_table(path), columns)

    @abstractmethod
    def read_table(self, table: Table, columns: Columns) -> Source:
        """The examples in a table, such as the rows of a data set of the hub, not yet checked against the task. Raises
        DataError."""

    def check_examples(self, task: Task, source: Source, columns: Columns) -> None:
        """Checks each example of a source that is only a part of the data, as far as `read_file` and `read_table` have
        not. Raises DataError."""

    @abstractmethod
    def data(
        self, task: Task, train: Source, validation: Source, columns: Columns, more: Mapping[str, Source]
    ) -> TaskData:
        """The data of a task, checked; `more` are further examples to evaluate on, by the ending of their metrics'
        names. Raises DataError."""

    def has_pairs(self, data: Any) -> bool:
        """Whether an input is a pair of texts."""
        return len(data.task.text_columns) == _PAIR

    def option_problems(self, data: Any, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """The options of a run that do not fit its data: the name of each, and the rest of a sentence about it.

        Args:
            data: of `data`, whose task has the metric that was asked for.
            given: the options that are set, by name.
        """
        return iter(())

    @abstractmethod
    def validation_data(self, task: Task, validation: Source, columns: Columns, labels: Sequence[str]) -> TaskData:
        """Data to evaluate a model on, without data to train on; `labels` are the model's classes in the order of their
        numbers. Raises DataError."""


@dataclass(frozen=True)
class FurtherValidation:
    """A second split to evaluate on.

    Attributes:
        name: the ending of its metrics' names, after an underscore.
        hub_split: its name on the hub.
        file: its file in the task's folder.
    """

    name: str
    hub_split: str
    file: str


@dataclass(frozen=True)
class Task:
    """One named task.

    Attributes:
        name: what a user types.
        kind: what is predicted.
        description: one line for people.
        text_columns: one or two columns of text, by the hub's names.
        metrics: what is reported: fractions (accuracy, f1, exact_match), correlations, or a perplexity. Those of a
            split that the data does not have are left out (accuracy_mismatched, no_ans_f1).
        primary_metric: the one of `metrics` that results are compared by.
        label_column: the column to predict, by the hub's name; "" where the text itself is predicted, as in
            masked-lm and causal-lm.
        labels: label names in the order of their numbers; empty where they are discovered in the data
            (text-classification, ner), and where there are none.
        hub_id, hub_config: the task's data set on the hub; None where the user brings the data.
        hub_validation: the hub split to evaluate on (the test splits of GLUE have no labels).
        folder: the folder with its files; None where there is none.
        train_file, validation_file: the files in `folder`, as patterns of `Path.glob`.
        more_validation: further splits to evaluate on.
        allows_no_answer: question answering: the passage may not hold the answer.
        implied_header: the columns of the official tsv files where these have no header line (CoLA).
        has_broken_rows: the official files have a few damaged rows, which are left out, as by the hub's loader.
        max_length: tokens of an input; longer inputs are cut (question answering: the length of a window).
        max_target_length: tokens of a text that is written, at most.
        epochs, batch_size, learning_rate, weight_decay: defaults of fine-tuning, more epochs over few examples.
        paper_epochs: epochs of the preset `paper`: 6 for MNLI and QQP, 10 for SQuAD in Sanh et al. 2020.
    """

    name: str
    kind: Kind[Any]
    description: str
    text_columns: tuple[str, ...]
    metrics: tuple[str, ...]
    primary_metric: str
    label_column: str = "label"
    labels: tuple[str, ...] = ()
    hub_id: str | None = GLUE
    hub_config: str | None = None
    hub_validation: str = "validation"
    folder: str | None = None
    train_file: str = "train.tsv"
    validation_file: str = "dev.tsv"
    more_validation: tuple[FurtherValidation, ...] = ()
    allows_no_answer: bool = False
    implied_header: tuple[str, ...] = ()
    has_broken_rows: bool = False
    max_length: int = 128
    max_target_length: int = 128
    epochs: float = 3.0
    paper_epochs: float = 6.0
    batch_size: int = 32
    learning_rate: float = 3e-5
    weight_decay: float = 0.0

    @cached_property
    def split_metrics(self) -> tuple[str, ...]:
        """The metrics of one split; those of further splits have the same names with an ending."""
        endings = tuple(f"_{split.name}" for split in self.more_validation)
        return tuple(name for name in self.metrics if not name.endswith(endings))

    @cached_property
    def comparable(self) -> tuple[str, ...]:
        """The metrics that results can be compared by."""
        own = (name for name in self.split_metrics if name not in self.kind.not_compared)
        return tuple(dict.fromkeys((*own, *self.kind.metrics)))

    def measured_by(self, metric: str) -> Task:
        """The task with another primary metric, which is measured on every split. Itself for a metric that is not among
        `comparable`, such as "": that is an error of its own."""
        if metric not in self.comparable:
            return self
        endings = ("", *(f"_{split.name}" for split in self.more_validation))
        also = [metric + ending for ending in endings] if metric not in self.metrics else []
        return replace(self, metrics=(*self.metrics, *also), primary_metric=metric)

    @property
    def higher_is_better(self) -> bool:
        """Whether of two results the one with the larger primary metric is the better."""
        return self.primary_metric not in self.kind.losses
