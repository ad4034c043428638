"""The open streams: how many a caller may have, and how the server ends them, also while nothing is sent."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import grpc

from mvprune_service.api.access.errors import ApiError
from mvprune_service.observability import metrics

_RETRY_SECONDS = 1.0

Check = Callable[[], Awaitable[object]]  # raises ApiError (UNAUTHENTICATED) once the caller lost its access


class _Stream:
    """An open stream; `error` is the error that ends it."""

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
    """Passes on the responses of streams until `drain`, or until a stream's caller has lost its access.

    Args:
        limit: open streams of each caller; None: no limit.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._open: set[_Stream] = set()
        self._of_owner: Counter[str] = Counter()
        self._draining = False

    @property
    def open(self) -> int:
        """The number of open streams."""
        return len(self._open)

    def drain(self) -> None:
        """Ends all open and later streams with UNAVAILABLE. Clients resume after the last response that they received,
        so none is lost."""
        self._draining = True
        for stream in self._open:
            stream.end(_draining_error())

    async def step(self) -> None:
        """Ends streams whose callers have lost their access, also those that send nothing."""
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
        """Yields `responses`, and closes them at the end. Raises the ApiError that ends the stream early.

        Args:
            owner: the caller that the stream counts for.
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
                # Not while a message is being written: that would interrupt gRPC's own code, which then ends the call.
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
        f"open streams of a caller must be at most {limit}, got one more; end watches, followed logs or downloads that "
        "are not needed, or ask the operator for a higher --max-streams"
    )
    return ApiError(grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_STREAMS", message, retry_seconds=_RETRY_SECONDS)


def _draining_error() -> ApiError:
    message = "the server is stopping; call again, and resume after the last response received"
    return ApiError(grpc.StatusCode.UNAVAILABLE, "SERVER_DRAINING", message, retry_seconds=_RETRY_SECONDS)
