"""The list of jobs."""

from __future__ import annotations

from typing import NamedTuple

from starlette.responses import Response

from mvprune.client.display import COLUMNS, LIST_COLUMNS, that_matter
from mvprune.client.models import JobRecord
from mvprune.common.exceptions import InvalidArgument
from mvprune.console.live import version
from mvprune.console.query import ORDERS, SIZES, STATES, Query, query_of
from mvprune.console.visit import Visit


class Heading(NamedTuple):
    """The heading of a column; `path` leads to the list in its order, `sorted` is ascending, descending or ""."""

    text: str
    path: str
    sorted: str


async def first(visit: Visit) -> Response:
    """Leads to the first page."""
    return visit.go(visit.session.home or visit.path("jobs"))


async def listing(visit: Visit) -> Response:
    """The jobs of a project."""
    problem = ""
    query, jobs, next_page = Query("", "", (), (), (), (), "", SIZES[0], ""), list[JobRecord](), ""
    try:
        query = query_of(visit)
        found = await visit.session.link.jobs(visit.project, query.filter, query.order, query.size, query.page)
        jobs, next_page = found.jobs, found.next_page
    except InvalidArgument as error:  # shown beside what was typed
        problem = str(error)
    names = list(query.columns) or that_matter(LIST_COLUMNS, jobs)
    rows = [(job, [(name, COLUMNS[name].cell(job)) for name in names]) for job in jobs]
    return visit.page(
        "jobs.html",
        live="" if problem else f"{visit.path('live')}?{visit.query(version=version(jobs))}",
        status=400 if problem else 200,
        problem=problem,
        asked={name: visit.asked(name) for name in ("filter", "task", "label", "order", "size")},
        states=STATES,
        chosen_states=query.states,
        columns=COLUMNS,
        chosen_columns=names,
        sizes=SIZES,
        headings=[_heading(visit, name, query.order) for name in names],
        rows=rows,
        next_page=visit.here(page=next_page) if next_page else "",
        first_page=visit.here(page="") if query.page else "",
    )


def _heading(visit: Visit, name: str, order: str) -> Heading:
    heading = COLUMNS[name].heading
    field = ORDERS.get(name)
    if field is None:
        return Heading(heading, "", "")
    now, _, direction = order.partition(" ")
    state = "" if now != field else "descending" if direction == "desc" else "ascending"
    return Heading(heading, visit.here(order=field if state == "descending" else f"{field} desc", page=""), state)
