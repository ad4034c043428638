"""The consequences for a job when one of its attempts fails."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile

from mvprune.v1 import job_pb2
from mvprune_service.clock import SECOND
from mvprune_service.domain.failures import RULES, FailureReason, Retry
from mvprune_service.domain.machine import TRANSITIONS, AttemptState, Command, JobState

# So many attempts that the same signal kills at the same step are no accident: training repeats bit for bit, so the job
# itself is the cause.
MOST_KILLS_AT_A_STEP = 3
_BACK_OFF_US, _LONGEST_BACK_OFF_US = 5 * SECOND, 300 * SECOND
_LARGEST_FACTOR = 64

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

    @property
    def details(self) -> dict[str, str]:
        """How an event describes the kill. `earlier_kills` reads it."""
        return {"signal": str(self.signal), "phase": self.phase, "step": str(self.step)}


@dataclass(frozen=True)
class Failure:
    """How an attempt failed.

    Attributes:
        message: the reporter's description; "" for the text of the reason.
        lost: the process ended and did not report it.
        counts: the failure uses up one of the job's attempts.
        kill: the signal that ended the trainer, if one did.
    """

    reason: FailureReason
    message: str = ""
    lost: bool = False
    counts: bool = True
    kill: Kill | None = None


@dataclass(frozen=True)
class Tried:
    """A job whose newest attempt has failed.

    Attributes:
        number: of the attempt, from 1.
        attempts_left: after this one.
        factor: how many passes one training step is divided into, in multiples of what the spec says.
        smaller: the factor for half as many examples in memory at a time, None if the job cannot have it.
        kills: of earlier attempts.
    """

    state: JobState
    number: int
    attempts_left: int
    factor: int
    smaller: int | None
    kills: Sequence[Kill] = ()


@dataclass(frozen=True)
class Verdict:
    """The consequences for the job and the attempt.

    Attributes:
        command: for the job: REQUEUE, FAIL or STOPPED.
        attempt_state: FAILED, LOST or CANCELLED.
        cause: why the attempt ended.
        message: why the job failed; for a job that does not, the same as `cause`.
        attempts_left: of the job, for a REQUEUE; so are these two:
        back_off_us: how long the job waits before its next attempt.
        factor: see `Tried`.
    """

    command: Command
    attempt_state: AttemptState
    cause: str
    message: str
    attempts_left: int
    back_off_us: int
    factor: int


def verdict(job: Tried, failure: Failure) -> Verdict:
    """Decides what follows from a failure: another attempt if that may help, else FAILED. A job that is being cancelled
    becomes CANCELLED."""
    message = failure.message or RULES[failure.reason].text
    attempts_left = job.attempts_left if failure.counts else job.attempts_left + 1
    back_off_us = min(_BACK_OFF_US << min(job.number - 1, 10), _LONGEST_BACK_OFF_US)
    same = partial(Verdict, attempts_left=attempts_left, back_off_us=back_off_us)
    if job.state is JobState.CANCELLING:
        return same(Command.STOPPED, AttemptState.CANCELLED, message, message, factor=job.factor)
    ended = AttemptState.LOST if failure.lost else AttemptState.FAILED
    retry = RULES[failure.reason].retry
    alike = 0 if failure.kill is None else 1 + job.kills.count(failure.kill)
    smaller = job.smaller if retry is Retry.SMALLER_BATCH else None
    helps = smaller is not None or retry is Retry.ALWAYS or 0 < alike < MOST_KILLS_AT_A_STEP
    if helps and attempts_left > 0 and (job.state, Command.REQUEUE) in TRANSITIONS:
        return same(Command.REQUEUE, ended, message, message, factor=smaller or job.factor)
    why = message
    if failure.kill is not None and alike > 1:
        why = f"{message} {_repeated(failure.reason, failure.kill, alike)}"
    return same(Command.FAIL, ended, failure.message or why, why, factor=job.factor)


def smaller_factor(spec: job_pb2.CompressionSpec, factor: int) -> int | None:
    """The accumulation factor for half as many examples in memory at a time. None if each pass has one already."""
    batch, passes = spec.training.batch_size, spec.training.accumulation_steps or 1
    largest = min(_LARGEST_FACTOR, batch // passes if batch else _LARGEST_FACTOR)
    return 2 * factor if 2 * factor <= largest else None


def earlier_kills(events: Iterable[tuple[str, Mapping[str, str]]]) -> list[Kill]:
    """The kills in a job's events since its user last asked for it.

    Args:
        events: type and details of each, the newest first.
    """
    since_retry = takewhile(lambda event: event[0] != Command.RETRY, events)
    return [Kill(int(one["signal"]), one["phase"], int(one["step"])) for _, one in since_retry if "signal" in one]


def ran_us(before_us: int, start_us: int | None, now: int) -> int:
    """How long a job has run: in earlier attempts, and in the attempt that started at `start_us`, if it did."""
    return before_us if start_us is None else before_us + now - start_us


def _repeated(reason: FailureReason, kill: Kill, attempts: int) -> str:
    ended = f"{attempts} attempts ended so at this step"
    if reason is FailureReason.OUT_OF_MEMORY:  # the worker's message has the remedy
        return f"{ended}."
    return f"{ended}; {_REMEDIES.get(kill.signal, _OTHER_REMEDY)}."
