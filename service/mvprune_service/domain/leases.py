"""Whether a worker may report about an attempt, and what a repeated report changes."""

from __future__ import annotations

from mvprune_service.domain.machine import AttemptState, JobState


class StaleLease(Exception):
    """The lease of the caller is over: another attempt or another worker has it. What the caller reports is dropped."""


def check_fence(number: int | None, token: int, *, newest: int, current: int) -> None:
    """Raises StaleLease unless a worker carries the job's newest attempt with its current fencing token.

    Args:
        number: of the worker's attempt.
        token: the worker's fencing token.
        newest: number of the job's newest attempt.
        current: the job's fencing token.
    """
    if number != newest or token != current:
        raise StaleLease(f"attempt {number} is over")


def is_claimed(state: AttemptState, holder: str | None, runner: str) -> bool:
    """Whether this runner already has the lease of an attempt. Raises StaleLease if another runner has it."""
    if state is not AttemptState.RUNNING:
        return False
    if holder != runner:
        raise StaleLease("another worker holds the lease")
    return True


def check_claimed(state: AttemptState) -> None:
    """Raises StaleLease unless some worker has claimed the attempt and it still runs."""
    if state is not AttemptState.RUNNING:
        raise StaleLease("the attempt was never claimed")


def is_renewed(state: JobState) -> bool:
    """Whether a heartbeat extends the lease. It does not after the worker has offered a result."""
    return state in (JobState.RUNNING, JobState.CANCELLING)
