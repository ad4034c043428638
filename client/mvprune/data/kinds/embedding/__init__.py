"""Embeddings: the vector of a text, which a pruned model learns from the given one, so that no labels are needed."""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from mvprune.common.excerpts import shown
from mvprune.data.columns import Columns, check_late, find_column
from mvprune.data.kinds.base import Kind, Task
from mvprune.data.kinds.embedding.texts import (
    EmbeddingData,
    Judgements,
    Linked,
    PlainTexts,
    ReadTexts,
    ScoredPairs,
    Split,
)
from mvprune.data.reading import columns_read, shared
from mvprune.data.tables import Table, checked_text
from mvprune.data.textfiles import DataError, read_lines

_TEXTS = ("text", "sentence", "query", "question", "anchor", "passage", "document", "content", "body", "abstract")
_QUERIES = ("query", "question", "anchor", "text")
_DOCUMENTS = ("document", "passage", "positive", "context", "answer", "text_pair")
_GRADES = ("relevance", "label", "score")
_NEGATIVES, _MARGINS = ("negative", "hard_negative"), ("margin",)
_FIRST = ("sentence1", "text1", "text", "text_a", "question1", "premise")
_SECOND = ("sentence2", "text2", "text_pair", "text_b", "question2", "hypothesis")
_SCORES = ("score", "label", "similarity", "similarity_score", "relatedness_score")


class Embedding(Kind[ReadTexts], ABC):
    """The vector of a text. Files are lines of text, or tables; training reads the texts of both."""

    head: ClassVar[str] = ""
    columns: ClassVar[tuple[str, ...]] = ("text",)
    has_labels: ClassVar[bool] = False
    options: ClassVar[frozenset[str]] = frozenset({"pooling", "prompt_name", "evaluated_examples"})

    def read_other(self, path: Path, columns: Columns) -> ReadTexts:
        """The lines of a text file that are not blank; it has no columns."""
        return _plain(path, (text for _, line in read_lines(path) if (text := line.strip())))

    def data(
        self, task: Task, train: ReadTexts, validation: ReadTexts, columns: Columns, more: Mapping[str, ReadTexts]
    ) -> EmbeddingData:
        read = columns_read({each.path: each.read for each in (train, validation)})
        notes = shared(train.texts, validation.texts) if isinstance(validation.split, PlainTexts) else []
        split = self._measured(task, validation)
        return EmbeddingData(task, train.texts, split, train.linked, columns=read, notes=(*notes,))

    def validation_data(
        self, task: Task, validation: ReadTexts, columns: Columns, labels: Sequence[str]
    ) -> EmbeddingData:
        read = columns_read({validation.path: validation.read})
        return EmbeddingData(task, (), self._measured(task, validation), columns=read)

    def option_problems(self, data: EmbeddingData, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        if given.get("learn_pairs") and data.linked is None:
            rule = "must be unset where the texts to train on are plain"
            yield "learn_pairs", f"{rule}, got true; give a table of texts that belong together"

    def _measured(self, task: Task, validation: ReadTexts) -> Split:
        """The content of the file to evaluate on, in the kind's form. Raises DataError where it has another."""
        return PlainTexts(validation.texts)

    def _of_table(self, form: type[Split], task: Task, validation: ReadTexts, rows: str) -> Split:
        """The content, if it has the form that a table with these rows has. Raises DataError."""
        if isinstance(validation.split, form):
            return validation.split
        rule = f"the validation file must have {rows} for the task {task.name}, got one text a row"
        raise DataError(validation.path, f"{rule}; for plain texts take the task embedding")


class Vectors(Embedding):
    """The vector of a text, measured by how near it is to that of the given model."""

    name: ClassVar[str] = "embedding"
    pipeline: ClassVar[str] = "feature-extraction"

    def read_table(self, table: Table, columns: Columns) -> ReadTexts:
        return _column(table, columns)


class Retrieval(Embedding):
    """The vector of a query or of a document that answers it, measured by the search in all documents of the file.
    Tables have a row for each query and document that are judged together; the grade is 1 where there is no column of
    grades. A row without a query adds a document. Tables to train on may have a column of documents that do not answer
    the query, and one of margins."""

    name: ClassVar[str] = "retrieval"
    pipeline: ClassVar[str] = "sentence-similarity"
    columns: ClassVar[tuple[str, ...]] = ("text", "text_pair", "label")
    options: ClassVar[frozenset[str]] = Embedding.options | {"learn_pairs"}

    def read_table(self, table: Table, columns: Columns) -> ReadTexts:
        if columns.text_pair is None and not _has(table, _DOCUMENTS):
            return _column(table, columns)

        def choose(table: Table) -> tuple[str, ...]:
            query = find_column(table, "text", columns.text, _QUERIES)
            document = find_column(table, "text_pair", columns.text_pair, _DOCUMENTS)
            is_graded = columns.label is not None or _has(table, _GRADES)
            return query, document, *([find_column(table, "label", columns.label, _GRADES)] if is_graded else [])

        chosen = _different(table, choose(table))
        others = [name for names in (_NEGATIVES, _MARGINS) for name in table.columns if name.casefold() in names]
        others = others if others and others[0].casefold() in _NEGATIVES else []
        queries, documents, relevant = dict[str, int](), dict[str, int](), list[dict[int, float]]()
        rows, margins = list[tuple[str, ...]](), list[float]()
        for line, cells in _rows(table, (*chosen, *others)):
            cell = dict(zip((*chosen, *others), cells, strict=True))
            document = checked_text(table, line, chosen[1], cell[chosen[1]]).strip()
            number = documents.setdefault(document, len(documents))
            if cell[chosen[0]] is None or not str(cell[chosen[0]]).strip():
                continue
            query = checked_text(table, line, chosen[0], cell[chosen[0]]).strip()
            if queries.setdefault(query, len(queries)) == len(relevant):
                relevant.append({})
            grade = _number(table, line, chosen[2], cell[chosen[2]]) if len(chosen) > 2 else 1.0
            if grade < 0:
                raise table.error(line, f"{shown(chosen[2])} must be a grade of at least 0, got {grade:g}")
            if grade:
                of_query = relevant[queries[query]]
                of_query[number] = max(grade, of_query.get(number, 0.0))
                wrong = [checked_text(table, line, name, cell[name]).strip() for name in others[:1]]
                rows.append((query, document, *wrong))
                margins += [_number(table, line, name, cell[name]) for name in others[1:]]
        check_late(table, chosen, choose)
        for query, number in queries.items():
            if not relevant[number]:
                rule = "each query must have a document with a grade above 0"
                raise DataError(table.path, f"{rule}, got none for {shown(query)}")
        if not queries:
            raise DataError(table.path, "the queries must be at least 1, got 0")
        split = Judgements(tuple(queries), tuple(documents), tuple(tuple(sorted(one.items())) for one in relevant))
        read = _in_words(("query", "document", "grade"), chosen)
        if others:
            read += ", " + _in_words(("negative", "margin"), others)
        return ReadTexts(table.path, split, read, Linked((*rows,), (*margins,)))

    def _measured(self, task: Task, validation: ReadTexts) -> Split:
        rows = "queries and documents (text_column and text_pair_column)"
        return self._of_table(Judgements, task, validation, rows)


class SentenceSimilarity(Embedding):
    """The vector of a text, measured by how the cosine of two goes with people's scores of their likeness."""

    name: ClassVar[str] = "sentence-similarity"
    pipeline: ClassVar[str] = "sentence-similarity"
    columns: ClassVar[tuple[str, ...]] = ("text", "text_pair", "label")
    options: ClassVar[frozenset[str]] = Embedding.options | {"learn_pairs"}

    def read_table(self, table: Table, columns: Columns) -> ReadTexts:
        if columns.text_pair is None and not _has(table, _SECOND):
            return _column(table, columns)

        def choose(table: Table) -> tuple[str, str, str]:
            first = find_column(table, "text", columns.text, _FIRST)
            second = find_column(table, "text_pair", columns.text_pair, _SECOND)
            return first, second, find_column(table, "label", columns.label, _SCORES)

        chosen = _different(table, choose(table))
        rows = [
            (*(checked_text(table, line, *cell).strip() for cell in zip(chosen[:2], cells[:2], strict=True)), score)
            for line, cells in _rows(table, chosen)
            for score in (_number(table, line, chosen[2], cells[2]),)
        ]
        check_late(table, chosen, choose)
        if len({score for _, _, score in rows}) < 2:
            rule = "the scores must be at least two different numbers, to be compared with"
            raise DataError(table.path, f"{rule}, got {rows[0][2]:g} in all rows" if rows else f"{rule}, got none")
        texts, others, scores = zip(*rows, strict=True)
        read, linked = (
            _in_words(("text", "text", "score"), chosen),
            Linked(tuple(zip(texts, others, strict=True)), scores),
        )
        return ReadTexts(table.path, ScoredPairs(texts, others, scores), read, linked)

    def _measured(self, task: Task, validation: ReadTexts) -> Split:
        return self._of_table(ScoredPairs, task, validation, "two texts and a score a row")


def _has(table: Table, names: Sequence[str]) -> bool:
    there = {name.casefold() for name in table.columns}
    return not there.isdisjoint(names)


def _column(table: Table, columns: Columns) -> ReadTexts:
    """The texts in one column of a table; blank ones are skipped."""

    def choose(table: Table) -> tuple[str]:
        return (find_column(table, "text", columns.text, _TEXTS),)

    chosen = choose(table)
    texts = (
        checked_text(table, line, chosen[0], cells[0]).strip()
        for line, cells in _rows(table, chosen)
        if not (isinstance(cells[0], str) and not cells[0].strip())
    )
    found = _plain(table.path, texts, _in_words(("text",), chosen))
    check_late(table, chosen, choose)
    return found


def _plain(path: Path | str, texts: Iterator[str], read: str = "") -> ReadTexts:
    kept = tuple(texts)
    if not kept:
        raise DataError(path, "the texts must be at least 1, got 0")
    return ReadTexts(path, PlainTexts(kept), read)


def _rows(table: Table, chosen: Sequence[str]) -> Iterator[tuple[int, Sequence[object]]]:
    for line, cells in table.rows(chosen):
        if isinstance(cells, str):
            raise table.error(line, cells)
        yield line, cells


def _different(table: Table, chosen: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(chosen)) < len(chosen):
        raise DataError(table.path, f"the columns must be different ones, got {', '.join(map(shown, chosen))}")
    return chosen


def _number(table: Table, line: int, column: str, cell: object) -> float:
    try:
        number = float(cell) if isinstance(cell, str | int | float) else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise table.error(line, f"{shown(column)} must be a finite number, got {shown(str(cell))}")
    return number


def _in_words(roles: Sequence[str], chosen: Sequence[str]) -> str:
    return ", ".join(f"{role} {shown(name)}" for role, name in zip(roles, chosen, strict=False))


_SETTINGS: dict[str, Any] = {
    "text_columns": ("text",),
    "label_column": "",
    "hub_id": None,
    "max_length": 256,
    "learning_rate": 3e-4,
}
_RANKED = ("ndcg_at_10", "mrr_at_10", "recall_at_1", "recall_at_10")

TASKS = (
    Task(
        name="embedding",
        kind=Vectors(),
        description="vectors of your own texts, as near as possible to those of the model",
        metrics=("cosine",),
        primary_metric="cosine",
        **_SETTINGS,
    ),
    Task(
        name="retrieval",
        kind=Retrieval(),
        description="the same, measured by queries that search documents",
        metrics=(*_RANKED, *(f"{name}_both" for name in _RANKED), "cosine"),
        primary_metric="ndcg_at_10",
        **_SETTINGS,
    ),
    Task(
        name="sentence-similarity",
        kind=SentenceSimilarity(),
        description="the same, measured by scores of pairs of texts",
        metrics=("spearman", "pearson", "cosine"),
        primary_metric="spearman",
        **_SETTINGS,
    ),
)
