"""A TCP proxy that misbehaves on demand."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from types import TracebackType
from typing import Self

_CHUNK = 64 << 10


class Proxy:
    """Forwards connections to `target`; the attributes may be changed at any time.

    delay: seconds before each chunk is passed on. silent: nothing is passed on, and connections stay open.
    refusing: connections are cut, new ones too. cut_after: bytes from clients after which it starts refusing.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._open: set[asyncio.StreamWriter] = set()
        self.delay = 0.0
        self.silent = False
        self.refusing = False
        self.cut_after: int | None = None
        self.cuts = 0

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.address = "{}:{}".format(*self._server.sockets[0].getsockname())
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.refusing = True
        self.reset()
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def reset(self) -> None:
        """Cuts all connections as a crash does: with a reset."""
        self.cuts += 1
        self._loop.call_soon_threadsafe(self._reset)

    def refuse(self) -> None:
        """Cuts all connections and takes no new ones until `refusing` is False again."""
        self.refusing = True
        self.reset()

    def _reset(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    async def _end(self) -> None:
        self._server.close()
        serving = asyncio.all_tasks() - {asyncio.current_task()}
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        with contextlib.suppress(OSError):
            if not self.refusing:
                there, back = await asyncio.open_connection(*self._target)
                self._open.add(back)
                await asyncio.gather(self._pump(reader, back, counted=True), self._pump(there, writer, counted=False))
                self._open.discard(back)
        writer.transport.abort()
        self._open.discard(writer)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, counted: bool) -> None:
        try:
            while data := await source.read(_CHUNK):
                await asyncio.sleep(self.delay)
                while self.silent and not self.refusing:  # noqa: ASYNC110 - another thread changes it
                    await asyncio.sleep(0.02)
                if counted and self.cut_after is not None:
                    self.cut_after -= len(data)
                    if self.cut_after < 0:
                        self.cut_after = None
                        self.refuse()
                sink.write(data)
                await sink.drain()
        finally:
            sink.transport.abort() if self.refusing else sink.close()
