"""The addresses of the console, and what has to be so before one is answered.

Every address of PAGES and ACTIONS is for users who are logged in. An action changes something: it takes a form that a
page of this console has sent, with the token of the session. Only `app` and `login` have what is for everyone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from urllib.parse import quote

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from mvprune.common.exceptions import NotAuthorised, ServerUnreachable
from mvprune.console import actions, audit, compare, job, jobs, logs, places, sending, submit, sweeps, webhooks
from mvprune.console.live import events
from mvprune.console.security import is_own
from mvprune.console.sessions import Session
from mvprune.console.settings import Settings
from mvprune.console.visit import FORM_TOKEN, Visit, read_form

Handler = Callable[[Visit], Awaitable[Response]]
_PAGE_SECONDS = 25.0  # that a page may take: a client of the server would wait longer for a restart
_PROJECT = "/projects/{project}"
_JOB = f"{_PROJECT}/jobs/{{job}}"
_SWEEP = f"{_PROJECT}/sweeps/{{sweep}}"

PAGES: dict[str, Handler] = {
    "/": jobs.first,
    f"{_PROJECT}/jobs": jobs.listing,
    _JOB: job.overview,
    f"{_JOB}/curves.json": job.curves,
    f"{_JOB}/log": logs.page,
    f"{_JOB}/log.txt": logs.text,
    f"{_JOB}/report.html": job.report,
    f"{_PROJECT}/compare": compare.table,
    f"{_PROJECT}/live": events,
    f"{_PROJECT}/submit": submit.form,
    f"{_PROJECT}/sweeps": sweeps.listing,
    _SWEEP: sweeps.overview,
    f"{_SWEEP}/report.html": sweeps.report,
    f"{_PROJECT}/queue": places.queue,
    f"{_PROJECT}/catalog": places.catalog,
    f"{_PROJECT}/uploads": places.uploads,
    f"{_PROJECT}/admin": places.admin,
    f"{_PROJECT}/audit": audit.listing,
    f"{_PROJECT}/webhooks": webhooks.listing,
    f"{_PROJECT}/webhooks/{{webhook}}": webhooks.overview,
}
ACTIONS: dict[str, Handler] = {
    f"{_PROJECT}/submit": submit.send,
    f"{_JOB}/cancel": actions.cancel,
    f"{_JOB}/retry": actions.retry,
    f"{_JOB}/delete": actions.delete,
    f"{_JOB}/update": actions.update,
    f"{_JOB}/share": actions.share,
    f"{_SWEEP}/change": actions.change_sweep,
    f"{_SWEEP}/delete": actions.delete_sweep,
    f"{_SWEEP}/share": actions.share,
    f"{_PROJECT}/uploads/begin": sending.begin,
    f"{_PROJECT}/uploads/{{upload}}/delete": actions.delete_upload,
    f"{_PROJECT}/admin/tokens": actions.create_token,
    f"{_PROJECT}/admin/tokens/{{token}}/revoke": actions.revoke_token,
    f"{_PROJECT}/admin/quotas": actions.set_quotas,
    f"{_PROJECT}/webhooks/new": webhooks.create,
    f"{_PROJECT}/webhooks/{{webhook}}/change": webhooks.change,
    f"{_PROJECT}/webhooks/{{webhook}}/redeliver": webhooks.redeliver,
}

SENDING = f"{_PROJECT}/uploads"
"""Takes the files of a form. It may take as long as they need."""
CHUNK = f"{_PROJECT}/uploads/{{upload}}/chunks/{{chunk}}"
"""Takes a chunk of an upload. Its form token is in a header."""


def routes(settings: Settings) -> list[Route]:
    """The addresses for users who are logged in."""
    pages = [Route(path, _page(settings, handler), methods=["GET"]) for path, handler in PAGES.items()]
    changes = [Route(path, _action(settings, handler), methods=["POST"]) for path, handler in ACTIONS.items()]
    sent = [
        Route(SENDING, _sending(settings), methods=["POST"]),
        Route(CHUNK, _chunk(settings, sending.Room()), methods=["POST"]),
    ]
    return [*pages, *changes, *sent]


def session_of(settings: Settings, request: Request) -> tuple[str, Session] | None:
    """The session of a request, with its name."""
    name = request.cookies.get(settings.cookie, "")
    found = request.app.state.sessions.get(name)
    return None if found is None else (name, found)


def _page(settings: Settings, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        found = session_of(settings, request)
        if found is None:
            return _to_login(request)
        name, session = found
        try:
            return await _in_time(handler(Visit(request, session, name, {})))
        except NotAuthorised as error:
            if error.code != "UNAUTHENTICATED":
                raise
            request.app.state.sessions.end(name)  # the user's token has ended
            return _to_login(request)

    return answer


def _to_login(request: Request) -> Response:
    asked = f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path
    return RedirectResponse(f"/login?next={quote(asked, safe='')}", 303)


def _action(settings: Settings, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        name, session = _own(settings, request)
        form = await read_form(request)
        _check_form_token(session, "".join(form.get(FORM_TOKEN, [])[:1]))
        return await _in_time(handler(Visit(request, session, name, form)))

    return answer


def _sending(settings: Settings) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        name, session = _own(settings, request)
        sending.check_length(request.headers.get("content-length", ""))
        async with request.form(max_files=sending.MAX_FILES, max_fields=4) as form:
            _check_form_token(session, str(form.get(FORM_TOKEN, "")))
            files = [one for one in form.getlist("file") if isinstance(one, UploadFile)]
            return await sending.receive(Visit(request, session, name, {}), files)

    return answer


def _chunk(settings: Settings, room: sending.Room) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        name, session = _own(settings, request)
        _check_form_token(session, request.headers.get("x-form-token", ""))
        return await room.put(Visit(request, session, name, {}))

    return answer


def _own(settings: Settings, request: Request) -> tuple[str, Session]:
    """The session of a request that is to change something, and that a page of this console has sent."""
    found = session_of(settings, request)
    if found is None:
        raise HTTPException(401, "log in first; nothing was changed")
    if not is_own(request):
        raise HTTPException(403, "only a page of this console may change something; nothing was changed")
    return found


def _check_form_token(session: Session, given: str) -> None:
    if not session.has_form_token(given):
        raise HTTPException(403, "the form is of another session; load its page again. Nothing was changed")


async def _in_time(answer: Awaitable[Response]) -> Response:
    try:
        async with asyncio.timeout(_PAGE_SECONDS):
            return await answer
    except TimeoutError:
        raise ServerUnreachable(f"the server did not answer within {_PAGE_SECONDS:g} s") from None
