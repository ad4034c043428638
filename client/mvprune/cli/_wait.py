"""Waiting for a job and fetching its artifact, with progress: what `submit`, `wait` and `download` share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mvprune._exceptions import JobError, WaitTimeout
from mvprune.cli._live import live
from mvprune.cli._options import job_goes_on
from mvprune.cli._output import job_with_result, print_json, print_result

if TYPE_CHECKING:
    from typing import TextIO

    from mvprune._client import Client
    from mvprune._models import Artifact, Job


def finish(client: Client, job: str | Job, timeout: float | None, directory: Path | None, output: str) -> None:
    """Waits for a job, downloads its artifact if there is a folder for it, and prints the result.

    Raises:
        JobFailed, JobCancelled, WaitTimeout: see `Client.wait`. In JSON form the job is printed all the same.
    """
    try:
        with job_goes_on(job), live(_stream(output)) as progress:
            done = client.wait(job, timeout, progress.show)
    except (JobError, WaitTimeout) as error:
        if output == "json":
            print_json(job_with_result(error.job, None))
        raise
    artifact = client.artifact(done.artifact)
    if directory:
        fetch(client, artifact, directory, output)
    if output == "json":
        print_json(job_with_result(done, artifact))
    else:
        print_result(artifact)


def fetch(client: Client, artifact: Artifact, directory: Path, output: str) -> Path:
    """Downloads an artifact and says where it is."""
    stream = _stream(output)
    with live(stream) as progress:
        folder = client.download(artifact, directory, progress.bytes)
    print(f"downloaded and verified: {folder}", file=stream)
    return folder


def _stream(output: str) -> TextIO:
    """Where progress goes: in JSON form stdout is for the answer alone."""
    return sys.stderr if output == "json" else sys.stdout
