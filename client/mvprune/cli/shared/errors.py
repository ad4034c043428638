"""Errors as lines on stderr and exit codes."""

from __future__ import annotations

import re
import sys

from mvprune.cli.shared.exit import ExitCode
from mvprune.cli.shared.text import clean
from mvprune.client.display import advice
from mvprune.client.exceptions import (
    JobCancelled,
    JobFailed,
    NoPointPasses,
    SweepCancelled,
    SweepFailed,
    SweepWaitTimeout,
    WaitTimeout,
)
from mvprune.common.exceptions import (
    AlreadyExists,
    Conflict,
    DestinationNotEmpty,
    FailedPrecondition,
    HubUnreachable,
    InvalidArgument,
    LimitExceeded,
    MlflowUnreachable,
    MvpruneError,
    NotAuthorised,
    NotFound,
    ServerUnreachable,
)


class LocalRefusal(MvpruneError):
    """An error about the files or the packages of this machine."""


_CODES: dict[type[MvpruneError], ExitCode] = {
    InvalidArgument: ExitCode.REFUSED,
    AlreadyExists: ExitCode.REFUSED,
    FailedPrecondition: ExitCode.REFUSED,
    Conflict: ExitCode.REFUSED,
    LimitExceeded: ExitCode.REFUSED,
    DestinationNotEmpty: ExitCode.REFUSED,
    JobFailed: ExitCode.FAILED,
    JobCancelled: ExitCode.CANCELLED,
    WaitTimeout: ExitCode.TIMEOUT,
    SweepFailed: ExitCode.FAILED,
    SweepCancelled: ExitCode.CANCELLED,
    SweepWaitTimeout: ExitCode.TIMEOUT,
    NoPointPasses: ExitCode.GATE,
    ServerUnreachable: ExitCode.UNREACHABLE,
    MlflowUnreachable: ExitCode.UNREACHABLE,
    HubUnreachable: ExitCode.UNREACHABLE,
    NotFound: ExitCode.NOT_FOUND,
    NotAuthorised: ExitCode.NOT_FOUND,
    LocalRefusal: ExitCode.REFUSED,
}
# Fields that are no parameters of a job.
_FLAGS = {
    "filter": "--filter",
    "insecure": "--insecure",
    "issuer.rules": "--rules",
    "order_by": "--order-by",
    "parent": "--project",
    "request_id": "--request-id",
    "token.scope": "--scope",
    "webhook.events": "--events",
}
_NOT_OF_JOBS = ("issuer.", "token.", "webhook.")


class UsageError(Exception):
    """A mistake in the command line; `prog` is the command that can help."""

    def __init__(self, message: str, prog: str) -> None:
        super().__init__(message)
        self.prog = prog


def code_of(error: MvpruneError) -> ExitCode:
    """The exit code for an error."""
    if isinstance(error, JobFailed) and error.job.failure and error.job.failure.reason == "GATE_FAILED":
        return ExitCode.GATE
    return _CODES.get(type(error), ExitCode.ERROR)


def report(error: MvpruneError, job: str = "") -> ExitCode:
    """Prints an error and returns the exit code for it.

    Args:
        job: which of several jobs it is about, if its message does not say that.
    """
    is_named = not job or re.search(rf"(?<![\w.-]){re.escape(job)}(?![\w.-])", str(error))
    about = "" if is_named else f"job {job}: "
    if isinstance(error, InvalidArgument) and error.violations:
        for field, description in error.violations:
            option = _option(field)
            _line(f"error: {about}{field}{f' ({option})' if option else ''}: {description}")
    else:
        _line(f"error: {about}{error}")
    for note in getattr(error, "__notes__", ()):
        _line(f"hint: {note}")
    if isinstance(error, JobFailed) and advice(error.job):
        _line(f"hint: {advice(error.job)}")
    if isinstance(error, WaitTimeout):
        _line(f"wait again: mvpctl wait {error.job.id}")
    if isinstance(error, SweepWaitTimeout):
        _line(f"wait again: mvpctl sweep watch {error.sweep.id}")
    if isinstance(error, ServerUnreachable):
        _line("start a server with `mvpctl server start`, or name another with --address or MVPRUNE_ADDRESS")
    return code_of(error)


def report_usage(error: UsageError) -> ExitCode:
    """Prints a mistake in the command line and returns the exit code for it."""
    _line(f"error: {error}")
    _line(f"see: {error.prog} --help")
    return ExitCode.REFUSED


def report_no_text(error: UnicodeEncodeError) -> ExitCode:
    """Prints that something given is not text, a file's name for example, and returns the exit code for it."""
    _line(f"error: text must be UTF-8, got {error.object!r:.200}")
    return ExitCode.REFUSED


def report_system(error: OSError) -> ExitCode:
    """Prints what this machine refused and returns the exit code for it."""
    _line("error: " + ": ".join(str(part) for part in (error.filename, error.strerror or error) if part))
    return ExitCode.ERROR


def _line(text: str) -> None:
    print(clean(text), file=sys.stderr)


def _option(field: str) -> str:
    """The options that set a field of a request, "" if there are none."""
    from mvprune.spec.lookup import flags_of  # only errors need it

    if "sweep." in field:  # it has its option already, see `sweep.places`
        return ""
    known = _FLAGS.get(field.partition("[")[0], "")
    return known if known or field.startswith(_NOT_OF_JOBS) else flags_of(field)
