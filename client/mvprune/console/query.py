"""What a list of jobs shows, as its address says it: so a link, a bookmark and the button Back show the same."""

from __future__ import annotations

from typing import NamedTuple

from mvprune.client.display import COLUMNS
from mvprune.client.filters import all_of, any_of, of_label, quoted
from mvprune.client.models import JobState
from mvprune.common.exceptions import bad_field
from mvprune.console.visit import Visit

STATES = tuple(str(state) for state in JobState if state is not JobState.UNSPECIFIED)
SIZES = (50, 100, 500)
ORDERS = {  # column to the field that ListJobs orders by
    **{name: name for name in ("state", "task", "model", "metric", "difference", "duration", "failure")},
    "age": "create_time",
}


class Query(NamedTuple):
    """The list that an address asks for.

    Attributes:
        filter, order: as ListJobs takes them.
        columns: those that were chosen; (): those that matter.
        states, tasks, labels, text: what `filter` is made of: words of JobState, names of tasks, KEY[=VALUE], and
            a filter as mvpctl list takes it.
        page: of ListJobs; "" for the first one.
    """

    filter: str
    order: str
    columns: tuple[str, ...]
    states: tuple[str, ...]
    tasks: tuple[str, ...]
    labels: tuple[str, ...]
    text: str
    size: int
    page: str


def query_of(visit: Visit) -> Query:
    """The list that the address of a request asks for. Raises InvalidArgument."""
    asked = visit.request.query_params
    states = tuple(one for one in asked.getlist("state") if one)
    for one in states:
        if one not in STATES:
            raise bad_field("state", f"must be one of {', '.join(STATES)}, got {one[:80]!r}")
    columns = tuple(dict.fromkeys(one for one in asked.getlist("column") if one))
    for one in columns:
        if one not in COLUMNS:
            raise bad_field("column", f"must be one of {', '.join(COLUMNS)}, got {one[:80]!r}")
    size = visit.asked("size") or str(SIZES[0])
    if size not in map(str, SIZES):
        raise bad_field("size", f"must be one of {', '.join(map(str, SIZES))}, got {size[:80]!r}")
    tasks = tuple(visit.asked("task").split())
    labels = tuple(visit.asked("label").split())
    text = visit.asked("filter")
    found = all_of(text, any_of("state", states), any_of("task", list(map(quoted, tasks))), *map(_label, labels))
    return Query(found, visit.asked("order"), columns, states, tasks, labels, text, int(size), visit.asked("page"))


def _label(text: str) -> str:
    try:
        return of_label(text)
    except ValueError as error:
        raise bad_field("label", str(error)) from None
