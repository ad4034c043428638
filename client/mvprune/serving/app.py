"""The HTTP application: POST /predict, what it is and how it is, and what writes text or gives vectors."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mvprune.serving import embed, generate, inference, openai, openapi, rerank
from mvprune.serving.batching import Batcher, Predictor
from mvprune.serving.errors import handlers
from mvprune.serving.events import unless_gone
from mvprune.serving.fields import Refused
from mvprune.serving.generations import Generations
from mvprune.serving.hosts import HostCheck
from mvprune.serving.metrics import Measured, Metrics
from mvprune.serving.requests import Limits, parse_inputs, read_body
from mvprune.serving.writing import Writer

log = logging.getLogger(__name__)

_RUNTIME = ("runtime", "runtime_reason", "activations", "activations_reason")


def application(
    predictor: Predictor,
    description: Mapping[str, Any],
    limits: Limits,
    host_names: Sequence[str] = (),
    writer: Writer | None = None,
    width: int = 0,
) -> Starlette:
    """The application over a model that is loaded. Where the model stops, its `state.failed` becomes True. Its
    `state.end` ends the texts that are being written.

    Args:
        predictor: what answers; it is called in one thread.
        description: the JSON of GET /; GET /health returns its `runtime` and `activations` too, with their reasons. Its
            `model` is the name of the model for clients of OpenAI's API.
        limits: limits of requests.
        host_names: names by which clients may call the server, besides addresses and localhost.
        width: numbers of a vector, where the answers are vectors of texts; else 0.
        writer: what answers in place of the predictor, if the answers are texts that the model writes.
    """
    metrics = Metrics()
    generations = writer and Generations(writer, limits, lambda: look())
    batcher = Batcher(predictor, limits.max_batch, limits.max_waiting, metrics)
    answering = generations or batcher
    name = str(description["model"])
    model: asyncio.Task[None]

    runtime = {name: description[name] for name in _RUNTIME if name in description}

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            made.state.failed = True
            log.critical("the model has stopped, the server ends", exc_info=task.exception())

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        nonlocal model
        model = asyncio.create_task(answering.run())
        model.add_done_callback(ended)
        yield
        model.cancel()  # no request is left: the server has answered them all
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await model

    async def describe(_: Request) -> JSONResponse:
        return JSONResponse(dict(description))

    def is_ready() -> bool:
        return not model.done()

    def look() -> None:
        metrics.waiting.set(answering.waiting)
        metrics.running.set(generations.running if generations else 0)

    async def live(_: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    async def ready(_: Request) -> JSONResponse:
        if not is_ready():
            raise Refused(503, "", "the model has stopped")
        return JSONResponse({"status": "ok"})

    async def measured(_: Request) -> Response:
        return metrics.response()

    async def health(_: Request) -> JSONResponse:
        if not is_ready():
            raise Refused(503, "", "the model has stopped")
        running = {"running": generations.running} if generations else {}
        return JSONResponse({"status": "ok", "waiting": answering.waiting, **running, **runtime})

    async def predict(request: Request) -> JSONResponse:
        inputs, listed = parse_inputs(await read_body(request, limits), predictor.fields, limits)
        answers = await unless_gone(request, answering.answer(inputs))
        return JSONResponse({"predictions": answers} if listed else answers[0])

    routes = [
        Route("/", describe),
        Route("/health", health),
        Route("/live", live),
        Route("/ready", ready),
        Route("/metrics", measured),
        Route("/predict", predict, methods=["POST"]),
        *inference.routes(answering.answer, predictor.fields, limits, name, is_ready),
    ]
    if tuple(field.name for field in predictor.fields) == rerank.FIELDS:
        routes += rerank.routes(batcher, limits)
    if writer and generations:
        routes += generate.routes(writer, generations, limits)
        routes += openai.routes(writer, generations, limits, name)
    if width:
        routes += embed.routes(batcher, limits, name, width)
    routes += openapi.routes(routes, predictor.fields, limits, name)
    paths = {route.endpoint: route.path.replace(":path", "") for route in routes}  # of several, the shortest
    made = Starlette(
        routes=routes,
        exception_handlers=handlers(),
        middleware=[
            Middleware(Measured, metrics=metrics, paths=paths, look=look),
            Middleware(HostCheck, names=host_names),
        ],
        lifespan=lifespan,
    )
    made.state.failed = False
    made.state.end = answering.end
    return made
