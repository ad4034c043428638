"""What becomes of a job when an attempt fails: one pure function."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mvprune_service.domain.failures import RULES, FailureReason, Retry
from mvprune_service.domain.machine import TRANSITIONS, Command, JobState

# Attempts that the same signal kills at the same step. The work is the same from run to run, bit for bit, so this many
# are no accident: the job itself is the cause.
MOST_KILLS_AT_A_STEP = 3

_REMEDIES: Mapping[int, str] = {
    signal.SIGKILL: "the trainer probably runs out of memory there: lower the batch size or the maximum length, or ask "
    "for more memory",
    signal.SIGBUS: "a disk or shared memory (/dev/shm) is probably full there: give the worker more room",
    signal.SIGXCPU: "a limit of CPU time probably ends the trainer: raise it (ulimit -t) on the worker's machine",
}
_OTHER_REMEDY = "find out what sends this signal on the worker's machine"


@dataclass(frozen=True)
class Kill:
    """A signal that the service did not send killed a trainer: which one, after which step of which phase."""

    signal: int
    phase: str
    step: int


@dataclass(frozen=True)
class Verdict:
    """What becomes of the job.

    Attributes:
        command: REQUEUE, FAIL or STOPPED.
        message: for people: why the attempt ended or, of a job that FAILS, why the job did.
        smaller: whether the next attempt is to have fewer examples in memory at a time.
    """

    command: Command
    message: str
    smaller: bool = False


def verdict(
    state: JobState,
    reason: FailureReason,
    message: str,
    *,
    attempts_left: int,
    can_shrink: bool,
    kills: Sequence[Kill] = (),
) -> Verdict:
    """What follows from a failure.

    Args:
        state: of the job.
        message: the worker's words; "" for those of the reason.
        attempts_left: after this one.
        can_shrink: whether the job allows fewer examples in memory at a time, and has more than one.
        kills: this attempt's, where a signal ended it, then those of the attempts before it.
    """
    message = message or RULES[reason].text
    if state is JobState.CANCELLING:
        return Verdict(Command.STOPPED, message)
    alike = kills.count(kills[0]) if kills else 0
    smaller = RULES[reason].retry is Retry.SMALLER_BATCH and can_shrink
    helps = smaller or RULES[reason].retry is Retry.ALWAYS or 0 < alike < MOST_KILLS_AT_A_STEP
    if helps and attempts_left > 0 and (state, Command.REQUEUE) in TRANSITIONS:
        return Verdict(Command.REQUEUE, message, smaller)
    return Verdict(Command.FAIL, f"{message} {_repeated(reason, kills[0], alike)}" if alike > 1 else message)


def _repeated(reason: FailureReason, kill: Kill, attempts: int) -> str:
    ended = f"{attempts} attempts ended so at this step"
    if reason is FailureReason.OUT_OF_MEMORY:  # the worker's message has the remedy
        return f"{ended}."
    return f"{ended}; {_REMEDIES.get(kill.signal, _OTHER_REMEDY)}."
