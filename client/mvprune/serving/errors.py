"""Errors as answers: in the form of this server, and for paths below /v1 in OpenAI's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from mvprune.data.textfiles import DataError
from mvprune.serving.batching import ModelFailed, Overloaded
from mvprune.serving.fields import Refused

_RETRY_SECONDS = 1
_OPENAI = "/v1/"


def error_of(request: Request, error: Exception) -> dict[str, Any]:
    """The JSON of an error that is not answered by a status, because an answer has begun."""
    return _content(request, _parts(error))


def handlers() -> Mapping[Any, Any]:
    """The handlers of an application."""

    async def handle(request: Request, error: Exception) -> Response:
        if isinstance(error, ClientDisconnect):
            return Response(status_code=400)  # for nobody: the connection is closed
        parts = _parts(error)
        headers = dict(getattr(error, "headers", None) or {})
        if isinstance(error, Overloaded):
            headers["Retry-After"] = str(_RETRY_SECONDS)
        status = 400 if parts.status == 422 and _is_openai(request) else parts.status
        return JSONResponse(_content(request, parts), status, headers)

    return dict.fromkeys((Refused, DataError, Overloaded, HTTPException, ModelFailed, ClientDisconnect), handle)


def _parts(error: Exception) -> Refused:
    if isinstance(error, Refused):
        return error
    if isinstance(error, DataError):
        field, message = str(error).split(": ", maxsplit=1)
        return Refused(422, field, message)
    if isinstance(error, Overloaded):
        return Refused(503, "", "too many inputs are waiting; try again")
    if isinstance(error, HTTPException):
        return Refused(error.status_code, "", f"{error.detail}: GET /docs lists the endpoints")
    return Refused(500, "", "the model failed on this request; the log of the server has the details")


def _content(request: Request, parts: Refused) -> dict[str, Any]:
    if not _is_openai(request):
        return {"error": {"field": parts.field, "message": parts.message}}
    kind = "invalid_request_error" if parts.status < 500 else "server_error"
    message = f"{parts.field} {parts.message}" if parts.field else parts.message
    return {"error": {"message": message, "type": kind, "param": parts.field or None, "code": parts.code or None}}


def _is_openai(request: Request) -> bool:
    return request.url.path.startswith(_OPENAI)
