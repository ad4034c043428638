"""The streams that are open, so that a server that stops can end them with a word of farewell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import grpc

from mvprune_service.api.errors import ApiError
from mvprune_service.observability import metrics

_RETRY_SECONDS = 1.0


class Streams:
    """Passes the responses of streams on, until `drain`."""

    def __init__(self) -> None:
        self.open = 0
        self._draining = False
        self._waiting: set[asyncio.Task[Any]] = set()

    def drain(self) -> None:
        """Ends all streams, and every one to come, with UNAVAILABLE. What was sent stays sent: clients resume after
        it, and what was about to be sent comes then."""
        self._draining = True
        for task in self._waiting:
            task.cancel()

    async def relay(self, method: str, responses: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
        """The same responses, and their end when this ends. Raises ApiError (UNAVAILABLE) once the server drains."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101
        self.open += 1
        metrics.open_streams.labels(method).inc()
        try:
            while not self._draining:
                # Not while a message is being written: gRPC's own code would be interrupted, and end the call its way.
                self._waiting.add(task)
                try:
                    response = await anext(responses)
                except StopAsyncIteration:
                    return
                finally:
                    self._waiting.discard(task)
                yield response
        except asyncio.CancelledError:
            if not self._draining:
                raise
            task.uncancel()
        finally:
            self.open -= 1
            metrics.open_streams.labels(method).dec()
            await responses.aclose()
        message = "the server stops: call again, after what you have seen"
        raise ApiError(grpc.StatusCode.UNAVAILABLE, "SERVER_DRAINING", message, retry_seconds=_RETRY_SECONDS)
