"""Exit codes."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of mvpctl."""

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


# Of a command with several jobs: what hides most comes first. First what kept the command from knowing or doing
# something, then how jobs ended, those first that have no result.
_WORST_FIRST = (
    ExitCode.INTERRUPTED,
    ExitCode.UNREACHABLE,
    ExitCode.ERROR,
    ExitCode.NOT_FOUND,
    ExitCode.REFUSED,
    ExitCode.FAILED,
    ExitCode.CANCELLED,
    ExitCode.TIMEOUT,
    ExitCode.GATE,
    ExitCode.OK,
)


def worst(codes: Iterable[ExitCode]) -> ExitCode:
    """The exit code of a command whose jobs have these codes."""
    return min(codes, key=_WORST_FIRST.index)
