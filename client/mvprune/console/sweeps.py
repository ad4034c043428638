"""Sweeps: the list, a sweep with its plots and points, its report."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.responses import Response

from mvprune.client.sweep_models import SweepPoint, SweepRecord
from mvprune.console.live import sweep_version
from mvprune.console.security import OF_A_REPORT
from mvprune.console.visit import Visit
from mvprune.sweep import display
from mvprune.sweep.report.page import sweep_page
from mvprune.sweep.report.plots import MAX_PANELS, Picture, first_plot
from mvprune.sweep.report.results import arrange
from mvprune.sweep.tickets.study import STRATEGY

_ROWS = 50  # of a list
_MAX_POINTS = 500  # rows of a table


async def listing(visit: Visit) -> Response:
    """The sweeps of a project, newest first."""
    found = await visit.session.link.sweeps(visit.project, _ROWS, visit.asked("page"))
    return visit.page(
        "sweeps.html",
        columns=display.LIST_COLUMNS,
        rows=display.list_rows(found.sweeps),
        next_page=visit.here(page=found.next_page) if found.next_page else "",
        first_page=visit.here(page="") if visit.asked("page") else "",
    )


async def overview(visit: Visit) -> Response:
    """All that matters of a sweep."""
    sweep = await visit.calls.get_sweep(visit.sweep)
    points = [point async for point in sweep.points()]
    front = [point for point in points if point.optimal]
    live = visit.path("live", sweep=sweep.id, version=sweep_version(sweep))
    return visit.page(
        "sweep.html",
        live="" if sweep.state.is_terminal else live,
        sweep=sweep,
        state=display.state(sweep),
        done=display.done(sweep),
        fields=[(name, value) for name, value in display.fields(sweep) if value],
        pictures=await asyncio.to_thread(_pictures, sweep, points),
        uses=_uses(sweep),
        front=display.front_grid(front) if front else None,
        points=display.point_grid(points[:_MAX_POINTS]),
        jobs={str(point.number): point.job.rpartition("/")[2] for point in points if point.job},
        left_out=max(0, len(points) - _MAX_POINTS),
    )


async def report(visit: Visit) -> Response:
    """The report of a sweep, without what only its artifacts say. It has a style of its own: see OF_A_REPORT."""
    if visit.request.headers.get("sec-fetch-dest", "iframe") != "iframe":
        raise HTTPException(403, "a report is shown in the page of its sweep")
    sweep = await visit.calls.get_sweep(visit.sweep)
    points = [point async for point in sweep.points()]
    content = await asyncio.to_thread(lambda: sweep_page(arrange(sweep, points), {}))
    return Response(content, media_type="text/html; charset=utf-8", headers=dict(OF_A_REPORT))


def _pictures(sweep: SweepRecord, points: Sequence[SweepPoint]) -> list[Picture]:
    if sweep.spec.strategy == STRATEGY:  # lottery tickets have tables
        return []
    results = arrange(sweep, points)
    return [first_plot(results, panel) for panel in results.panels[:MAX_PANELS]]


def _uses(sweep: SweepRecord) -> list[tuple[str, str]]:
    name = shlex.quote(sweep.id)
    found = [("Write its report, with layers and masks", f"mvpctl sweep report {name} {name}-report")]
    if sweep.recommendation is not None and sweep.recommendation.passed:
        found.insert(0, ("Download the recommended artifact", f"mvpctl sweep download {name} {name}"))
    return found
