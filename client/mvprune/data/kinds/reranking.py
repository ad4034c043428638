"""Reranking: queries with their candidate documents, and how relevant each is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from mvprune.common.excerpts import shown
from mvprune.data.columns import Columns, find_named
from mvprune.data.kinds.base import Task
from mvprune.data.kinds.classification.labelled import ClassificationData, Regression, Split
from mvprune.data.reading import name_of
from mvprune.data.tables import Table
from mvprune.data.textfiles import DataError

_TEXTS = tuple(
    (query, document)
    for query in ("query", "question")
    for document in ("document", "passage", "text", "answer", "context", "sentence", "response")
)
_LABELS = ("label", "relevance", "grade", "score", "is_relevant")


class Reranking(Regression):
    """A row is a query, one of its candidates, and a grade: 0 for one that is not relevant, more for one that is. The
    candidates of a query are the rows with the same query."""

    name: ClassVar[str] = "reranking"
    pipeline: ClassVar[str] = "text-ranking"
    has_groups: ClassVar[bool] = True
    options: ClassVar[frozenset[str]] = frozenset({"learn_margins"})

    def check_examples(self, task: Task, source: Table, columns: Columns) -> None:
        super().check_examples(task, source, _named(source, columns))

    def data(
        self, task: Task, train: Table, validation: Table, columns: Columns, more: Mapping[str, Table]
    ) -> ClassificationData:
        found = super().data(task, train, validation, _named(train, columns), more)
        _check_grades(train, found.train)
        return replace(found, notes=(*found.notes, *_check_queries(validation, found.validation)))

    def option_problems(self, data: ClassificationData, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        if given.get("learn_margins") and not compared_rows(data.train):
            rule = "must be unset where no query to train on has documents of two grades"
            yield "learn_margins", f"{rule}, got true; rows with the same query belong together"

    def validation_data(
        self, task: Task, validation: Table, columns: Columns, labels: Sequence[str]
    ) -> ClassificationData:
        found = super().validation_data(task, validation, _named(validation, columns), labels)
        return replace(found, notes=(*found.notes, *_check_queries(validation, found.validation)))


def queries_of(split: Split) -> dict[str, list[int]]:
    """The rows of each query, in the order of the data."""
    rows: dict[str, list[int]] = {}
    for row, query in enumerate(split.texts):
        rows.setdefault(query, []).append(row)
    return rows


def measured_queries(split: Split) -> list[list[int]]:
    """The rows of each query that has a relevant candidate, and others beside it."""
    return [rows for rows in queries_of(split).values() if len(rows) > 1 and any(split.labels[row] > 0 for row in rows)]


def compared_rows(split: Split) -> list[tuple[int, int]]:
    """Pairs of rows of the same query, of which the first has a higher grade and the second the query's lowest one: as
    few as have each of them in it. A query whose documents have one grade has none."""
    found = []
    for rows in queries_of(split).values():
        least = min(split.labels[row] for row in rows)
        better = [row for row in rows if split.labels[row] > least]
        others = [row for row in rows if split.labels[row] == least]
        if better:
            count = max(len(better), len(others))
            found += [(better[number % len(better)], others[number % len(others)]) for number in range(count)]
    return found


def _named(table: Table, columns: Columns) -> Columns:
    """The columns, with those that have well-known names of rankings where none is named."""
    changed: dict[str, str] = {}
    if columns.text is None and columns.text_pair is None:
        pair = next((found for names in _TEXTS if (found := find_named(table, names))), ())
        changed |= dict(zip(("text", "text_pair"), pair, strict=False))
    if columns.label is None:
        label = next((found for name in _LABELS if (found := find_named(table, [name]))), ())
        changed |= dict(zip(("label",), label, strict=False))
    return replace(columns, **changed)


def _check_grades(table: Table, split: Split) -> None:
    if split.pairs is None:
        rule = "the rows must have two texts, a query and a document, got one"
        raise DataError(table.path, f"{rule}; name both (text_column and text_pair_column)")
    if (least := min(split.labels)) < 0:
        rule = "the labels must be 0, for a document that is not relevant, or more"
        raise DataError(table.path, f"{rule}, got {least:g}")


def _check_queries(table: Table, split: Split) -> list[str]:
    """Notes on queries that no metric can be measured by. Raises DataError where there are no others."""
    _check_grades(table, split)
    queries, name = queries_of(split), name_of(table.path)
    measured = measured_queries(split)
    if not measured:
        rule = "a query must have a relevant document and others beside it; rows with the same query belong together"
        example = shown(next(iter(queries)))
        raise DataError(table.path, f"{rule}; none of {len(queries):,} queries has, such as {example}")
    left_out = len(queries) - len(measured)
    rest = "are without a relevant document, or without others, and are left out of the metrics"
    return [f"{left_out:,} of {len(queries):,} queries of {name} {rest}"] if left_out else []


TASKS = (
    Task(
        name="reranking",
        kind=Reranking(),
        description="your own queries with candidate documents, and which are relevant",
        text_columns=("query", "document"),
        metrics=("ndcg_at_10", "mrr_at_10"),
        primary_metric="ndcg_at_10",
        hub_id=None,
        max_length=256,
    ),
)
