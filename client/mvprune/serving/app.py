"""The HTTP application: POST /predict, GET /health, GET /."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mvprune.data.textfiles import DataError
from mvprune.serving.batching import Batcher, ModelFailed, Overloaded, Predictor
from mvprune.serving.hosts import HostCheck
from mvprune.serving.requests import Limits, Refused, parse_inputs, read_body

log = logging.getLogger(__name__)

_RETRY_SECONDS = 1
_RUNTIME = ("runtime", "runtime_reason", "activations", "activations_reason")


def application(
    predictor: Predictor, description: Mapping[str, Any], limits: Limits, host_names: Sequence[str] = ()
) -> Starlette:
    """The application over a model that is loaded. Where the model stops, its `state.failed` becomes True.

    Args:
        predictor: what answers; it is called in one thread.
        description: the JSON of GET /; GET /health returns its `runtime` and `activations` too, with their reasons.
        limits: limits of requests.
        host_names: names by which clients may call the server, besides addresses and localhost.
    """
    batcher = Batcher(predictor, limits.max_batch, limits.max_waiting)
    model: asyncio.Task[None]

    runtime = {name: description[name] for name in _RUNTIME if name in description}

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            made.state.failed = True
            log.critical("the model has stopped, the server ends", exc_info=task.exception())

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        nonlocal model
        model = asyncio.create_task(batcher.run())
        model.add_done_callback(ended)
        yield
        model.cancel()  # no request is left: the server has answered them all
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await model

    async def describe(_: Request) -> JSONResponse:
        return JSONResponse(dict(description))

    async def health(_: Request) -> JSONResponse:
        if model.done():
            return _error(503, "", "the model has stopped")
        return JSONResponse({"status": "ok", "waiting": batcher.waiting, **runtime})

    async def predict(request: Request) -> JSONResponse:
        inputs, listed = parse_inputs(await read_body(request, limits), predictor.fields, limits)
        answers = await batcher.answer(inputs)
        return JSONResponse({"predictions": answers} if listed else answers[0])

    made = Starlette(
        routes=[
            Route("/", describe),
            Route("/health", health),
            Route("/predict", predict, methods=["POST"]),
        ],
        exception_handlers={
            Refused: _refused,
            DataError: _unreadable,
            Overloaded: _overloaded,
            HTTPException: _http_error,
            ModelFailed: _failed,
            ClientDisconnect: _gone,
        },
        middleware=[Middleware(HostCheck, names=host_names)],
        lifespan=lifespan,
    )
    made.state.failed = False
    return made


def _error(status: int, field: str, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": {"field": field, "message": message}}, status, dict(headers or {}))


async def _refused(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Refused)  # noqa: S101 (what it is registered for)
    return _error(error.status, error.field, error.message)


async def _unreadable(_: Request, error: Exception) -> JSONResponse:
    field, message = str(error).split(": ", maxsplit=1)
    return _error(422, field, message)


async def _overloaded(_: Request, error: Exception) -> JSONResponse:
    return _error(503, "", "too many inputs are waiting; try again", {"Retry-After": str(_RETRY_SECONDS)})


async def _http_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101
    allowed = "GET /, GET /health and POST /predict are there"
    return _error(error.status_code, "", f"{error.detail}: {allowed}", error.headers)


async def _gone(_: Request, error: Exception) -> Response:
    return Response(status_code=400)  # for nobody: the connection is closed


async def _failed(_: Request, error: Exception) -> JSONResponse:
    return _error(500, "", "the model failed on this request; the log of the server has the details")
