"""The columns of tables of jobs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mvprune.cli.shared.output import print_table
from mvprune.client.display import COLUMNS, that_matter
from mvprune.common.suggestions import must_be_one_of

if TYPE_CHECKING:
    from mvprune.client.models import JobRecord


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
    shown = [COLUMNS[name] for name in (names if chosen else that_matter(names, jobs))]
    expendable = () if chosen else tuple(COLUMNS[name].heading for name in _EXPENDABLE)
    rows = [[column.cell(job) for column in shown] for job in jobs]
    print_table([column.heading for column in shown], rows, expendable=expendable)
