"""Errors about one job or one sweep, see `mvprune.common.exceptions`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mvprune.common.exceptions import MvpruneError

if TYPE_CHECKING:  # the models take longer to import than `mvpctl --help` takes in all
    from mvprune.client.models import JobRecord
    from mvprune.client.sweep_models import SweepRecord


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


class SweepError(MvpruneError):
    """A sweep ended without a result."""

    def __init__(self, message: str, sweep: SweepRecord) -> None:
        super().__init__(message)
        self.sweep = sweep


class SweepFailed(SweepError):
    """The sweep FAILED: no point has a result, or too many failed; `sweep.state_reason` says which."""

    def __init__(self, sweep: SweepRecord) -> None:
        counts = sweep.counts
        text = f"sweep {sweep.id} failed ({sweep.state_reason}): {counts.failed} of {counts.total} points failed"
        super().__init__(text, sweep)


class SweepCancelled(SweepError):
    """The sweep was CANCELLED."""

    def __init__(self, sweep: SweepRecord) -> None:
        super().__init__(f"sweep {sweep.id} was cancelled", sweep)


class SweepWaitTimeout(MvpruneError):
    """The timeout has passed; the sweep continues."""

    def __init__(self, sweep: SweepRecord, seconds: float) -> None:
        super().__init__(f"sweep {sweep.id} is still {sweep.state} after {seconds:g} s")
        self.sweep = sweep


class NoPointPasses(MvpruneError):
    """No point of the sweep passes its gates, or none has a result yet; `sweep.recommendation` is the closest miss."""

    def __init__(self, sweep: SweepRecord) -> None:
        miss = sweep.recommendation
        why = f"no point passes the gates; the closest miss: {miss.text}" if miss else "no point has a result yet"
        if sweep.spec.strategy == "tickets":
            why = "a study of tickets shows which of them win; download the artifact of a job"
        super().__init__(f"sweep {sweep.id} recommends nothing: {why}")
        self.sweep = sweep
