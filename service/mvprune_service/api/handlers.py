"""The handler around every RPC of a port. It identifies the caller, authorises the call, checks the request, and turns
exceptions of servicers into statuses.

Not a grpc.aio.ServerInterceptor: one of those costs each small call a tenth of its time.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, aclosing
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import Message

from mvprune_service.api.access import RULES, Caller, authorise, owner_of, subject_of
from mvprune_service.api.auth import Authenticator
from mvprune_service.api.errors import ApiError, Violation, abort, as_api_error, invalid
from mvprune_service.api.inputs import check_request
from mvprune_service.api.limits import RateLimiter
from mvprune_service.api.peers import host_of
from mvprune_service.api.principal import LOCAL, Principal, Scope, set_principal
from mvprune_service.api.shares import Shares
from mvprune_service.api.streams import Streams
from mvprune_service.fair import OWNER
from mvprune_service.observability.logs import SUBJECT

Observe = Callable[[str, grpc.StatusCode, float | None], None]  # method, status, seconds unless it was a stream

_KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
_REQUEST_SECONDS = 10.0  # until the request of a call must have arrived
_REFUSED_SECONDS = 0.2, 0.4  # until a call beyond the rate limit is answered, at least and at most
_PIECE_SECONDS = 60.0  # the same of each piece of what a client sends in several, at once with others
_CALLS, _COSTLY_CALLS = 8, 1  # of a project that are answered at a time: of those that read, and of those that change
_CALLS_IN_ALL, _COSTLY_IN_ALL = 2_000, 16
_UNIT_BYTES = 1 << 10  # of a request: as many more count as another call
_STREAM_UNITS = 3.0  # calls that a stream counts as
_LARGE_BYTES = 16 << 10  # of a request that is checked on another thread, while the event loop answers others
_UNREADABLE = object()
_WITH_TOKEN = (Caller.TOKEN, Caller.ANY_TOKEN, Caller.OPERATOR)


def _ignore(method: str, code: grpc.StatusCode, seconds: float | None) -> None:
    pass


class Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    """The RPCs of a port: servicers are added to it as they would be to a server. It admits calls, and answers for
    those that fail.

    Args:
        authenticator: knows the API tokens; None: callers need none and may do everything.
        limiter: of each caller's calls; None: as many as they like.
        streams: passes on what streams answer.
        observe: called for each call that has ended.
    """

    def __init__(
        self,
        authenticator: Authenticator | None = None,
        limiter: RateLimiter | None = None,
        streams: Streams | None = None,
        observe: Observe = _ignore,
    ) -> None:
        self._authenticator = authenticator
        self._limiter = limiter
        self._streams = streams or Streams()
        self._observe = observe
        self._reads = Shares(_CALLS_IN_ALL, _CALLS)
        self._changes = Shares(_CALLS_IN_ALL, _CALLS)  # apart: some take seconds
        self._costly = Shares(_COSTLY_IN_ALL, _COSTLY_CALLS, "lists and uploads")
        self._added: list[grpc.GenericRpcHandler] = []
        self._by_method: dict[str, Any] = {}

    def add_generic_rpc_handlers(self, handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Adds a service: generated code calls this."""
        self._added += handlers

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Generated code adds each service in this way too."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """What gRPC asks for at each call: the method's handler, None if there is none."""
        method = handler_call_details.method
        if method not in self._by_method:
            found = (inner.service(handler_call_details) for inner in self._added)
            handler = next(filter(None, found), None)
            if handler is None:
                return None
            self._by_method[method] = self._wrap(method, handler)
        return self._by_method[method]

    def _wrap(self, method: str, handler: Any) -> Any:
        kind = next(kind for kind in _KINDS if getattr(handler, kind) is not None)
        inner = getattr(handler, kind)
        has_requests = kind.startswith("stream")

        async def answer(_: Any, context: grpc.aio.ServicerContext) -> Any:
            started = time.perf_counter() if kind == "unary_unary" else None
            try:
                principal = await self._identify(method, context)
                async with AsyncExitStack() as places:
                    await self._take_place(method, principal, places)
                    request = await _receive(context, _PIECE_SECONDS if has_requests else _REQUEST_SECONDS)
                    await self._admit(method, request, principal, is_piece=has_requests)
                    response = await inner(_requests(request, context) if has_requests else request, context)
            except BaseException as error:
                await self._fail(method, context, error, started)
                raise
            self._ended(method, grpc.StatusCode.OK, started)
            return response

        async def stream(requests: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
            try:
                principal = await self._identify(method, context, _STREAM_UNITS)
                request = requests if has_requests else await _receive(context, _REQUEST_SECONDS)
                await self._admit(method, request, principal)
                check, owner = None, host_of(context.peer())  # without tokens streams are counted by address
                if principal and self._authenticator:
                    check, owner = partial(self._authenticator.principal, context), principal.id
                responses = self._streams.relay(method, inner(request, context), check, owner)
                async with aclosing(responses):
                    async for response in responses:
                        if check:
                            await check()  # a revoked token sees no more
                        yield response
            except BaseException as error:
                await self._fail(method, context, error, None)
                raise
            self._ended(method, grpc.StatusCode.OK, None)

        wrapped = stream if inspect.isasyncgenfunction(inner) else answer
        # To gRPC, every method takes a stream of requests. gRPC would wait for a single request without end, and before
        # the caller is identified.
        make = getattr(grpc, f"stream_{kind.partition('_')[2]}_rpc_method_handler")
        return make(wrapped, _careful(handler.request_deserializer), handler.response_serializer)

    async def _identify(self, method: str, context: grpc.aio.ServicerContext, units: float = 1.0) -> Principal | None:
        """Who calls, for methods that are for those with a token. Raises ApiError unless they may call now.

        Args:
            units: calls that this one counts as.
        """
        rule = RULES.get(method)
        if rule is None:
            raise ApiError(grpc.StatusCode.PERMISSION_DENIED, "NO_RULE", f"nobody may call {method}")
        if rule.caller not in _WITH_TOKEN:
            return None
        principal = await self._authenticator.principal(context) if self._authenticator else LOCAL
        await self._spend(principal, units)
        return principal

    async def _spend(self, principal: Principal, units: float) -> None:
        """Raises ApiError if the caller has called too often."""
        if self._limiter:
            try:
                self._limiter.take(principal.id, units)
            except ApiError:
                # A caller that calls again at once would keep the server busy. Equal times would let all that it calls
                # at once come back at once, in front of another's call.
                await asyncio.sleep(random.uniform(*_REFUSED_SECONDS))  # noqa: S311 (no secret)
                raise

    async def _take_place(self, method: str, principal: Principal | None, places: AsyncExitStack) -> None:
        """Waits until the caller's project may make one more call. Its request is not read before. Raises ApiError."""
        if principal is None or self._authenticator is None:
            return
        owner, rule = owner_of(principal), RULES[method]
        shares = self._reads if rule.scope is Scope.READ else self._changes
        await places.enter_async_context(shares.place(owner))
        if rule.is_costly:
            await places.enter_async_context(self._costly.place(owner))

    async def _admit(self, method: str, request: Any, principal: Principal | None, *, is_piece: bool = False) -> None:
        """Raises ApiError unless the caller may make this request. Entries of a request cost time, so its size counts;
        the content of a chunk's piece does not."""
        readable = isinstance(request, Message)
        SUBJECT.set(request if readable else None)
        if request is _UNREADABLE:
            raise _unreadable()
        if principal is not None:
            authorise(RULES[method], principal, request)
            set_principal(principal)
            OWNER.set(subject_of(RULES[method], principal, request))
            if readable and not is_piece and (units := request.ByteSize() // _UNIT_BYTES):
                await self._spend(principal, units)
        if readable:
            if request.ByteSize() > _LARGE_BYTES:
                await asyncio.to_thread(check_request, request)
            else:
                check_request(request)

    async def _fail(
        self, method: str, context: grpc.aio.ServicerContext, error: BaseException, started: float | None
    ) -> None:
        """Tells of a call that raised, and ends it with a status."""
        if isinstance(error, grpc.aio.AbortError):  # a servicer of the library's ended it itself
            self._ended(method, context.code(), started)
        elif isinstance(error, Exception):
            failure = as_api_error(error)
            self._ended(method, failure.code, started)
            await abort(context, failure)
        else:
            self._ended(method, grpc.StatusCode.CANCELLED, started)

    def _ended(self, method: str, code: grpc.StatusCode, started: float | None) -> None:
        self._observe(method, code, None if started is None else time.perf_counter() - started)


async def _receive(context: grpc.aio.ServicerContext, seconds: float) -> Any:
    """The one request of a call, or the first. Raises ApiError where it does not come in time: it would hold its
    connection."""
    request = await _next(context, seconds)
    return _UNREADABLE if request is grpc.aio.EOF else request


async def _requests(first: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
    """The requests of a call that has several. The first decided whether the caller may make it; each is checked."""
    yield first
    while (request := await _next(context, _PIECE_SECONDS)) is not grpc.aio.EOF:
        if request is _UNREADABLE:
            raise _unreadable()
        check_request(request)
        yield request


async def _next(context: grpc.aio.ServicerContext, seconds: float) -> Any:
    try:
        async with asyncio.timeout(seconds):
            return await context.read()
    except TimeoutError:
        message = f"each request of a call must arrive within {seconds:g} s"
        raise ApiError(grpc.StatusCode.DEADLINE_EXCEEDED, "REQUEST_TIMEOUT", message) from None


def _careful(parse: Callable[[bytes], Any] | None) -> Callable[[bytes], Any] | None:
    """Bytes that are no message are the caller's mistake; gRPC itself would call it UNKNOWN."""
    if parse is None:
        return None

    def parse_or_mark(data: bytes) -> Any:
        try:
            return parse(data)
        except Exception:
            return _UNREADABLE

    return parse_or_mark


def _unreadable() -> ApiError:
    return invalid(Violation("request", "cannot be parsed as the message that this method takes"))
