"""Several chunks at once, each read, checked and sent by a thread; chunks in the store are committed meanwhile."""

from __future__ import annotations

import hashlib
import os
import queue
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from mvprune.client.sink import Chunk, Sink, Stopped
from mvprune.common.exceptions import UploadError

CONNECTIONS = 4
POLL_SECONDS = 0.1  # how soon a cancelled upload ends
_COMMITTERS = 4
_COMMIT = 2  # chunks that are committed by one call
_TRIES = 3  # of a chunk that the store has wrong


class _Committed(NamedTuple):
    chunks: list[Chunk]
    rejected: set[str]


def send(sink: Sink, chunks: Sequence[Chunk], add: Callable[[int], None], cancelled: threading.Event) -> None:
    """Sends chunks until the server has them, each checked.

    Args:
        chunks: each with another SHA-256.
        add: called with the bytes that were sent, and with a negative number for bytes that are sent again.

    Raises:
        UploadError: a file has changed since its hashes were computed, or cannot be read; the store refuses a chunk, or
            has another one than was sent; or `cancelled` was set.
        ServerUnreachable, RequestRefused.
    """
    tries = Counter[str]()
    left, in_flight, sent = len(chunks), len(chunks), list[Chunk]()
    with closing(_Workers(sink)) as workers:
        for chunk in chunks:
            workers.send(chunk)
        while left:
            if cancelled.is_set():
                raise UploadError("cancelled")
            match workers.next():
                case int() as count:
                    add(count)
                case Chunk() as chunk:
                    in_flight -= 1
                    if not sink.has_urls:
                        left -= 1
                        continue
                    sent.append(chunk)
                case _Committed(done, rejected):
                    left -= len(done) - len(rejected)
                    for chunk in done:
                        if chunk.sha256 in rejected:
                            tries[chunk.sha256] += 1
                            if tries[chunk.sha256] == _TRIES:
                                raise UploadError(f"{chunk.path}: the store has other bytes than were sent to it")
                            add(-chunk.size)
                            in_flight += 1
                            workers.send(chunk)
                case Exception() as error:
                    raise error
            if len(sent) >= _COMMIT or (sent and not in_flight):
                workers.commit(sent)
                sent = []


def read(chunk: Chunk) -> bytes:
    """A chunk of a file. Raises UploadError where the file is another one than was announced."""
    try:
        with Path(chunk.path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(chunk.offset)
            data = file.read(chunk.size)
    except OSError as error:
        raise UploadError(f"{chunk.path}: {error.strerror}") from None
    if size != chunk.file_bytes or hashlib.sha256(data).hexdigest() != chunk.sha256:
        raise UploadError(f"{chunk.path} was changed while it was sent; submit again once nothing writes to it")
    return data


class _Workers:
    """Threads that send chunks, and threads that commit them."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._chunks: queue.SimpleQueue[Chunk | None] = queue.SimpleQueue()
        self._sent: queue.SimpleQueue[list[Chunk] | None] = queue.SimpleQueue()
        self._news: queue.SimpleQueue[int | Chunk | _Committed | Exception] = queue.SimpleQueue()
        self._closed = False
        # Nobody waits for their end: one may hang on a dead connection.
        for target, count in ((self._send_all, CONNECTIONS), (self._commit_all, _COMMITTERS)):
            for _ in range(count):
                threading.Thread(target=target, daemon=True).start()

    def send(self, chunk: Chunk) -> None:
        """Has a chunk sent."""
        self._chunks.put(chunk)

    def commit(self, chunks: list[Chunk]) -> None:
        """Has chunks committed."""
        self._sent.put(chunks)

    def next(self) -> int | Chunk | _Committed | Exception | None:
        """Bytes that were sent, a chunk that is sent, chunks that were committed, or what went wrong; None: nothing
        yet."""
        try:
            return self._news.get(timeout=POLL_SECONDS)
        except queue.Empty:
            return None

    def close(self) -> None:
        """Ends the threads, those that are sending after their next block."""
        self._closed = True
        for _ in range(CONNECTIONS):
            self._chunks.put(None)
        for _ in range(_COMMITTERS):
            self._sent.put(None)

    def _send_all(self) -> None:
        while (chunk := self._chunks.get()) and not self._closed:
            try:
                self._sink.put(chunk, read(chunk), self._add)
            except Exception as error:
                self._news.put(error)
            else:
                self._news.put(chunk)

    def _commit_all(self) -> None:
        while (chunks := self._sent.get()) and not self._closed:
            try:
                rejected = self._sink.commit([chunk.sha256 for chunk in chunks])
            except Exception as error:
                self._news.put(error)
            else:
                self._news.put(_Committed(chunks, rejected))

    def _add(self, count: int) -> None:
        if self._closed:
            raise Stopped
        if count:
            self._news.put(count)
