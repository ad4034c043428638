"""Whether a worker may report about an attempt, and what a repeated report changes."""

from __future__ import annotations

from mvprune_service.domain.machine import AttemptState, JobState


class StaleLease(Exception):
    """The lease of the caller is over: another attempt or another worker has it. What the caller reports is dropped."""


def version_problem(worker: str, server: str, node: str) -> str:
    """Why a worker of this version cannot do an attempt of this server, with the remedy; "" if it can. Versions that
    differ only in their last number can work together.

    Args:
        node: where the worker runs.
    """
    if _minor(worker) == _minor(server):
        return ""
    where = f" on {node}" if node else ""
    return (
        f"mvprune of the worker{where} must have version {_minor(server)}, as the server ({server}), got "
        f"{worker or 'none'}; install mvprune=={server} there, or let the server send it (--ray-wheel)"
    )


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


def _minor(version: str) -> str:
    """MAJOR.MINOR; "" if it is no version."""
    numbers = version.split(".")[:2]
    return ".".join(numbers) if len(numbers) == 2 and all(number.isdigit() for number in numbers) else ""
