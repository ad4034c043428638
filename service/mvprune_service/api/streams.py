"""Open streams. The server can end each with an error, even one that is silent."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import grpc

from mvprune_service.api.errors import ApiError
from mvprune_service.observability import metrics

_RETRY_SECONDS = 1.0

Check = Callable[[], Awaitable[object]]  # raises ApiError (UNAUTHENTICATED) once the caller may see no more


class _Stream:
    """An open stream; `error` is what it ends with."""

    def __init__(self, owner: str, task: asyncio.Task[Any], check: Check | None, error: ApiError | None) -> None:
        self.owner = owner
        self.task = task
        self.check = check
        self.error = error
        self.is_waiting = False

    def end(self, error: ApiError) -> None:
        self.error = error
        if self.is_waiting:
            self.task.cancel()


class Streams:
    """Passes the responses of streams on, until `drain`, or until one's caller may see no more.

    Args:
        limit: streams that a caller may have open at a time; None: as many as they like.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._open: set[_Stream] = set()
        self._of_owner: Counter[str] = Counter()
        self._draining = False

    @property
    def open(self) -> int:
        """How many."""
        return len(self._open)

    def drain(self) -> None:
        """Ends all streams, and every one to come, with UNAVAILABLE. What was sent stays sent: clients resume after
        it, and what was about to be sent comes then."""
        self._draining = True
        for stream in self._open:
            stream.end(_draining_error())

    async def step(self) -> None:
        """Ends those whose callers may see no more: one that is silent would not notice by itself."""
        for stream in tuple(self._open):
            try:
                if stream.check is not None:
                    await stream.check()
            except ApiError as error:
                if error.code is grpc.StatusCode.UNAUTHENTICATED:
                    stream.end(error)

    async def relay(
        self, method: str, responses: AsyncGenerator[Any, None], check: Check | None = None, owner: str = ""
    ) -> AsyncGenerator[Any, None]:
        """The same responses, and their end when this ends. Raises the ApiError that ends it before.

        Args:
            owner: who called, for whom streams are counted.
        """
        task = asyncio.current_task()
        assert task is not None  # noqa: S101
        if self._limit is not None and self._of_owner[owner] >= self._limit:
            await responses.aclose()
            raise _too_many(self._limit)
        stream = _Stream(owner, task, check, _draining_error() if self._draining else None)
        self._open.add(stream)
        self._of_owner[owner] += 1
        metrics.open_streams.labels(method).inc()
        try:
            while stream.error is None:
                # Not while a message is being written: gRPC's own code would be interrupted, and end the call its way.
                stream.is_waiting = True
                try:
                    response = await anext(responses)
                except StopAsyncIteration:
                    return
                finally:
                    stream.is_waiting = False
                yield response
        except asyncio.CancelledError:
            if stream.error is None:
                raise
            task.uncancel()
        finally:
            self._close(stream)
            metrics.open_streams.labels(method).dec()
            await responses.aclose()
        raise stream.error

    def _close(self, stream: _Stream) -> None:
        self._open.discard(stream)
        self._of_owner[stream.owner] -= 1
        if not self._of_owner[stream.owner]:
            del self._of_owner[stream.owner]


def _too_many(limit: int) -> ApiError:
    message = (
        f"open streams must be at most {limit} for one caller: end watches, followed logs or downloads that are not "
        "needed, or ask the operator for a higher --max-streams"
    )
    return ApiError(grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_STREAMS", message, retry_seconds=_RETRY_SECONDS)


def _draining_error() -> ApiError:
    message = "the server stops: call again, after what you have seen"
    return ApiError(grpc.StatusCode.UNAVAILABLE, "SERVER_DRAINING", message, retry_seconds=_RETRY_SECONDS)
