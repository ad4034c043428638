"""What has changed, as server-sent events: one stream for a page. A browser then asks for the content again.

What a page shows has a version, which its stream begins with: nothing is missed between the two, or while the server
or the console restarts. A job, or a list of jobs, is watched once for a session, however many pages show it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing

from starlette.responses import Response, StreamingResponse

from mvprune.client.models import JobRecord
from mvprune.client.sweep_models import SweepRecord
from mvprune.client.wire import ClientClosed
from mvprune.common.exceptions import MvpruneError, NotFound
from mvprune.console.query import query_of
from mvprune.console.visit import Visit

PING_SECONDS = 15.0  # proxies close connections that say nothing
_LIST_SECONDS = 0.4  # between two looks at a list that changes
_AGAIN_SECONDS = 2.0  # after the server was away
_MAX_STREAMS = 32  # of a session
_END = "event: end\ndata:\n\n"


def version(jobs: Iterable[JobRecord]) -> str:
    """What jobs look like now, as a short text."""
    shown = "\n".join(f"{one.name} {one.etag} {one.progress}" for one in jobs)
    return hashlib.sha256(shown.encode()).hexdigest()[:16]


def sweep_version(sweep: SweepRecord) -> str:
    """What a sweep looks like now, as a short text."""
    return hashlib.sha256(f"{sweep.name} {sweep.etag} {sweep.counts}".encode()).hexdigest()[:16]


class Feed:
    """One source of changes. `version` is "" until it is known."""

    def __init__(self) -> None:
        self.version = ""
        self.is_over = False
        self.readers = 0
        self.changed = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def tell(self, version: str, *, is_over: bool = False) -> None:
        """Tells all pages, if there is something new."""
        if version != self.version or is_over:
            self.version, self.is_over = version, is_over
            self.changed.set()
            self.changed = asyncio.Event()


Watch = Callable[[Feed], Awaitable[None]]


class Feeds:
    """All streams of a console."""

    def __init__(self) -> None:
        self._feeds: dict[tuple[str, str], Feed] = {}
        self._streams: dict[str, int] = {}
        self._drained = asyncio.Event()

    def drain(self) -> None:
        """Ends all streams, and those to come: a server that ends would wait for them."""
        self._drained.set()

    async def stream(self, session: str, topic: str, seen: str, watch: Watch) -> AsyncGenerator[str, None]:
        """The events of a topic for one page.

        Args:
            seen: the version that the page shows.
            watch: follows the topic, and tells its feed.
        """
        if self._streams.get(session, 0) >= _MAX_STREAMS:
            yield _END
            return
        self._streams[session] = self._streams.get(session, 0) + 1
        feed = self._join(session, topic, watch)
        try:
            yield "retry: 1000\n\n"
            while not self._drained.is_set():
                if feed.version and feed.version != seen:
                    seen = feed.version
                    yield f"id: {seen}\nevent: changed\ndata:\n\n"
                if feed.is_over:
                    yield _END
                    return
                if not await self._change(feed):
                    yield ": still here\n\n"
        finally:
            self._leave(session, topic, feed)

    async def _change(self, feed: Feed) -> bool:
        """Waits for a change, or the end of the console, but not for ever; returns whether there was one."""
        waits = [asyncio.ensure_future(one.wait()) for one in (feed.changed, self._drained)]
        try:
            done, _ = await asyncio.wait(waits, timeout=PING_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
        return bool(done)

    def _join(self, session: str, topic: str, watch: Watch) -> Feed:
        feed = self._feeds.get((session, topic))
        if feed is None or feed.is_over:
            feed = self._feeds[session, topic] = Feed()
            feed.task = asyncio.ensure_future(_follow(feed, watch))
        feed.readers += 1
        return feed

    def _leave(self, session: str, topic: str, feed: Feed) -> None:
        self._streams[session] -= 1
        if not self._streams[session]:
            del self._streams[session]
        feed.readers -= 1
        if feed.readers:
            return
        if self._feeds.get((session, topic)) is feed:
            del self._feeds[session, topic]
        if feed.task is not None:
            feed.task.cancel()


async def _follow(feed: Feed, watch: Watch) -> None:
    """Follows a topic until it is over, over restarts of the server."""
    while not feed.is_over:
        try:
            await watch(feed)
        except (ClientClosed, NotFound):  # logged out; deleted
            feed.tell(feed.version, is_over=True)
        except MvpruneError:
            await asyncio.sleep(_AGAIN_SECONDS)


async def events(visit: Visit) -> Response:
    """The stream of a page. `job` or `sweep` names one; without both the page is a list of jobs, whose parameters come
    along."""
    feeds: Feeds = visit.request.app.state.feeds
    job, sweep, shown = visit.asked("job"), visit.asked("sweep"), visit.asked("version")
    if job:
        topic, watch = f"{visit.project}/jobs/{job}", _job(visit, job)
    elif sweep:
        topic, watch = f"{visit.project}/sweeps/{sweep}", _sweep(visit, sweep)
    else:
        topic, watch = f"{visit.project}?{query_of(visit)}", _list(visit)
    seen = visit.request.headers.get("last-event-id") or shown
    content = feeds.stream(visit.name, topic, seen, watch)
    return StreamingResponse(content, media_type="text/event-stream", headers={"x-accel-buffering": "no"})


def _job(visit: Visit, job: str) -> Watch:
    async def watch(feed: Feed) -> None:
        async with aclosing(visit.calls.watch(f"projects/{visit.project}/jobs/{job}")) as updates:
            async for update in updates:
                feed.tell(version([update.job]), is_over=update.done)

    return watch


def _sweep(visit: Visit, sweep: str) -> Watch:
    async def watch(feed: Feed) -> None:
        found = await visit.calls.get_sweep(f"projects/{visit.project}/sweeps/{sweep}")
        async with aclosing(found.watch()) as changes:
            async for change in changes:
                feed.tell(sweep_version(change), is_over=change.state.is_terminal)

    return watch


def _list(visit: Visit) -> Watch:
    query = query_of(visit)

    async def watch(feed: Feed) -> None:
        async with aclosing(visit.calls.watch_all(filter=query.filter)) as updates:
            async for _ in updates:  # the first one says that changes are noticed from now on
                found = await visit.session.link.jobs(visit.project, query.filter, query.order, query.size, query.page)
                feed.tell(version(found.jobs))
                await asyncio.sleep(_LIST_SECONDS)

    return watch
