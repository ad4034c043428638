"""The one interceptor: each costs a tenth of a small call, so one does it all.

It finds out who calls and whether they may, checks what they sent, and turns what servicers raise into statuses.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from types import TracebackType
from typing import Any

import grpc
from google.protobuf.message import Message

from mvprune_service.api.access import RULES, Caller, authorise
from mvprune_service.api.auth import Authenticator
from mvprune_service.api.errors import ApiError, Violation, abort, as_api_error, invalid
from mvprune_service.api.inputs import check_request
from mvprune_service.api.limits import RateLimiter
from mvprune_service.api.principal import LOCAL, set_principal
from mvprune_service.api.streams import Streams
from mvprune_service.observability.logs import SUBJECT

Observe = Callable[[str, grpc.StatusCode, float | None], None]  # method, status, seconds unless it was a stream

_KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
_UNREADABLE = object()
_WITH_TOKEN = (Caller.TOKEN, Caller.ANY_TOKEN, Caller.OPERATOR)


def _ignore(method: str, code: grpc.StatusCode, seconds: float | None) -> None:
    pass


class Interceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Admits calls, and answers for those that fail.

    Args:
        authenticator: knows the API tokens; None: callers need none and may do everything.
        limiter: of each caller's calls; None: as many as they like.
        streams: passes on what streams answer.
        observe: is told of each call that has ended.
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
        self.observe = observe
        self._handlers: dict[str, Any] = {}  # by method

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        method = handler_call_details.method
        handler = self._handlers.get(method)
        if handler is None:
            inner = await continuation(handler_call_details)
            if inner is None:
                return None
            handler = self._handlers[method] = self._wrap(method, inner)
        return handler

    def _wrap(self, method: str, handler: Any) -> Any:
        kind = next(kind for kind in _KINDS if getattr(handler, kind) is not None)
        inner = getattr(handler, kind)
        asks = method in RULES and RULES[method].caller in _WITH_TOKEN

        async def answer(request: Any, context: grpc.aio.ServicerContext) -> Any:
            async with _Call(self, method, request, context, timed=kind == "unary_unary"):
                return await inner(request, context)

        async def stream(request: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
            responses = self._streams.relay(method, inner(request, context))
            async with _Call(self, method, request, context, timed=False), aclosing(responses):
                async for response in responses:
                    if asks and self._authenticator:
                        await self._authenticator.principal(context)  # a revoked token sees no more
                    yield response

        wrapped = stream if inspect.isasyncgenfunction(inner) else answer
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        return make(wrapped, _careful(handler.request_deserializer), handler.response_serializer)

    async def admit(self, method: str, request: Any, context: grpc.aio.ServicerContext) -> None:
        """Raises ApiError unless the caller may make this call."""
        rule = RULES.get(method)
        if rule is None:
            raise ApiError(grpc.StatusCode.PERMISSION_DENIED, "NO_RULE", f"nobody may call {method}")
        if rule.caller in _WITH_TOKEN:
            principal = await self._authenticator.principal(context) if self._authenticator else LOCAL
            if self._limiter:
                self._limiter.take(principal.id)
            if request is _UNREADABLE:
                raise _unreadable()
            authorise(rule, principal, request)
            set_principal(principal)
        if isinstance(request, Message):
            check_request(request)
        elif request is _UNREADABLE:
            raise _unreadable()


class _Call:
    """`async with`: a call that is admitted, answered for if it fails, and observed. (A generator-based context costs
    small calls a twentieth of their time.)"""

    def __init__(
        self, interceptor: Interceptor, method: str, request: Any, context: grpc.aio.ServicerContext, *, timed: bool
    ) -> None:
        self._interceptor = interceptor
        self._method = method
        self._request = request
        self._context = context
        self._timed = timed

    async def __aenter__(self) -> None:
        self._started = time.perf_counter()
        SUBJECT.set(self._request if isinstance(self._request, Message) else None)
        try:
            await self._interceptor.admit(self._method, self._request, self._context)
        except Exception as error:
            await self._end(error)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end(error)

    async def _end(self, error: BaseException | None) -> None:
        seconds = time.perf_counter() - self._started if self._timed else None
        failure = None
        if error is None:
            code = grpc.StatusCode.OK
        elif isinstance(error, grpc.aio.AbortError):  # a servicer of the library's ended it itself
            code = self._context.code()
        elif isinstance(error, Exception):
            failure = as_api_error(error)
            code = failure.code
        else:
            code = grpc.StatusCode.CANCELLED
        self._interceptor.observe(self._method, code, seconds)
        if failure is not None:
            await abort(self._context, failure)


def _careful(parse: Callable[[bytes], Any] | None) -> Callable[[bytes], Any] | None:
    """Bytes that are no message are the caller's mistake; gRPC itself would call it UNKNOWN."""
    if parse is None:
        return None

    def parse_or_tell(data: bytes) -> Any:
        try:
            return parse(data)
        except Exception:
            return _UNREADABLE

    return parse_or_tell


def _unreadable() -> ApiError:
    return invalid(Violation("request", "cannot be parsed as the message that this method takes"))
