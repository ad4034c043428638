"""The columns of tables of jobs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mvprune.cli._output import print_table
from mvprune.cli._text import age, labels, steps
from mvprune.client.display import density_asked
from mvprune.common.suggestions import must_be_one_of
from mvprune.common.units import duration
from mvprune.sources.schemes import shown

if TYPE_CHECKING:
    from mvprune.client.models import JobRecord


class Column(NamedTuple):
    """A column of a table of jobs.

    Attributes:
        cell: its text for a job.
        matters: whether a job is a reason to show the column where none were chosen; None: it is always shown.
    """

    heading: str
    cell: Callable[[JobRecord], str]
    matters: Callable[[JobRecord], Any] | None = None


def _metric(job: JobRecord) -> str:
    return "" if job.metric is None else f"{job.primary_metric} {job.metric:.4f}"


def _difference(job: JobRecord) -> str:
    from mvprune.spec.gates import is_percent  # most lists begin with jobs that have none yet

    if job.difference is None:
        return ""
    if is_percent(f"delta/{job.primary_metric}"):
        return f"{100 * job.difference:+.2f}"
    return f"{job.difference:+.4f} {job.primary_metric}"


def _duration(job: JobRecord) -> str:
    return "" if job.duration is None else duration(job.duration)


def _failure(job: JobRecord) -> str:
    return job.failure.reason if job.failure else ""


def _gates(job: JobRecord) -> str:
    total = len(job.gate_results)
    return f"{total - len(job.missed_gates)} of {total} passed" if total else ""


def _progress(job: JobRecord) -> str:
    return "" if job.state.is_terminal else steps(job.progress)


COLUMNS: Mapping[str, Column] = {
    "job": Column("JOB", lambda job: job.id),
    "name": Column("NAME", lambda job: job.display_name),
    "model": Column("MODEL", lambda job: shown(job.spec.model)),
    "task": Column("TASK", lambda job: job.spec.task),
    "method": Column("METHOD", lambda job: job.spec.method),
    "density": Column("DENSITY", lambda job: density_asked(job.spec)),
    "priority": Column("PRIORITY", lambda job: str(job.policy.priority), lambda job: job.policy.priority),
    "state": Column("STATE", lambda job: job.state),
    "progress": Column("PROGRESS", _progress),
    "metric": Column("METRIC", _metric, _metric),
    "difference": Column("DIFF", _difference, _difference),
    "gates": Column("GATES", _gates, _gates),
    "duration": Column("DURATION", _duration, _duration),
    "failure": Column("FAILURE", _failure, _failure),
    "labels": Column("LABELS", lambda job: labels(job), lambda job: job.labels),
    "creator": Column("CREATOR", lambda job: job.creator),
    "age": Column("AGE", lambda job: age(job.create_time)),
}
OF_A_LIST = (
    *("job", "task", "method", "density", "priority", "state", "progress"),
    *("metric", "difference", "duration", "failure", "labels", "age"),
)
OF_ENDS = ("job", "state", "metric", "difference", "gates", "duration", "failure")
# A narrow terminal does without these, the first one first.
_EXPENDABLE = (
    *("labels", "method", "age", "duration", "progress", "task", "priority", "density"),
    *("gates", "failure", "difference", "metric"),
)


def columns(text: str) -> tuple[str, ...]:
    """The type of an option that takes names of columns: job,metric -> ("job", "metric")."""
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in COLUMNS:
            raise argparse.ArgumentTypeError(must_be_one_of(COLUMNS, name))
        if names.count(name) > 1:
            raise argparse.ArgumentTypeError(f"must be different columns, got {name} more than once")
    return names


def print_jobs(jobs: Sequence[JobRecord], names: Sequence[str], *, chosen: bool = False) -> None:
    """A table of jobs.

    Args:
        names: the columns, in their order.
        chosen: whether the user wants these columns: then those without content are shown too, and a narrow terminal
            does without the last ones first.
    """
    shown = [COLUMNS[name] for name in names if chosen or _is_shown(COLUMNS[name], jobs)]
    expendable = () if chosen else tuple(COLUMNS[name].heading for name in _EXPENDABLE)
    rows = [[column.cell(job) for column in shown] for job in jobs]
    print_table([column.heading for column in shown], rows, expendable=expendable)


def _is_shown(column: Column, jobs: Sequence[JobRecord]) -> bool:
    return column.matters is None or any(map(column.matters, jobs))
