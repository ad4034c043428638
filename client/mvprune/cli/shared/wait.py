"""Waiting for one job and fetching its artifact, with progress: what `submit`, `wait` and `download` share."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mvprune.cli.shared.ended import Ended
from mvprune.cli.shared.exit import ExitCode
from mvprune.cli.shared.gates import gate_code, print_outcome
from mvprune.cli.shared.live import live
from mvprune.cli.shared.options import download_line, job_goes_on
from mvprune.cli.shared.output import Form, answer, job_with_result, state_style
from mvprune.cli.shared.text import clean
from mvprune.cli.shared.types import path, seconds
from mvprune.client.exceptions import JobError, WaitTimeout
from mvprune.common.units import duration

if TYPE_CHECKING:
    from mvprune.client.client import Client
    from mvprune.client.models import Artifact, JobRecord


class Waiting(NamedTuple):
    """The options of a command that waits.

    Attributes:
        timeout: seconds.
        download: a folder for the artifact.
        summary, junit: files for what became of the job.
    """

    timeout: float | None = None
    download: Path | None = None
    summary: Path | None = None
    junit: Path | None = None

    def check(self) -> None:
        """Refuses what cannot be written, which nobody wants to learn when the job is done.

        Raises:
            DownloadError, LocalRefusal: the folder cannot be made, a file cannot.
        """
        if self.download:
            from mvprune.client.download import check_destination  # few need it

            check_destination(self.download)
        if self.summary or self.junit:
            from mvprune.cli.shared.report import check_reports  # few need it

            check_reports(self.summary, self.junit)


def add_waiting(group: argparse._ArgumentGroup) -> None:
    """Adds the options of `Waiting` but for the folder."""
    group.add_argument("--timeout", type=seconds, metavar="SECONDS", help="stop waiting after this; exit code 6")
    group.add_argument(
        "--summary",
        type=path,
        metavar="FILE",
        help='append the result as Markdown, e.g. to "$GITHUB_STEP_SUMMARY"',
    )
    group.add_argument("--junit", type=path, metavar="FILE", help="write the job and its gates as tests, in JUnit XML")


def finish(client: Client, job: str | JobRecord, waiting: Waiting, form: Form) -> ExitCode:
    """Waits for a job, downloads its artifact if there is a folder for it, and prints the result.

    Raises:
        JobFailed, JobCancelled, WaitTimeout: see `Client.wait`. In JSON and YAML the job is printed all the same, and
            files that were asked for are written.
    """
    try:
        with job_goes_on(job, waiting.download), live(form.progress) as progress:
            done = client.wait(job, waiting.timeout, progress.show)
    except (JobError, WaitTimeout) as error:
        _report(error.job, None, waiting, form)
        raise
    artifact = client.artifact(done.artifact)
    try:
        if waiting.download:
            fetch(client, artifact, waiting.download, form)
    finally:
        _report(done, artifact, waiting, form)
    return gate_code(done)


def _report(job: JobRecord, artifact: Artifact | None, waiting: Waiting, form: Form) -> None:
    answer(form, job_with_result(job, artifact), [job.id], lambda: print_outcome(job, artifact))
    if form.is_text:
        print_end(job, waiting.download)
    if waiting.summary or waiting.junit:
        from mvprune.cli.shared.report import write_reports  # few need it

        write_reports([Ended(job.id, job, artifact)], waiting.summary, waiting.junit)


def print_end(job: JobRecord, directory: Path | None = None) -> None:
    """On a terminal, whose bar is gone: the job's state, and what can be done next.

    Args:
        directory: where its artifact is, if it was downloaded.
    """
    if not sys.stdout.isatty():
        return
    from rich.console import Console
    from rich.text import Text

    time = ""
    if job.end_time and job.create_time:
        time = f" after {duration((job.end_time - job.create_time).total_seconds())}"
    rest = clean(f"{time}; next: {_next(job, directory)}")
    text = Text.assemble(clean(f"job {job.id} is "), (job.state, state_style(job.state)), rest)
    Console().print(text, soft_wrap=True)  # a command stays in one line, to be copied


def _next(job: JobRecord, directory: Path | None) -> str:
    """A command that fits a job as it is."""
    if job.state == "SUCCEEDED":
        return f"mvpctl serve {shlex.quote(str(directory))}" if directory else download_line(job.id)
    words = {"FAILED": "logs", "CANCELLED": "retry"}
    return f"mvpctl {words.get(job.state, 'wait')} {job.id}"


def fetch(client: Client, artifact: Artifact, directory: Path, form: Form) -> Path:
    """Downloads an artifact and says where it is."""
    try:
        with live(form.progress) as progress:
            folder = client.download(artifact, directory, progress.bytes)
    except KeyboardInterrupt:
        line = download_line(artifact.job.rpartition("/")[2], directory)
        print(f"\ninterrupted; the downloaded part is kept. To resume: {line}", file=sys.stderr)
        raise
    if form.progress:
        print(clean(f"downloaded and verified: {folder}"), file=form.progress)
    return folder
