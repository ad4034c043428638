"""The HTTP application: each request is a call of `Calls`, as one of gRPC is."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing, suppress
from typing import Any

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from mvprune.common.addresses import is_loopback
from mvprune_service.api.access.calls import END, Calls
from mvprune_service.api.access.errors import ApiError, Violation, invalid
from mvprune_service.api.rest import messages, openapi
from mvprune_service.api.rest.routes import Route, find

_BODY_BYTES = 2 << 20  # as a message of gRPC
_PIECE_BYTES = 1 << 20  # of a chunk that is sent
_JSON, _LINES, _EVENTS = "application/json", "application/x-ndjson", "text/event-stream"
_BYTES = ("application/octet-stream", "text/plain")
_FIRST_SECONDS = 1.0  # until the headers of a stream are sent, though it has no response yet
_LARGE_BYTES = 16 << 10  # of a response that another thread writes
_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


class _Caller:
    """Where a request comes from, as `Origin` has it."""

    def __init__(self, request: Request) -> None:
        host, port = request.client or ("", 0)
        kind, place = ("ipv6", f"[{host}]") if ":" in host else ("ipv4", host)
        self._peer = f"{kind}:{place}:{port}"
        self._headers = tuple(request.headers.items())

    def peer(self) -> str:
        """The caller's address."""
        return self._peer

    def invocation_metadata(self) -> Any:
        """The headers."""
        return self._headers


class RestApp:
    """The ASGI application of the API.

    Args:
        calls: answers the calls of the clients' port.
        services: of the contract.
        is_open: whether callers need no token. Then only requests to this machine's own names are answered: a web page
            may give a name of its own this server's address (DNS rebinding).
    """

    def __init__(self, calls: Calls, services: Iterable[ServiceDescriptor], *, is_open: bool) -> None:
        self._calls = calls
        self._is_open = is_open
        methods = {f"/{service.full_name}/{method.name}": method for service in services for method in service.methods}
        self._methods = methods
        self._openapi = openapi.document(methods)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except ApiError as error:
            response = _refusal(error)
        except ClientDisconnect:
            return
        with suppress(ApiError):  # of a stream of bytes, which has begun: its connection is closed before its end
            await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise _denied("CROSS_SITE", "pages of other sites may not call the API")
        if self._is_open and not is_loopback(request.url.hostname or ""):
            raise _denied("OTHER_HOST", "the Host must be localhost or a loopback address, as callers need no token")
        if request.method == "GET" and request.url.path in ("/v1/openapi.json", "/"):
            return Response(self._openapi, headers=_HEADERS, media_type=_JSON)
        found = find(request.method, request.url.path)
        if isinstance(found, set):
            return _no_route(request, found)
        route, path = found
        method = self._calls.method(route.rpc)
        if method is None:  # this server does not have the service
            return _no_route(request, set())
        message = messages.new(self._methods[route.rpc].input_type)
        given = _pieces(request, message, path) if method.has_requests else _one(request, route, message, path)

        async def asked() -> Any:
            return await anext(given, END)

        caller = _Caller(request)
        if method.yields:
            return await _streamed(self._calls.stream(method, caller, asked), request)
        return await _whole(await self._calls.call(method, caller, asked))


async def _one(request: Request, route: Route, message: Any, path: Mapping[str, str]) -> AsyncIterator[Any]:
    if route.method in ("GET", "DELETE"):
        messages.from_query(message, request.query_params.multi_items(), path)
        yield message
        return
    if request.query_params:
        raise invalid(Violation("query", "must be empty: fields are in the body"))
    body = bytearray()
    async for data in request.stream():
        body += data
        if len(body) > _BODY_BYTES:
            raise messages.too_large(_BODY_BYTES)
    # Pages of other sites can send other types without asking the server first.
    if body and request.headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
        raise invalid(Violation("Content-Type", f"must be {_JSON}"))
    await asyncio.to_thread(messages.from_body, message, bytes(body), path)
    yield message


async def _pieces(request: Request, message: Any, path: Mapping[str, str]) -> AsyncIterator[Any]:
    """A body of bytes as requests that have its parts in the field `data`; the first one has the path's fields."""
    if request.headers.get("content-type", "") != _BYTES[0]:
        raise invalid(Violation("Content-Type", f"must be {_BYTES[0]}"))
    is_first = True
    async for data in request.stream():
        for start in range(0, len(data), _PIECE_BYTES):
            fields = dict(path) if is_first else {}
            yield type(message)(**fields, data=data[start : start + _PIECE_BYTES])
            is_first = False
    if is_first:
        yield type(message)(**path)


async def _whole(message: Message) -> Response:
    return Response(await _json(message), headers=_HEADERS, media_type=_JSON)


async def _json(message: Message) -> bytes:
    if message.ByteSize() > _LARGE_BYTES:
        return await asyncio.to_thread(messages.to_json, message)
    return messages.to_json(message)


class _Pump:
    """Reads the responses of a stream in a task of its own, one ahead: `Streams` ends a stream through its task."""

    def __init__(self, responses: Any) -> None:
        self._read: asyncio.Queue[Message | ApiError | None] = asyncio.Queue(1)
        self._task = asyncio.create_task(self._run(responses))

    async def next(self) -> Message | ApiError | None:
        """The next response, or the error that the stream ends with; None: it has ended."""
        return await self._read.get()

    def close(self) -> None:
        """Ends the stream."""
        self._task.cancel()

    async def _run(self, responses: Any) -> None:
        try:
            async with aclosing(responses):
                async for message in responses:
                    await self._read.put(message)
        except ApiError as error:
            await self._read.put(error)
        else:
            await self._read.put(None)


async def _streamed(responses: Any, request: Request) -> Response:
    """A stream, in the form that the caller accepts. What fails before its first response has a status of its own."""
    accept = request.headers.get("accept", "")
    form = next((one for one in (*_BYTES, _EVENTS) if accept.startswith(one)), _LINES)
    pump = _Pump(responses)
    first = asyncio.ensure_future(pump.next())
    await asyncio.wait({first}, timeout=_FIRST_SECONDS)
    if first.done() and isinstance(error := first.result(), ApiError):
        raise error
    return _Stream(pump, _written(pump, first, form), form)


class _Stream(StreamingResponse):
    """The response with a stream, which ends with it, whether or not the response has begun."""

    def __init__(self, pump: _Pump, body: AsyncIterator[bytes], form: str) -> None:
        super().__init__(body, headers=_HEADERS, media_type=form)
        self._pump = pump

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._pump.close()


async def _written(pump: _Pump, first: asyncio.Future[Any], form: str) -> AsyncIterator[bytes]:
    found = await first
    while isinstance(found, Message):
        yield await _part(found, form)
        found = await pump.next()
    if found is not None:
        if form in _BYTES:
            raise found  # a part must not be taken for the whole
        yield _framed(messages.error_body(found, messages.http_status(found)), form)


async def _part(message: Any, form: str) -> bytes:
    if form not in _BYTES:
        return _framed(await _json(message), form)
    return bytes(message.data) if "data" in message.DESCRIPTOR.fields_by_name else await _json(message)


def _framed(line: bytes, form: str) -> bytes:
    return b"data: " + line + b"\n\n" if form == _EVENTS else line + b"\n"


def _denied(reason: str, message: str) -> ApiError:
    return ApiError(grpc.StatusCode.PERMISSION_DENIED, reason, message)


def _no_route(request: Request, methods: set[str]) -> Response:
    if methods:
        code, reason, status = grpc.StatusCode.UNIMPLEMENTED, "WRONG_METHOD", 405
        message = f"{request.url.path[:200]} has {', '.join(sorted(methods))}, and not {request.method}"
    else:
        code, reason, status = grpc.StatusCode.NOT_FOUND, "NO_ROUTE", 404
        message = f"the API has no {request.url.path[:200]}; /v1/openapi.json describes what it has"
    allow = {"allow": ", ".join(sorted(methods))} if methods else {}
    return _refusal(ApiError(code, reason, message), status, allow)


def _refusal(error: ApiError, status: int | None = None, headers: Mapping[str, str] | None = None) -> Response:
    own = dict(headers or {})
    if error.retry_seconds is not None:
        own["retry-after"] = str(math.ceil(error.retry_seconds))
    if error.code is grpc.StatusCode.UNAUTHENTICATED:
        own["www-authenticate"] = "Bearer"
    status = status or messages.http_status(error)
    return Response(messages.error_body(error, status), status, headers=_HEADERS | own, media_type=_JSON)
