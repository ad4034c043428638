"""Token classification: a tag for each word of a sentence, as for named entities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from mvprune.data.columns import Columns
from mvprune.data.kinds.base import Kind, Task
from mvprune.data.kinds.token_classification.conll import sentences_in_file
from mvprune.data.kinds.token_classification.sentences import (
    Sentences,
    TokenClassificationData,
    read_tagged,
    read_validation_tagged,
    sentences_in_table,
)
from mvprune.data.tables import Table


class TokenClassification(Kind[Sentences]):
    """A tag for each word. Files are CoNLL's or tables with a column of words and one of tags."""

    name: ClassVar[str] = "token-classification"
    head: ClassVar[str] = "TokenClassification"
    pipeline: ClassVar[str] = "token-classification"
    columns: ClassVar[tuple[str, ...]] = ("text", "label")
    tables: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson", ".json", ".parquet")

    def read_other(self, path: Path, columns: Columns) -> Sentences:
        return sentences_in_file(path, columns)

    def read_table(self, table: Table, columns: Columns) -> Sentences:
        return sentences_in_table(table, columns)

    def data(
        self, task: Task, train: Sentences, validation: Sentences, columns: Columns, more: Mapping[str, Sentences]
    ) -> TokenClassificationData:
        return read_tagged(task, train, validation)

    def validation_data(
        self, task: Task, validation: Sentences, columns: Columns, labels: Sequence[str]
    ) -> TokenClassificationData:
        return read_validation_tagged(task, validation, labels)


TOKEN_CLASSIFICATION = TokenClassification()

TASKS = (
    Task(
        name="ner",
        kind=TOKEN_CLASSIFICATION,
        description="named entities in sentences (CoNLL 2003, or your own tags)",
        text_columns=("tokens",),
        label_column="ner_tags",
        metrics=("f1", "precision", "recall", "accuracy"),
        primary_metric="f1",
        hub_id="lhoestq/conll2003",
        folder="CoNLL-2003",
        train_file="train.txt",
        validation_file="valid.txt",
        max_length=256,
    ),
)
