"""Lines of a log: the last ones, and those with a text or of a time."""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Iterator
from typing import NamedTuple

from mvprune_service.api.log_reader import LogReader

READ_BYTES = 8 << 20  # of a log, in one call
MOST_LINES = 10_000  # that a stream may begin with
_SHOWN = 4096  # characters of a line
_LONGEST = 1 << 20  # bytes of a line: what follows is another one
_ANSWER_BYTES = 2 << 20  # clients refuse messages of more than 4 MiB
_STEP = 64 << 10
_TIME = re.compile(rb"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) ")  # as a trainer's lines begin, in UTC


class Line(NamedTuple):
    """A line of a log. `time` is in seconds since the epoch, None if it has none."""

    offset: int
    text: str
    time: int | None


class Wanted(NamedTuple):
    """Which lines: with a text, whatever its case; from a time on, and before another (seconds since the epoch)."""

    query: str
    start: float | None
    end: float | None

    def has(self, line: Line, last: int | None) -> bool:
        """Whether a line is wanted. `last`: the time of the lines up to it, None if none had one."""
        is_in = (self.start is None or (last is not None and last >= self.start)) and (
            self.end is None or last is None or last < self.end
        )
        return is_in and self.query in line.text.casefold()


class Found(NamedTuple):
    """Lines, and where the search has to go on: at this byte, after this time; None: it is at the end."""

    lines: list[Line]
    next: tuple[int, int | None] | None


async def search(logs: LogReader, attempt_uid: str, wanted: Wanted, start: int, last: int | None, most: int) -> Found:
    """Up to `most` lines of a log, from the byte `start` on.

    Args:
        last: the time of the lines before, None if none had one.
    """
    found: list[Line] = []
    offset, rest, read, left = start, b"", 0, _ANSWER_BYTES
    while read < READ_BYTES:
        data = await logs.read(attempt_uid, offset + len(rest))
        read += len(data)
        whole = rest + data
        end = whole.rfind(b"\n") + 1
        if not data or (not end and len(whole) >= _LONGEST):  # the end of the log, or of what counts as one line
            end = len(whole)
        for line in _lines(whole[:end], offset):
            last = line.time if line.time is not None else last
            if wanted.has(line, last):
                if len(found) == most or left < 0:
                    return Found(found, (line.offset, last))
                found.append(line)
                left -= len(line.text.encode())
        offset, rest = offset + end, whole[end:]
        if not data:
            return Found(found, None)
    return Found(found, (offset, last))


async def start_of_tail(logs: LogReader, attempt_uid: str, log_bytes: int, lines: int) -> int:
    """The byte at which the last lines of a log begin. Of a log with long lines fewer: READ_BYTES are read at most."""
    start, tail = log_bytes, b""
    while start > max(0, log_bytes - READ_BYTES):
        before = max(0, start - _STEP)
        tail = await _read(logs, attempt_uid, before, start) + tail
        start = before
        ends = [found.end() for found in re.finditer(rb"\n", tail)]
        if ends and ends[-1] == len(tail):  # the last line's end begins no other line
            ends.pop()
        if len(ends) >= lines:
            return start + ends[-lines]
    return start


async def _read(logs: LogReader, attempt_uid: str, start: int, end: int) -> bytes:
    """The bytes of a log from `start` to `end`; fewer if it is shorter than it was."""
    data = b""
    while start + len(data) < end and (more := await logs.read(attempt_uid, start + len(data))):
        data += more
    return data[: end - start]


def _lines(data: bytes, offset: int) -> Iterator[Line]:
    for line in data.splitlines(keepends=True):
        stamp = _TIME.match(line)
        text = line.decode(errors="replace").rstrip("\r\n")[:_SHOWN]
        yield Line(offset, text, _seconds(stamp[1].decode()) if stamp else None)
        offset += len(line)


def _seconds(text: str) -> int | None:
    try:
        return calendar.timegm(time.strptime(text, "%Y-%m-%d %H:%M:%S"))
    except ValueError:
        return None
