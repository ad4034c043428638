"""What a project can use, and what waits: models and tasks, uploads, the queue, tokens and quotas."""

from __future__ import annotations

from starlette.responses import Response

from mvprune.client import display, tables
from mvprune.console.visit import Visit

_RUNNING = "state = STARTING OR state = RUNNING OR state = FINALIZING OR state = CANCELLING"
_ROWS = 200


async def catalog(visit: Visit) -> Response:
    """Models and tasks that jobs can name."""
    calls = visit.calls
    models, tasks = [one async for one in calls.models()], [one async for one in calls.tasks()]
    return visit.page(
        "catalog.html",
        model_columns=tables.MODEL_COLUMNS,
        models=tables.model_rows(models),
        task_columns=tables.TASK_COLUMNS,
        tasks=tables.task_rows(tasks),
    )


async def uploads(visit: Visit) -> Response:
    """The uploads of a project."""
    found = [one async for one in visit.calls.uploads(limit=_ROWS)]
    return visit.page(
        "uploads.html", columns=tables.UPLOAD_COLUMNS, rows=list(zip(found, tables.upload_rows(found), strict=True))
    )


async def queue(visit: Visit) -> Response:
    """The jobs that run, those that wait and how many are before them; how the server is doing for those who may
    know."""
    link = visit.session.link
    running = await link.jobs(visit.project, _RUNNING, "create_time", _ROWS, "")
    found = await visit.calls.queue(limit=_ROWS)
    status = await visit.calls.admin.server_status() if visit.session.is_operator else None
    return visit.page(
        "queue.html",
        running=[
            (one, display.state(one), display.steps(one.progress), display.details(one.progress))
            for one in running.jobs
        ],
        waiting_columns=tables.QUEUE_COLUMNS,
        waiting=tables.queue_rows(found),
        lines=tables.queue_lines(found),
        server=tables.status_fields(status, link.transport.endpoint.address) if status else [],
        by_state=tables.jobs_by_state(status) if status else [],
        problems=sorted(status.problems.items()) if status else [],
    )


async def admin(visit: Visit) -> Response:
    """Tokens and quotas, for those who may change them."""
    visit.check_admin()
    return await admin_page(visit)


async def admin_page(visit: Visit, secret: str = "") -> Response:
    """The page of tokens and quotas.

    Args:
        secret: of a token that was just made; it is shown this once.
    """
    calls, session = visit.calls, visit.session
    tokens = [one async for one in calls.admin.tokens(visit.project)]
    projects = [one async for one in calls.admin.projects()] if session.is_operator else []
    return visit.page(
        "admin.html",
        secret=secret,
        token_columns=tables.TOKEN_COLUMNS,
        tokens=list(zip(tokens, tables.token_rows(tokens), strict=True)),
        project_columns=tables.PROJECT_COLUMNS,
        projects=tables.project_rows(projects),
        quotas=next((one for one in projects if one.id == visit.project), None),
    )
