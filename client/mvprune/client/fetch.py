"""Several parts of files at once, each by a thread; what they bring is put together by the thread that waits."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import closing

from mvprune.client.parts import FileInParts, Part
from mvprune.client.source import Source
from mvprune.common.exceptions import DownloadError, IntegrityError

CONNECTIONS = 4
POLL_SECONDS = 0.1  # how soon a cancelled download ends


def fetch(source: Source, files: Sequence[FileInParts], add: Callable[[int], None], cancelled: threading.Event) -> None:
    """Brings files to their ends, verified.

    Args:
        add: called with the bytes that are there, and with a negative number for bytes that were no good.

    Raises:
        IntegrityError: the bytes of a file are wrong.
        DownloadError, ServerUnreachable, RequestRefused: a part cannot be fetched; or `cancelled` was set.
    """
    with closing(_Workers(source)) as workers:
        left = set()
        for file in files:
            add(file.present)
            if workers.order(file) or not _is_done(file, workers, add):
                left.add(file)
        while left:
            if cancelled.is_set():
                raise DownloadError("cancelled")
            match workers.next():
                case Part(of=file) if file in left and _is_done(file, workers, add):
                    left.remove(file)
                case int() as count:
                    add(count)
                case Exception() as error:
                    raise error


def _is_done(file: FileInParts, workers: _Workers, add: Callable[[int], None]) -> bool:
    """Whether a file is whole and verified. One that an earlier run left wrong is ordered again, once."""
    try:
        return file.advance()
    except IntegrityError:
        if not file.resumed:
            raise
    file.clear()
    add(-file.wanted.size_bytes)
    workers.order(file)
    return False


class _Workers:
    """Threads that fetch parts."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._orders: queue.SimpleQueue[Part | None] = queue.SimpleQueue()
        self._news: queue.SimpleQueue[int | Part | Exception] = queue.SimpleQueue()
        self._writing = threading.Lock()
        self._closed = False
        for _ in range(CONNECTIONS):
            # Nobody waits for their end: one may hang on a dead connection, and writes nothing any more.
            threading.Thread(target=self._work, daemon=True).start()

    def order(self, file: FileInParts) -> bool:
        """Has the missing parts of a file fetched; False if there are none."""
        parts = file.missing_parts()
        for part in parts:
            self._orders.put(part)
        return bool(parts)

    def next(self) -> int | Part | Exception | None:
        """Bytes that were written, a part that is whole, or what went wrong; None: nothing yet."""
        try:
            return self._news.get(timeout=POLL_SECONDS)
        except queue.Empty:
            return None

    def close(self) -> None:
        """Nothing is written from now on."""
        with self._writing:
            self._closed = True
        for _ in range(CONNECTIONS):
            self._orders.put(None)

    def _work(self) -> None:
        while (part := self._orders.get()) and not self._closed:
            try:
                self._fetch(part)
            except Exception as error:
                self._news.put(error)
            else:
                self._news.put(part)

    def _fetch(self, part: Part) -> None:
        wanted, at = part.of.wanted, part.start + part.place.size
        with part.place.open("ab") as out, closing(self._source.blocks(wanted, at, part.end)) as blocks:
            for block in blocks:
                with self._writing:
                    if self._closed:
                        return
                    out.write(block)
                    out.flush()
                at += len(block)
                self._news.put(len(block))
        if at < part.end:
            text = f"{wanted.path}: the bytes received do not have the SHA-256 {wanted.sha256}"
            raise IntegrityError(f"{text}: they end after {at} of {wanted.size_bytes}")
