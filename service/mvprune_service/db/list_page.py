"""Pages of lists that are short enough to be sorted: all but jobs, whose orders have indexes (job_order.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, tuple_


class ListPage(NamedTuple):
    """Which rows of a list.

    Attributes:
        wanted: the condition of a filter; None: all rows.
        keys: what orders the rows; the last ones make each row's keys its own. Never null.
        descending: the direction of all keys.
        after: the keys of the row before the page; None: it is the first.
        size: rows at most.
    """

    wanted: ColumnElement[bool] | None
    keys: Sequence[Any]
    descending: bool
    after: Sequence[Any] | None
    size: int

    def of(self, rows: Select[Any]) -> Select[Any]:
        """The rows of the page."""
        if self.wanted is not None:
            rows = rows.where(self.wanted)
        if self.after is not None:
            key, last = tuple_(*self.keys), tuple_(*self.after)
            rows = rows.where(key < last if self.descending else key > last)
        return rows.order_by(*(key.desc() if self.descending else key.asc() for key in self.keys)).limit(self.size)
