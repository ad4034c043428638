"""The calls of a port over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc

from mvprune_service.api.access.calls import Calls, Method
from mvprune_service.api.access.errors import ApiError, abort


class Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    """The source of a gRPC server's handlers: each passes its calls on."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._by_method: dict[str, Any] = {}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """The handler of a call's method, None if there is none. gRPC asks at each call."""
        name = handler_call_details.method
        if name not in self._by_method:
            method = self._calls.method(name)
            if method is None:
                return None
            self._by_method[name] = self._handler(method)
        return self._by_method[name]

    def _handler(self, method: Method) -> Any:
        async def answer(_: Any, context: grpc.aio.ServicerContext) -> Any:
            try:
                return await self._calls.call(method, context, context.read)
            except ApiError as error:
                await abort(context, error)

        async def stream(_: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
            try:
                async with aclosing(self._calls.stream(method, context, context.read)) as responses:
                    async for response in responses:
                        yield response
            except ApiError as error:
                await abort(context, error)

        # To gRPC, every method takes a stream of requests. gRPC would wait for a single request without end, and before
        # the caller is identified.
        kind = "stream" if method.has_responses else "unary"
        make = getattr(grpc, f"stream_{kind}_rpc_method_handler")
        return make(stream if method.yields else answer, method.parse, method.serialize)
