"""Exit codes."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What mvpctl tells its caller."""

    OK = 0
    ERROR = 1
    REFUSED = 2  # usage, INVALID_ARGUMENT, ALREADY_EXISTS, FAILED_PRECONDITION
    FAILED = 3
    CANCELLED = 4
    GATE = 5  # the result, or every point of a sweep, misses a gate
    TIMEOUT = 6
    UNREACHABLE = 7
    NOT_FOUND = 8  # or not authorised
    INTERRUPTED = 130
