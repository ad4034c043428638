"""Answers that take long: what is streamed as server-sent events, and clients that hang up before the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from mvprune.serving.batching import ModelFailed

_T = TypeVar("_T")

# Line ends of Unicode, at which some clients would cut an event. In JSON they are only in texts.
_LINE_ENDS = str.maketrans({end: f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"})


def event(data: object, name: str = "") -> str:
    """One server-sent event with JSON, or with a text as it is."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    text = text.translate(_LINE_ENDS)
    return f"event: {name}\ndata: {text}\n\n" if name else f"data: {text}\n\n"


class EventStream(StreamingResponse):
    """Events as they come. Where the client hangs up, their generator is closed.

    Args:
        events: of `event`.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[str, None]) -> None:
        super().__init__(events, headers={"Cache-Control": "no-cache"})
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the answer."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._events.aclose()


async def streamed(request: Request, events: AsyncGenerator[str, None], failed: str) -> EventStream:
    """An answer of events.

    Args:
        request: the request, whose body has been read.
        events: the first is not sent: what is raised before it is an answer of its own.
        failed: the event that is sent where the model fails later.

    Raises:
        ClientDisconnect: the client hung up before the first event.
    """

    async def rest() -> AsyncGenerator[str, None]:
        try:
            async for one in events:
                yield one
        except ModelFailed:
            yield failed
        finally:
            await events.aclose()

    await unless_gone(request, anext(events))
    return EventStream(rest())


async def unless_gone(request: Request, work: Coroutine[Any, Any, _T]) -> _T:
    """What `work` returns, whose body has been read.

    Raises:
        ClientDisconnect: the client hung up before it; `work` is cancelled.
    """
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_hung_up(request))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        gone.cancel()


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
