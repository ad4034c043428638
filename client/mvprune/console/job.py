"""The page of one job."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterable
from typing import NamedTuple, TypeVar

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from mvprune.artifact.card import speed_in_words
from mvprune.artifact.report import REPORT_FILE
from mvprune.client import display, download, given, tables
from mvprune.client.models import Artifact, JobRecord
from mvprune.common.units import percent
from mvprune.console.curves import MAX_POINTS, PICTURE_POINTS, as_json, curves_of
from mvprune.console.live import version
from mvprune.console.security import OF_A_REPORT
from mvprune.console.visit import Visit
from mvprune.spec.parameters import PARAMETERS

_MAX_REPORT = 8 << 20  # bytes
_MAX_ROWS = 300  # of events
_T = TypeVar("_T")


class Setting(NamedTuple):
    """A parameter of a job: its value, or in words what holds where it is not set."""

    name: str
    value: str
    is_set: bool
    help: str


async def overview(visit: Visit) -> Response:
    """All that matters of a job."""
    calls, name = visit.calls, visit.job
    job, events, attempts, metrics = await asyncio.gather(
        calls.get(name),
        _all(calls.events(name)),
        _all(calls.attempts(name)),
        calls.curves(name, max_points=PICTURE_POINTS),
    )
    artifact = await calls.artifact(job.artifact) if job.artifact else None
    progress = job.progress
    live = visit.path("live", job=job.id, version=version([job]))
    return visit.page(
        "job.html",
        live="" if job.state.is_terminal else live,
        job=job,
        state=display.state(job),
        share=progress.step / progress.total_steps if progress and progress.total_steps else None,
        fields=[(field, value) for field, value in display.fields(job) if value],
        gates=display.gate_rows(job),
        result_columns=display.RESULT_COLUMNS,
        result=display.result_rows(artifact) if artifact else [],
        speed=speed_in_words(artifact.metrics) if artifact else [],
        has_report=artifact is not None and any(file.path == REPORT_FILE for file in artifact.files),
        uses=uses(job, artifact) if artifact else [],
        curves=curves_of(metrics),
        settings=settings(job),
        attempt_columns=tables.ATTEMPT_COLUMNS,
        attempts=tables.attempt_rows(attempts),
        event_columns=tables.EVENT_COLUMNS,
        events=tables.event_rows(events)[-_MAX_ROWS:],
    )


async def curves(visit: Visit) -> Response:
    """The curves of a job as JSON."""
    return JSONResponse(as_json(curves_of(await visit.calls.curves(visit.job, max_points=MAX_POINTS))))


async def report(visit: Visit) -> Response:
    """The report that the worker wrote into the artifact. It is a page from outside: see OF_A_REPORT."""
    if visit.request.headers.get("sec-fetch-dest", "iframe") != "iframe":
        raise HTTPException(403, "a report is shown in the page of its job")
    artifact = await visit.calls.artifact(visit.job)
    link = visit.session.link
    content = await asyncio.to_thread(download.small_file, link.transport, artifact, REPORT_FILE, _MAX_REPORT)
    return Response(content, media_type="text/html; charset=utf-8", headers=dict(OF_A_REPORT))


def settings(job: JobRecord) -> dict[str, list[Setting]]:
    """The parameters that a job may have, by group; options of other methods are left out."""
    values = given.parameters(job)
    found: dict[str, list[Setting]] = {}
    for name, one in PARAMETERS.items():
        is_set = name in values
        if not is_set and one.methods and job.spec.method not in one.methods:
            continue
        text = given.text_of(one, values[name]) if is_set else one.default or "not set"
        found.setdefault(one.group, []).append(Setting(name, text, is_set, one.help))
    return found


def uses(job: JobRecord, artifact: Artifact) -> list[tuple[str, str]]:
    """What to do with the result, and the commands for it."""
    name = shlex.quote(job.id)
    commands = [
        ("Download it", f"mvpctl download {name} {name}"),
        ("Serve it over HTTP", f"mvpctl serve {name}"),
        ("Measure its speed on this machine", f"mvpctl benchmark {name}"),
        ("Convert it to ONNX", f"mvpctl export {name} {name}-onnx --to onnx"),
        ("Show its layers", f"mvpctl inspect {name}"),
    ]
    python = f'import mvprune\nmodel = mvprune.load("{job.id}", runtime="sparse")'
    return [*commands, (f"In Python, with the {percent(artifact.accounting.density)} that are kept", python)]


async def _all(items: AsyncIterable[_T]) -> list[_T]:
    return [one async for one in items]
