"""Which attempts are submitted to the executor, and what happens if that fails."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from mvprune_service.domain.machine import AttemptState, JobState

DUE_JOB, DUE_ATTEMPT = JobState.STARTING, AttemptState.CREATED
"""The states of a job and of its attempt that has to be submitted."""


class Problem(Enum):
    """Why a submission failed."""

    REFUSED = "REFUSED"  # the executor does not start this attempt now; it may start others
    AWAY = "AWAY"  # the executor or the database does not answer: no attempt can be submitted
    BROKEN = "BROKEN"  # the server itself raised


@dataclass(frozen=True)
class Reaction:
    """The reaction to a submission that failed. The attempt is submitted again with each round, until the watchdog
    ends it at its start deadline.

    Attributes:
        message: what to store as the attempt's failure, None: nothing.
        raises: the error goes on to the caller.
    """

    message: str | None
    raises: bool


def react(problem: Problem, text: str, known: str | None) -> Reaction:
    """Decides what to do about a failed submission.

    Args:
        text: of a refusal: why. Of an error of the server: the name of its type.
        known: what is stored as the attempt's failure already.
    """
    if problem is Problem.AWAY:
        return Reaction(None, raises=True)
    broken = problem is Problem.BROKEN
    message = f"the server cannot launch it ({text}): its log has more" if broken else text
    return Reaction(None if message == known else message, raises=broken)
