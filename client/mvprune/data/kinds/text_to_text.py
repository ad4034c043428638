"""Summarization and translation: a text that is written from another one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from mvprune.common.excerpts import shown
from mvprune.data.columns import Columns, check_late, find_column
from mvprune.data.kinds.base import Kind, Task
from mvprune.data.reading import Reading, columns_read, name_of, shared
from mvprune.data.tables import Table, checked_text
from mvprune.data.textfiles import DataError

_SOURCES = ("source", "document", "article", "dialogue", "text", "input", "src", "passage", "content", "body")
_TARGETS = ("target", "summary", "highlights", "translation", "output", "tgt", "reference", "abstract", "tldr")


@dataclass(frozen=True)
class TextPairs:
    """Sources and targets.

    Attributes:
        sources: texts to write from, none blank.
        targets: for each source what is to be written, none blank: one text, or several of which any is right. The
            first one is trained on.
    """

    sources: tuple[str, ...] = ()
    targets: tuple[tuple[str, ...], ...] = ()

    def __len__(self) -> int:
        return len(self.sources)


@dataclass(frozen=True)
class ReadPairs:
    """Sources and targets as they were read, at least one.

    Attributes:
        path: the file, or the name of the data set.
        pairs: the texts.
        read: the columns, in words.
    """

    path: Path | str
    pairs: TextPairs
    read: str


@dataclass(frozen=True)
class TextToTextData(Reading):
    """A task's texts: to train on, and to evaluate on."""

    task: Task
    train: TextPairs
    validation: TextPairs

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of both splits."""
        content = [[split.sources, split.targets] for split in (self.train, self.validation)]
        return hashlib.sha256(json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()).hexdigest()


class TextToText(Kind[ReadPairs]):
    """Files are tables with a column of sources and one of targets. In JSON lines and parquet a source may be a list of
    sentences, which are joined by blanks, without blank ones, and a target a list of texts of which any is right."""

    head: ClassVar[str] = "Seq2SeqLM"
    columns: ClassVar[tuple[str, ...]] = ("source", "target")
    min_tokens: ClassVar[int] = 2
    predicts_tokens: ClassVar[bool] = True
    options: ClassVar[frozenset[str]] = frozenset(
        {"max_target_length", "source_prefix", "num_beams", "length_penalty", "no_repeat_ngram_size"}
        | {"evaluated_examples", "teacher_writes_targets"}
    )

    def read_table(self, table: Table, columns: Columns) -> ReadPairs:
        def choose(table: Table) -> tuple[str, str]:
            source = find_column(table, "source", columns.source, _SOURCES)
            return source, find_column(table, "target", columns.target, _TARGETS)

        chosen = choose(table)
        if chosen[0] == chosen[1]:
            raise DataError(table.path, f"source and target must be different columns, got {chosen[0]!r} for both")
        pairs = list[tuple[str, tuple[str, ...]]]()
        for line, cells in table.rows(chosen):
            if isinstance(cells, str):
                raise table.error(line, cells)
            sentences, targets = ([*_texts(table, line, name, cell)] for name, cell in zip(chosen, cells, strict=True))
            source = checked_text(table, line, chosen[0], " ".join(filter(None, sentences)))
            pairs.append((source, tuple(checked_text(table, line, chosen[1], target) for target in targets)))
        check_late(table, chosen, choose)
        if not pairs:
            raise DataError(table.path, "the pairs of source and target must be at least 1, got 0")
        sources, targets_of = zip(*pairs, strict=True)
        source, target = map(shown, chosen)
        guessed = " (found by name)" * (columns.source is None or columns.target is None)
        return ReadPairs(table.path, TextPairs(sources, targets_of), f"source {source}, target {target}{guessed}")

    def data(
        self, task: Task, train: ReadPairs, validation: ReadPairs, columns: Columns, more: Mapping[str, ReadPairs]
    ) -> TextToTextData:
        read = columns_read({split.path: split.read for split in (train, validation)})
        splits = (zip(split.pairs.sources, split.pairs.targets, strict=True) for split in (train, validation))
        notes = (*_notes_on_targets(train), *shared(*splits))
        return TextToTextData(task, train.pairs, validation.pairs, columns=read, notes=notes)

    def validation_data(
        self, task: Task, validation: ReadPairs, columns: Columns, labels: Sequence[str]
    ) -> TextToTextData:
        read = columns_read({validation.path: validation.read})
        return TextToTextData(task, TextPairs(), validation.pairs, columns=read)


class Summarization(TextToText):
    """The summary of a text."""

    name: ClassVar[str] = "summarization"
    pipeline: ClassVar[str] = "summarization"


class Translation(TextToText):
    """A text in another language."""

    name: ClassVar[str] = "translation"
    pipeline: ClassVar[str] = "translation"
    options: ClassVar[frozenset[str]] = TextToText.options | {"source_language", "target_language"}


def _texts(table: Table, line: int, column: str, cell: object) -> Iterator[str]:
    """The text in a cell, or the texts of a list in it, of which some may be blank."""
    if not isinstance(cell, list | tuple):
        yield checked_text(table, line, column, cell).strip()
        return
    if not cell:
        raise table.error(line, f"{shown(column)} must have at least one text, got an empty list")
    for text in cell:
        yield "" if isinstance(text, str) and not text.strip() else checked_text(table, line, column, text).strip()


def _notes_on_targets(train: ReadPairs) -> Iterator[str]:
    if several := sum(len(targets) > 1 for targets in train.pairs.targets):
        yield (
            f"{several:,} of {len(train.pairs):,} rows of {name_of(train.path)} have several targets: the first one is "
            "trained on"
        )


_SUMMARIES, _TRANSLATIONS = Summarization(), Translation()
_ROUGE = ("rouge1", "rouge2", "rougeL", "rougeLsum")


def _summarization(name: str, description: str, columns: tuple[str, str], **others: Any) -> Task:
    settings: dict[str, Any] = {
        "max_length": 512,
        "batch_size": 8,
        "learning_rate": 5e-5,
        "primary_metric": "rougeL",
    } | others
    return Task(
        name=name,
        kind=_SUMMARIES,
        description=description,
        text_columns=columns[:1],
        label_column=columns[1],
        metrics=_ROUGE,
        validation_file="validation.tsv",
        **settings,
    )


TASKS = (
    _summarization("summarization", "summaries of your own texts", ("source", "target"), hub_id=None),
    _summarization(
        *("xsum", "one sentence on an article of the BBC", ("document", "summary")),
        hub_id="EdinburghNLP/xsum",
        folder="XSum",
        max_target_length=64,
    ),
    _summarization(
        *("cnn_dailymail", "the highlights of an article of the news", ("article", "highlights")),
        hub_id="abisee/cnn_dailymail",
        hub_config="3.0.0",
        folder="CNN-DailyMail",
        max_length=1024,
        primary_metric="rougeLsum",
    ),
    _summarization(
        *("samsum", "what a chat is about", ("dialogue", "summary")),
        hub_id="knkarthick/samsum",
        folder="SAMSum",
        max_target_length=64,
    ),
    Task(
        name="translation",
        kind=_TRANSLATIONS,
        description="translations of your own texts",
        text_columns=("source",),
        label_column="target",
        metrics=("bleu", "chrf"),
        primary_metric="bleu",
        hub_id=None,
        batch_size=16,
        learning_rate=5e-5,
    ),
)
