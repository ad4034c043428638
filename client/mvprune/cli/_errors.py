"""Errors as lines on stderr and exit codes."""

from __future__ import annotations

import sys

from mvprune.cli._exit import ExitCode
from mvprune.cli._text import advice, clean
from mvprune.client.exceptions import JobCancelled, JobFailed, WaitTimeout
from mvprune.common.exceptions import (
    AlreadyExists,
    Conflict,
    DestinationNotEmpty,
    FailedPrecondition,
    InvalidArgument,
    LimitExceeded,
    MlflowUnreachable,
    MvpruneError,
    NotAuthorised,
    NotFound,
    ServerUnreachable,
)


class LocalRefusal(MvpruneError):
    """What a command cannot do with the files or the packages of this machine."""


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
    ServerUnreachable: ExitCode.UNREACHABLE,
    MlflowUnreachable: ExitCode.UNREACHABLE,
    NotFound: ExitCode.NOT_FOUND,
    NotAuthorised: ExitCode.NOT_FOUND,
    LocalRefusal: ExitCode.REFUSED,
}
# Fields by the end of their path, the longest that is known.
_OPTION_OF = {
    "dataset": "--train, --validation or --dataset",
    "display_name": "--name",
    "hub_config": "--dataset-config",
    "hub_id": "--dataset",
    "labels": "--label",
    "memory_bytes": "--memory",
    "model_revision": "--revision",
    "parent": "--project",
    "schedule": "--warmup, --cooldown",
    "target_density": "--density",
    "teacher.job": "--teacher",
    "teacher.model": "--teacher",
    "teacher.none": "--teacher",
    "teacher.revision": "--teacher-revision",
    "teacher.train": "--teacher",
}
_SAME_NAME = {
    "accumulation_steps",
    "allow_density_miss",
    "allow_smaller_batch",
    "alpha",
    "batch_size",
    "best_metric",
    "checkpoint_interval",
    "compile",
    "cooldown",
    "cpus",
    "delta",
    "deterministic",
    "dropout",
    "embeddings",
    "epochs",
    "evaluate_every",
    "exclude",
    "filter",
    "gpus",
    "gradient_checkpointing",
    "hidden_states",
    "include",
    "initial_scores",
    "insecure",
    "keep_best",
    "label_column",
    "learning_rate",
    "learning_rate_growth",
    "max_attempts",
    "max_length",
    "max_queue_time",
    "max_runtime",
    "max_steps",
    "method",
    "model",
    "order_by",
    "patience",
    "penalty",
    "precision",
    "priority",
    "request_id",
    "retention",
    "score_learning_rate",
    "seed",
    "selection",
    "shape",
    "start_timeout",
    "task",
    "teacher",
    "temperature",
    "text_column",
    "text_pair_column",
    "train",
    "train_embeddings",
    "trim_vocabulary",
    "validation",
    "values",
    "warmup",
    "weight_decay",
    "when",
}


class UsageError(Exception):
    """A mistake in the command line; `prog` is the command that can help."""

    def __init__(self, message: str, prog: str) -> None:
        super().__init__(message)
        self.prog = prog


def report(error: MvpruneError) -> ExitCode:
    """Prints an error and returns the exit code for it."""
    if isinstance(error, InvalidArgument) and error.violations:
        for field, description in error.violations:
            option = _option(field)
            _line(f"error: {field}{f' ({option})' if option else ''}: {description}")
    else:
        _line(f"error: {error}")
    for note in getattr(error, "__notes__", ()):
        _line(f"hint: {note}")
    if isinstance(error, JobFailed) and advice(error.job):
        _line(f"hint: {advice(error.job)}")
    if isinstance(error, WaitTimeout):
        _line(f"wait again: mvpctl wait {error.job.id}")
    if isinstance(error, ServerUnreachable):
        _line("start a server with `mvpctl server start`, or name another with --address or MVPRUNE_ADDRESS")
    if isinstance(error, JobFailed) and error.job.failure and error.job.failure.reason == "GATE_FAILED":
        return ExitCode.GATE
    return _CODES.get(type(error), ExitCode.ERROR)


def report_usage(error: UsageError) -> ExitCode:
    """Prints a mistake in the command line and returns the exit code for it."""
    _line(f"error: {error}")
    _line(f"see: {error.prog} --help")
    return ExitCode.REFUSED


def report_no_text(error: UnicodeEncodeError) -> ExitCode:
    """Prints that something given is no text, a file's name for example, and returns the exit code for it."""
    _line(f"error: got {error.object!r:.200}, which is not UTF-8; allowed: text")
    return ExitCode.REFUSED


def report_system(error: OSError) -> ExitCode:
    """Prints what this machine refused and returns the exit code for it."""
    _line("error: " + ": ".join(str(part) for part in (error.filename, error.strerror or error) if part))
    return ExitCode.ERROR


def _line(text: str) -> None:
    print(clean(text), file=sys.stderr)


def _option(field: str) -> str:
    """The option that sets a field of the request, "" if there is none."""
    parts = field.split(".")
    if parts[:2] == ["job", "labels"]:
        return _OPTION_OF["labels"]
    if field.startswith("job.policy.gates"):
        return "--gate"
    last = parts[-1]
    known = _OPTION_OF.get(".".join(parts[-2:])) or _OPTION_OF.get(last)
    return known or (f"--{last.replace('_', '-')}" if last in _SAME_NAME else "")
