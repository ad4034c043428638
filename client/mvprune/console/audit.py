"""The audit of a project, for those with the scope admin: who changed what, and what was refused."""

from __future__ import annotations

from starlette.responses import Response

from mvprune.client import tables
from mvprune.common.exceptions import InvalidArgument
from mvprune.console.visit import Visit

_ROWS = 200


async def listing(visit: Visit) -> Response:
    """The newest entries that a filter wants."""
    visit.check_admin()
    wanted, problem, entries = visit.asked("filter"), "", []
    try:
        entries = [one async for one in visit.calls.admin.audit(visit.project, filter=wanted, limit=_ROWS)]
    except InvalidArgument as error:
        problem = str(error)
    return visit.page(
        "audit.html",
        status=400 if problem else 200,
        wanted=wanted,
        problem=problem,
        is_cut=len(entries) == _ROWS,
        columns=tables.AUDIT_COLUMNS,
        rows=tables.audit_rows(entries),
    )
