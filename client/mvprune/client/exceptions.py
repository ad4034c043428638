"""Errors about one job, see `mvprune.common.exceptions`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mvprune.common.exceptions import MvpruneError

if TYPE_CHECKING:  # the models take longer to import than `mvpctl --help` takes in all
    from mvprune.client.models import JobRecord


class JobError(MvpruneError):
    """A job ended without a result."""

    def __init__(self, message: str, job: JobRecord) -> None:
        super().__init__(message)
        self.job = job


class JobFailed(JobError):
    """The job FAILED; `job.failure` has the reason."""

    def __init__(self, job: JobRecord) -> None:
        why = f"{job.failure.reason}: {job.failure.message}" if job.failure else "no reason given"
        super().__init__(f"job {job.id} failed: {why}", job)


class JobCancelled(JobError):
    """The job was CANCELLED."""

    def __init__(self, job: JobRecord) -> None:
        super().__init__(f"job {job.id} was cancelled", job)


class WaitTimeout(MvpruneError):
    """The timeout has passed; the job continues."""

    def __init__(self, job: JobRecord, seconds: float) -> None:
        super().__init__(f"job {job.id} is still {job.state} after {seconds:g} s")
        self.job = job
