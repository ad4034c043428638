"""Gates on the terminal, and the exit code that they make."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from mvprune.cli.shared.exit import ExitCode
from mvprune.cli.shared.output import print_result, print_table
from mvprune.cli.shared.text import clean
from mvprune.client.display import gate_rows

if TYPE_CHECKING:
    from mvprune.client.models import Artifact, JobRecord


def print_gates(job: JobRecord) -> None:
    """The gates of a job, if it has any."""
    if job.policy.gates:
        words = {True: "passed", False: "missed", None: "not evaluated"}
        rows = [[asked, observed or "-", words[passed]] for asked, observed, passed in gate_rows(job)]
        print_table(["GATE", "OBSERVED", ""], rows)


def print_outcome(job: JobRecord, artifact: Artifact | None) -> None:
    """The result of a job, if it has one, and its gates, if it has ended."""
    if artifact:
        print_result(artifact)
    if job.state.is_terminal:
        print_gates(job)


def gate_code(job: JobRecord) -> ExitCode:
    """The exit code of a job that SUCCEEDED; says on stderr which gates it missed."""
    missed = [asked for asked, _, passed in gate_rows(job) if passed is False]
    if not missed:
        return ExitCode.OK
    print(
        clean(f"error: job {job.id} missed {len(missed)} of {len(job.gate_results)} gates: {', '.join(missed)}"),
        file=sys.stderr,
    )
    return ExitCode.GATE
