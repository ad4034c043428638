"""Where the chunks of an upload go: to the store by HTTP where the server can give URLs, else through the server
itself."""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from mvprune.client.http import Putter
from mvprune.client.transport import Patience, Transport
from mvprune.client.wire import run
from mvprune.common.exceptions import UploadError
from mvprune.v1 import upload_pb2

_Url = upload_pb2.GenerateChunkUrlsResponse.Url

STALL_SECONDS = 60.0
_PUT_SECONDS = 900.0  # for one chunk through the server: 10 kB/s
BLOCK = 1 << 20  # the most that the server takes in one message
_URLS = 32  # that are requested at once: they expire


class Chunk(NamedTuple):
    """A chunk that the store lacks: its SHA-256, and where it is in a file of this machine."""

    sha256: str
    path: str
    offset: int
    size: int
    file_bytes: int


class Stopped(Exception):
    """Nothing more is to be sent."""


class Sink:
    """Takes the chunks of one upload; may be shared by threads.

    Args:
        transport: over a blocking wire.
        upload: its name.
        missing: SHA-256 of the chunks that will be sent, in this order.

    Raises:
        ServerUnreachable, RequestRefused.
    """

    def __init__(self, transport: Transport, upload: str, missing: Sequence[str]) -> None:
        self._transport = transport
        self._upload = upload
        self._next = list(missing)
        self._answered = False
        self._asking = threading.Lock()
        self._own = threading.local()
        self._urls = self._ask_for_urls(self._next[:_URLS])

    @property
    def has_urls(self) -> bool:
        """Whether chunks go to the store itself, and have to be committed."""
        return bool(self._urls)

    def put(self, chunk: Chunk, data: bytes, add: Callable[[int], None]) -> None:
        """Sends one chunk, over as many connections as it takes.

        Args:
            add: called with the bytes that were sent, and with a negative number for those that are sent again. Raises
                Stopped to end the sending.

        Raises:
            UploadError, ServerUnreachable, RequestRefused.
        """
        sent = 0

        def blocks() -> Iterator[bytes]:
            nonlocal sent
            add(-sent)  # of an earlier try
            sent = 0
            for start in range(0, len(data), BLOCK):
                block = data[start : start + BLOCK]
                yield block
                sent += len(block)
                add(len(block))

        if self.has_urls:
            self._to_store(chunk, blocks, len(data))
        else:
            self._to_server(chunk, blocks)

    def commit(self, chunks: Sequence[str]) -> set[str]:
        """Has the server check chunks that are in the store. Returns those that have to be sent again."""
        request = upload_pb2.CommitChunksRequest(name=self._upload, chunks=chunks)
        return set(run(self._transport.call(self._transport.uploads.CommitChunks, request)).rejected)

    def _to_store(self, chunk: Chunk, blocks: Callable[[], Iterator[bytes]], size: int) -> None:
        if not hasattr(self._own, "putter"):
            self._own.putter = Putter(STALL_SECONDS)
        patience = Patience(known=self._answered)
        stale = ""
        while (to := self._url(chunk.sha256, stale)).url:
            try:
                self._own.putter.put(to.url, blocks(), size, to.headers)
            except (OSError, http.client.HTTPException) as error:
                refused = UploadError(f"{chunk.path}: the store does not take it: {error or type(error).__name__}")
                time.sleep(patience.delay_or_raise(refused))
                stale = to.url  # it may have expired
            else:
                self._answered = True
                return

    def _to_server(self, chunk: Chunk, blocks: Callable[[], Iterator[bytes]]) -> None:
        def messages() -> Iterator[upload_pb2.PutChunkRequest]:
            names = {"name": self._upload, "chunk": chunk.sha256}
            with contextlib.suppress(Stopped):  # gRPC would log it
                for block in blocks():
                    yield upload_pb2.PutChunkRequest(**names, data=block)
                    names = {}

        def put(request: None, timeout: float) -> Any:
            return self._transport.uploads.PutChunk(messages(), timeout=max(timeout, _PUT_SECONDS))

        run(self._transport.call(put, None))

    def _url(self, chunk: str, stale: str) -> _Url:
        """The URL of a chunk, a new one in place of a stale one; an empty one where the server has the chunk by now,
        from another client."""
        with self._asking:
            if self._urls.get(chunk, _Url(url=stale)).url == stale:
                at = self._next.index(chunk)
                wanted = [chunk] if stale else [one for one in self._next[at : at + _URLS] if one not in self._urls]
                self._urls = {**self._urls, chunk: _Url(), **self._ask_for_urls(wanted)}
            return self._urls.get(chunk, _Url())

    def _ask_for_urls(self, chunks: Sequence[str]) -> dict[str, _Url]:
        request = upload_pb2.GenerateChunkUrlsRequest(name=self._upload, chunks=chunks)
        answer = run(self._transport.call(self._transport.uploads.GenerateChunkUrls, request))
        return {found.chunk: found for found in answer.urls}
