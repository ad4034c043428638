"""The path of every call of a port, whatever carries it: who calls, may they, do they call too often, is the request
right; then the servicer's answer, or the ApiError that the call ends with.

Not a grpc.aio.ServerInterceptor: one of those costs each small call a tenth of its time. handlers.py is for gRPC.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import grpc
from google.protobuf.message import Message

from mvprune_service.api.access.auth import Authenticator
from mvprune_service.api.access.deadline import Deadline
from mvprune_service.api.access.errors import ApiError, Violation, as_api_error, invalid
from mvprune_service.api.access.inputs import check_request
from mvprune_service.api.access.limits import RateLimiter
from mvprune_service.api.access.peers import Origin, host_of
from mvprune_service.api.access.principal import LOCAL, Principal, Scope, set_principal
from mvprune_service.api.access.recording import Audit, Recording
from mvprune_service.api.access.rules import RULES, Caller, authorise, name_in, owner_of, subject_of
from mvprune_service.api.access.shares import Shares
from mvprune_service.api.access.streams import Streams
from mvprune_service.fair import OWNER
from mvprune_service.observability.logs import SUBJECT

Observe = Callable[[str, grpc.StatusCode, float | None], None]  # method, status, seconds unless it was a stream
Receive = Callable[[], Awaitable[Any]]  # the next request of a call, or UNREADABLE; END after the last

END = grpc.aio.EOF
UNREADABLE = object()
_KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
_REQUEST_SECONDS = 10.0  # until the request of a call must have arrived
_REFUSED_SECONDS = 0.2, 0.4  # until a call beyond the rate limit is answered, at least and at most
_PIECE_SECONDS = 60.0  # the same of each piece of what a client sends in several, at once with others
_CALLS, _COSTLY_CALLS = 8, 1  # of a project that are answered at a time: of those that read, and of those that change
_CALLS_IN_ALL, _COSTLY_IN_ALL = 2_000, 16
_UNIT_BYTES = 1 << 10  # of a request: as many more count as another call
_STREAM_UNITS = 3.0  # calls that a stream counts as
_LARGE_BYTES = 16 << 10  # of a request that is checked on another thread, while the event loop answers others
_WITH_TOKEN = (Caller.TOKEN, Caller.ANY_TOKEN, Caller.OPERATOR)


def _ignore(method: str, code: grpc.StatusCode, seconds: float | None) -> None:
    pass


class Method(NamedTuple):
    """One RPC of a port.

    Attributes:
        name: such as /mvprune.v1.JobService/GetJob.
        answer: the servicer's method, which takes the request, or the requests, and the origin of the call.
        has_requests, has_responses: whether it takes several requests, and has several responses.
        yields: whether it yields its responses: `Calls.stream` calls it, others `Calls.call`.
        parse: bytes to a request, or UNREADABLE.
        serialize: a response to bytes.
    """

    name: str
    answer: Callable[[Any, Any], Any]
    has_requests: bool
    has_responses: bool
    yields: bool
    parse: Callable[[bytes], Any]
    serialize: Callable[[Any], bytes]


class _Observed:
    """Tells of a call, its block, when it has ended. What a servicer raises becomes an ApiError."""

    def __init__(self, observe: Observe, method: Method, origin: Origin) -> None:
        self._observe = observe
        self._method = method
        self._origin = origin

    def __enter__(self) -> None:
        self._started = time.perf_counter()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        method, code, failure = self._method, grpc.StatusCode.CANCELLED, error
        if isinstance(error, grpc.aio.AbortError):  # a servicer of gRPC's own ended the call, through gRPC's context
            code = self._origin.code()  # type: ignore[attr-defined]
        elif isinstance(error, Exception):
            failure = error if isinstance(error, ApiError) else as_api_error(error)
            code = failure.code
        elif error is None:
            code = grpc.StatusCode.OK
        is_stream = method.has_requests or method.has_responses
        self._observe(method.name, code, None if is_stream else time.perf_counter() - self._started)
        if failure is not error and failure is not None:
            raise failure from error


class Calls:
    """Answers the calls of a port. Servicers are added to it as they would be to a server of gRPC.

    Args:
        authenticator: knows the API tokens; None: callers need none and may do everything.
        limiter: of each caller's calls; None: as many as they like.
        streams: passes on what streams answer.
        observe: called for each call that has ended.
        audit: records calls; None: nothing does.
    """

    def __init__(
        self,
        authenticator: Authenticator | None = None,
        limiter: RateLimiter | None = None,
        streams: Streams | None = None,
        observe: Observe = _ignore,
        audit: Audit | None = None,
    ) -> None:
        self._audit = audit
        self._authenticator = authenticator
        self._limiter = limiter
        self._streams = streams or Streams()
        self._observe = observe
        self._reads = Shares(_CALLS_IN_ALL, _CALLS)
        self._changes = Shares(_CALLS_IN_ALL, _CALLS)  # apart: some take seconds
        self._costly = Shares(_COSTLY_IN_ALL, _COSTLY_CALLS, "lists and uploads")
        self._added: list[grpc.GenericRpcHandler] = []
        self._methods: dict[str, Method] = {}

    def add_generic_rpc_handlers(self, handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Adds a service: generated code calls this."""
        self._added += handlers

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Newer generated code adds each service in this way too."""

    def method(self, name: str) -> Method | None:
        """An RPC by its full name, None if the port has none."""
        if name not in self._methods:
            found = (service.service(SimpleNamespace(method=name)) for service in self._added)
            handler = next(filter(None, found), None)
            if handler is None:
                return None
            self._methods[name] = _method(name, handler)
        return self._methods[name]

    async def call(self, method: Method, origin: Origin, receive: Receive) -> Any:
        """The response of a method that does not yield them. Raises ApiError."""
        with _Observed(self._observe, method, origin):
            principal = await self._identify(method.name, origin)
            async with self._place(method.name, principal):
                request = await _next(receive, _PIECE_SECONDS if method.has_requests else _REQUEST_SECONDS)
                async with self._recorded(method.name, principal, origin, request):
                    await self._admit(method.name, request, principal, is_piece=method.has_requests)
                    given = _requests(request, receive) if method.has_requests else request
                    return await method.answer(given, origin)

    async def stream(self, method: Method, origin: Origin, receive: Receive) -> AsyncGenerator[Any, None]:
        """The responses of a method that yields them. Raises ApiError."""
        with _Observed(self._observe, method, origin):
            principal = await self._identify(method.name, origin, _STREAM_UNITS)
            request = _all(receive) if method.has_requests else await _next(receive, _REQUEST_SECONDS)
            async with self._recorded(method.name, principal, origin, request):
                await self._admit(method.name, request, principal)
            check, owner = None, host_of(origin.peer())  # without tokens streams are counted by address
            if principal and self._authenticator:
                check, owner = partial(self._authenticator.principal, origin), principal.id
            responses = self._streams.relay(method.name, method.answer(request, origin), check, owner)
            async with aclosing(responses):
                async for response in responses:
                    if check:
                        await check()  # a revoked token sees no more
                    yield response

    def _recorded(
        self, method: str, principal: Principal | None, origin: Origin, request: Any
    ) -> AbstractAsyncContextManager[object]:
        """Records the call, if the audit has such calls."""
        if self._audit is None or principal is None:
            return nullcontext()
        return Recording(self._audit, method, principal, origin, request)

    async def _identify(self, method: str, origin: Origin, units: float = 1.0) -> Principal | None:
        """Who calls, for methods that are for those with a token. Raises ApiError unless they may call now.

        Args:
            units: calls that this one counts as.
        """
        rule = RULES.get(method)
        if rule is None:
            raise ApiError(grpc.StatusCode.PERMISSION_DENIED, "NO_RULE", f"nobody may call {method}")
        if rule.caller not in _WITH_TOKEN:
            return None
        principal = await self._authenticator.principal(origin) if self._authenticator else LOCAL
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

    def _place(self, method: str, principal: Principal | None) -> AbstractAsyncContextManager[object]:
        """Waits until the caller's project may make one more call. Its request is not read before. Raises ApiError."""
        if principal is None or self._authenticator is None:
            return nullcontext()
        owner, rule = owner_of(principal), RULES[method]
        place = (self._reads if rule.scope is Scope.READ else self._changes).place(owner)
        return _both(place, self._costly.place(owner)) if rule.is_costly else place

    async def _admit(self, method: str, request: Any, principal: Principal | None, *, is_piece: bool = False) -> None:
        """Raises ApiError unless the caller may make this request. Entries of a request cost time, so its size counts;
        the content of a chunk's piece does not."""
        readable = isinstance(request, Message)
        SUBJECT.set(request if readable else None)
        if request is UNREADABLE or request is END:
            raise _unreadable()
        if principal is not None:
            rule = RULES[method]
            authorise(rule, principal, request)
            if principal.resource and self._authenticator and (name := name_in(rule, request)):
                await self._authenticator.check_shown(principal, name)
            set_principal(principal)
            OWNER.set(subject_of(rule, principal, request))
            if readable and not is_piece and (units := request.ByteSize() // _UNIT_BYTES):
                await self._spend(principal, units)
        if readable:
            if request.ByteSize() > _LARGE_BYTES:
                await asyncio.to_thread(check_request, request)
            else:
                check_request(request)


@asynccontextmanager
async def _both(
    first: AbstractAsyncContextManager[object], second: AbstractAsyncContextManager[object]
) -> AsyncIterator[None]:
    async with first, second:
        yield


def _method(name: str, handler: grpc.RpcMethodHandler) -> Method:
    kind = next(kind for kind in _KINDS if getattr(handler, kind) is not None)
    answer = getattr(handler, kind)
    return Method(
        name,
        answer,
        has_requests=kind.startswith("stream"),
        has_responses=kind.endswith("stream"),
        yields=inspect.isasyncgenfunction(answer),
        parse=_careful(handler.request_deserializer),
        serialize=handler.response_serializer,
    )


async def _requests(first: Any, receive: Receive) -> AsyncIterator[Any]:
    """The requests of a call that has several. The first decided whether the caller may make it; each is checked."""
    yield first
    while (request := await _next(receive, _PIECE_SECONDS)) is not END:
        if request is UNREADABLE:
            raise _unreadable()
        check_request(request)
        yield request


async def _all(receive: Receive) -> AsyncIterator[Any]:
    """The requests of a call that answers each of them, whenever they come."""
    while (request := await receive()) is not END:
        if request is UNREADABLE:
            raise _unreadable()
        yield request


async def _next(receive: Receive, seconds: float) -> Any:
    """Raises ApiError where the request does not come in time: it would hold its connection."""
    try:
        with Deadline(seconds):
            return await receive()
    except TimeoutError:
        message = f"each request of a call must arrive within {seconds:g} s"
        raise ApiError(grpc.StatusCode.DEADLINE_EXCEEDED, "REQUEST_TIMEOUT", message) from None


def _careful(parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Bytes that are no message are the caller's mistake; gRPC itself would call it UNKNOWN."""

    def parse_or_mark(data: bytes) -> Any:
        try:
            return parse(data)
        except Exception:
            return UNREADABLE

    return parse_or_mark


def _unreadable() -> ApiError:
    return invalid(Violation("request", "cannot be parsed as the message that this method takes"))
