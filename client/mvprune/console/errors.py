"""Errors as pages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from mvprune.client.wire import ClientClosed
from mvprune.common.exceptions import (
    AlreadyExists,
    Conflict,
    FailedPrecondition,
    InvalidArgument,
    LimitExceeded,
    MvpruneError,
    NotAuthorised,
    NotFound,
    ServerUnreachable,
)
from mvprune.console.visit import page

log = logging.getLogger(__name__)
_STATUS: Mapping[type[MvpruneError], int] = {
    InvalidArgument: 400,
    NotAuthorised: 403,
    NotFound: 404,
    AlreadyExists: 409,
    Conflict: 409,
    FailedPrecondition: 409,
    LimitExceeded: 429,
    ServerUnreachable: 503,
}
_TITLES = {
    400: "The request is not right",
    401: "You are not logged in",
    403: "That is not allowed",
    404: "There is no such thing",
    405: "That is no page",
    409: "That is not possible now",
    413: "That is too much",
    415: "That is no form",
    421: "The console has another name",
    429: "That was too often",
    500: "The console has failed",
    502: "The server has failed",
    503: "The server does not answer",
}


def status_of(error: MvpruneError) -> int:
    """The HTTP status for an error of the client."""
    return next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 502)


def handlers() -> dict[Any, Callable[[Request, Any], Any]]:
    """What answers in place of a page that failed."""

    async def refused(_: Request, error: MvpruneError) -> Response:
        return _page(status_of(error), str(error), [*getattr(error, "violations", ())])

    async def http(_: Request, error: HTTPException) -> Response:
        return _page(error.status_code, error.detail)

    async def ended(_: Request, __: ClientClosed) -> Response:
        return _page(401, "this session has ended; log in again")

    async def failed(request: Request, error: Exception) -> Response:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return _page(500, "the log of the console says why")

    return {MvpruneError: refused, HTTPException: http, ClientClosed: ended, Exception: failed}


def _page(status: int, message: str, violations: list[Any] | None = None) -> Response:
    title = _TITLES.get(status, "That did not work")
    return page("error.html", status, title=title, message=message, violations=violations or [])
