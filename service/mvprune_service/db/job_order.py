"""Orders of lists of jobs: their keys, and the statements' clauses for a page that begins after a key.

Each order has an index that begins with the project: see tables/jobs.py. An index has only the jobs with a value. Those
without are read by age. Labels are rows of their own table, whose index has the value and the uid, which sorts by age.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any, ClassVar, NamedTuple

from sqlalchemy import Column, select, tuple_

from mvprune_service.db.tables.jobs import JOBS, LABELS, JobRow

_AGE = (JOBS.c.create_us, JOBS.c.uid)
_COLUMNS: dict[str, Column[Any] | None] = {
    "create_time": None,
    "state": JOBS.c.state,
    "task": JOBS.c.task,
    "model": JOBS.c.model,
    "metric": JOBS.c.metric,
    "difference": JOBS.c.difference,
    "duration": JOBS.c.duration_us,
    "failure": JOBS.c.failure_reason,
}
ORDERS = tuple(_COLUMNS)
# Not the table itself: a filter's subquery of labels would be correlated with it.
_LABELS = LABELS.alias("order_labels")
# At most any value of a type. Unlike IS NOT NULL, a comparison is a bound of an index on SQLite too.
_LEAST: dict[type, Any] = {float: -math.inf, int: -(1 << 62), str: ""}


class Part(NamedTuple):
    """The clauses of one statement: some of the jobs, in their order."""

    where: Sequence[Any]
    order_by: Sequence[Any]


@dataclass(frozen=True)
class Order:
    """The order of a list of jobs. Equal jobs are ordered by age, in the same direction. Jobs without a value come last
    in either direction, by age."""

    column: str  # one of ORDERS
    descending: bool

    def key(self, job: JobRow) -> tuple[Any, ...]:
        """The key of a job in this order."""
        column = _COLUMNS[self.column]
        value = () if column is None else (getattr(job, column.key),)
        return (*value, job.create_us, job.uid)

    @property
    def key_types(self) -> tuple[type | UnionType, ...]:
        """The types of the parts of a key."""
        column = _COLUMNS[self.column]
        if column is None:
            return (int, str)
        kind = column.type.python_type
        return (kind | None if column.nullable else kind, int, str)

    def parts(self, after: Sequence[Any] | None) -> Iterator[Part]:
        """The jobs after a key, or all: those with a value, then those without."""
        column = _COLUMNS[self.column]
        if column is None:
            yield self._part(_AGE, after)
            return
        if after is None or after[0] is not None:
            part = self._part((column, *_AGE), after)
            has_value = (column >= _LEAST[column.type.python_type],) if column.nullable else ()
            yield Part((*has_value, *part.where), part.order_by)
            after = None
        if column.nullable:
            part = self._part(_AGE, after and after[1:])
            yield Part((column.is_(None), *part.where), part.order_by)

    def _part(self, columns: Sequence[Any], after: Sequence[Any] | None) -> Part:
        return _after(columns, after, descending=self.descending)


@dataclass(frozen=True)
class LabelOrder:
    """The order of a list of jobs by the value of a label. Otherwise as Order; the age of jobs with equal values is
    that of their uids, in milliseconds."""

    label: str  # its key
    descending: bool

    key_types: ClassVar[tuple[type | UnionType, ...]] = (str | None, int, str)

    def key(self, job: JobRow) -> tuple[Any, ...]:
        """The key of a job in this order."""
        return (job.labels.get(self.label), job.create_us, job.uid)

    def parts(self, after: Sequence[Any] | None) -> Iterator[Part]:
        """The jobs after a key, or all: those with the label, then those without."""
        of_job = _LABELS.c.key == self.label, _LABELS.c.job_uid == JOBS.c.uid
        if after is None or after[0] is not None:
            last = after and (after[0], after[2])
            part = _after((_LABELS.c.value, _LABELS.c.job_uid), last, descending=self.descending)
            yield Part((_LABELS.c.project == JOBS.c.project, *of_job, *part.where), part.order_by)
            after = None
        part = _after(_AGE, after and after[1:], descending=self.descending)
        # PostgreSQL would read all jobs to join them with NOT EXISTS. This looks labels up, job by job, until the page
        # is full.
        value = select(_LABELS.c.value).where(*of_job).correlate(JOBS).scalar_subquery()
        yield Part((value.is_(None), *part.where), part.order_by)


def _after(columns: Sequence[Any], last: Sequence[Any] | None, *, descending: bool) -> Part:
    """The rows after those with these values of the columns, or all, in the order of the columns."""
    order_by = [column.desc() if descending else column.asc() for column in columns]
    if last is None:
        return Part((), order_by)
    keys, values = tuple_(*columns), tuple_(*last)
    return Part((keys < values if descending else keys > values,), order_by)
