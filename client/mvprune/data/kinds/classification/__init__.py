"""Classification and regression: one text or two, and a class or a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from mvprune.data.columns import Columns
from mvprune.data.kinds.base import FurtherValidation, Kind, Rows, Task
from mvprune.data.kinds.classification.labelled import (
    ClassificationData,
    read_labelled,
    read_labelled_validation,
    read_values,
    read_values_validation,
)
from mvprune.data.tables import Table, read_table, table_of_rows


class _Texts(Kind[Table]):
    """What classification and regression share: their files are tables with a label column."""

    head: ClassVar[str] = "SequenceClassification"
    pipeline: ClassVar[str] = "text-classification"
    columns: ClassVar[tuple[str, ...]] = ("text", "text_pair", "label")

    def read_file(self, task: Task, path: Path, columns: Columns) -> Table:
        return read_table(path, task.implied_header)

    def read_rows(
        self, task: Task, name: str, rows: Rows, columns: Columns, classes: Mapping[str, Sequence[str]]
    ) -> Table:
        return table_of_rows(name, rows, classes)


class Classification(_Texts):
    """One of several classes."""

    name: ClassVar[str] = "classification"

    def data(
        self, task: Task, train: Table, validation: Table, columns: Columns, more: Mapping[str, Table]
    ) -> ClassificationData:
        return read_labelled(task, train, validation, columns, more)

    def validation_data(
        self, task: Task, validation: Table, columns: Columns, labels: Sequence[str]
    ) -> ClassificationData:
        return read_labelled_validation(task, validation, columns, labels)


class Regression(_Texts):
    """A number."""

    name: ClassVar[str] = "regression"

    def data(
        self, task: Task, train: Table, validation: Table, columns: Columns, more: Mapping[str, Table]
    ) -> ClassificationData:
        return read_values(task, train, validation, columns, more)

    def validation_data(
        self, task: Task, validation: Table, columns: Columns, labels: Sequence[str]
    ) -> ClassificationData:
        return read_values_validation(task, validation, columns)


CLASSIFICATION, REGRESSION = Classification(), Regression()

_PAIR = ("sentence1", "sentence2")

TASKS = (
    Task(
        name="cola",
        kind=CLASSIFICATION,
        description="grammatical acceptability of a sentence",
        text_columns=("sentence",),
        label_column="label",
        labels=("unacceptable", "acceptable"),
        metrics=("matthews_correlation", "accuracy"),
        primary_metric="matthews_correlation",
        hub_config="cola",
        folder="CoLA",
        implied_header=("source", "label", "star", "sentence"),
    ),
    Task(
        name="sst2",
        kind=CLASSIFICATION,
        description="sentiment of a sentence from a movie review",
        text_columns=("sentence",),
        label_column="label",
        labels=("negative", "positive"),
        metrics=("accuracy",),
        primary_metric="accuracy",
        hub_config="sst2",
        folder="SST-2",
    ),
    Task(
        name="mrpc",
        kind=CLASSIFICATION,
        description="whether two sentences from the news are paraphrases",
        text_columns=_PAIR,
        label_column="label",
        labels=("not_equivalent", "equivalent"),
        metrics=("accuracy", "f1"),
        primary_metric="accuracy",
        hub_config="mrpc",
        folder="MRPC",
    ),
    Task(
        name="qqp",
        kind=CLASSIFICATION,
        description="whether two questions ask the same",
        text_columns=("question1", "question2"),
        label_column="label",
        labels=("not_duplicate", "duplicate"),
        metrics=("accuracy", "f1"),
        primary_metric="accuracy",
        hub_config="qqp",
        folder="QQP",
        has_broken_rows=True,
    ),
    Task(
        name="stsb",
        kind=REGRESSION,
        description="similarity of two sentences, 0 to 5",
        text_columns=_PAIR,
        label_column="label",
        labels=(),
        metrics=("pearson", "spearman"),
        primary_metric="pearson",
        hub_config="stsb",
        folder="STS-B",
    ),
    Task(
        name="mnli",
        kind=CLASSIFICATION,
        description="whether a premise entails a hypothesis, ten genres",
        text_columns=("premise", "hypothesis"),
        label_column="label",
        labels=("entailment", "neutral", "contradiction"),
        metrics=("accuracy", "accuracy_mismatched"),
        primary_metric="accuracy",
        hub_config="mnli",
        hub_validation="validation_matched",
        folder="MNLI",
        validation_file="dev_matched.tsv",
        more_validation=(FurtherValidation("mismatched", "validation_mismatched", "dev_mismatched.tsv"),),
    ),
    Task(
        name="qnli",
        kind=CLASSIFICATION,
        description="whether a sentence answers a question",
        text_columns=("question", "sentence"),
        label_column="label",
        labels=("entailment", "not_entailment"),
        metrics=("accuracy",),
        primary_metric="accuracy",
        hub_config="qnli",
        folder="QNLI",
    ),
    Task(
        name="rte",
        kind=CLASSIFICATION,
        description="whether a sentence entails another",
        text_columns=_PAIR,
        label_column="label",
        labels=("entailment", "not_entailment"),
        metrics=("accuracy",),
        primary_metric="accuracy",
        hub_config="rte",
        folder="RTE",
    ),
    Task(
        name="wnli",
        kind=CLASSIFICATION,
        description="whether a sentence with its pronoun resolved follows",
        text_columns=_PAIR,
        label_column="label",
        labels=("not_entailment", "entailment"),
        metrics=("accuracy",),
        primary_metric="accuracy",
        hub_config="wnli",
        folder="WNLI",
    ),
    Task(
        name="text-classification",
        kind=CLASSIFICATION,
        description="your own texts, or pairs of texts, and labels",
        text_columns=("text",),
        label_column="label",
        labels=(),
        metrics=("accuracy",),
        primary_metric="accuracy",
        hub_id=None,
    ),
    Task(
        name="text-regression",
        kind=REGRESSION,
        description="your own texts, or pairs of texts, and numbers",
        text_columns=("text",),
        label_column="label",
        labels=(),
        metrics=("pearson", "spearman"),
        primary_metric="pearson",
        hub_id=None,
    ),
)
