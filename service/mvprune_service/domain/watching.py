"""The watchdog's action on a live attempt: decided from facts, which it finds out one at a time.

An expired lease proves nothing. The decision asks for the result first, then for the process, and only a process that
has EXITED or is GONE ends the attempt. An executor that does not answer (UNKNOWN) decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from mvprune_service.clock import SECOND
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.machine import AttemptState, JobState
from mvprune_service.domain.retries import Failure, ran_us
from mvprune_service.executors.base import Observation, Phase

REPORT_US = 5 * SECOND  # a process that has ended may have a report on its way
SILENT_US = 40 * SECOND  # in which a worker that runs has called: it needs a few seconds to import its libraries
OVER = (Phase.EXITED, Phase.GONE)
LONGEST_LEASES = 2
"""A lease that ends later than so many leases from now is from a clock that was set back: it is not valid."""


@dataclass(frozen=True)
class Process:
    """The executor's report on the attempt's process.

    Attributes:
        over_us, running_us: for how long it has been seen to be over, and to run without a call to the server.
        last_line: what it wrote last, where that matters and is known.
    """

    seen: Observation
    over_us: int = 0
    running_us: int = 0
    last_line: str = ""

    @property
    def is_over(self) -> bool:
        """Whether it ended long enough ago that a report on its way would have arrived."""
        return self.seen.phase in OVER and self.over_us >= REPORT_US

    @property
    def is_silent(self) -> bool:
        """Whether it has run for so long that it should have called the server."""
        return self.seen.phase is Phase.RUNNING and self.running_us >= SILENT_US


@dataclass(frozen=True)
class Result:
    """The attempt's marker in the store: the SHA-256 of a manifest, or what is wrong with the marker, or neither."""

    manifest_sha256: str | None = None
    damage: str = ""


@dataclass(frozen=True)
class Facts:
    """Facts about a live attempt. Times are microseconds since the epoch.

    Attributes:
        lease_us: length of a lease.
        amnesty_until: no lease ends before this: workers may not have reached a server that has just started.
        refusal: why the attempt does not start, "" if nothing is known: what the executor says, or a Silence.
        ran_us: how long the job ran in earlier attempts.
        max_runtime_us: how long the job may run in all, None: without end.
        cancel_by_us: when the grace of a cancelled job ends.
        process: None: the executor was not asked yet. `result`: None: the store was not asked yet.
        stop_sent: the executor was asked to stop the process.
    """

    job: JobState
    attempt: AttemptState
    now: int
    lease_us: int
    amnesty_until: int
    start_deadline_us: int
    refusal: str
    start_us: int | None
    lease_expire_us: int | None
    ran_us: int
    max_runtime_us: int | None
    cancel_by_us: int
    process: Process | None = None
    result: Result | None = None
    stop_sent: bool = False


class Step(Enum):
    """Actions without a value. After the first three, decide again with what was found out."""

    OBSERVE = "ask the executor for the process"
    LOOK = "ask the store for a result"
    STOP = "ask the executor to stop the process"
    CANCELLED = "record that nothing runs any more"
    WAIT = "nothing, in this round"


@dataclass(frozen=True)
class Offer:
    """Record the result that lies in the store."""

    manifest_sha256: str


@dataclass(frozen=True)
class Fail:
    """Record that the attempt failed and, with `stop`, ask the executor to stop its process."""

    failure: Failure
    stop: bool = False


@dataclass(frozen=True)
class Silence:
    """Record that the worker runs and has not called the server, and show that to the user."""

    message: str


def decide(facts: Facts) -> Step | Offer | Fail | Silence:
    """The next step for a live attempt without a result in the database."""
    match facts.job:
        case JobState.STARTING:
            return _starting(facts)
        case JobState.RUNNING:
            return _running(facts)
        case JobState.CANCELLING:
            return _cancelling(facts)
    return Step.WAIT


def _starting(facts: Facts) -> Step | Offer | Fail | Silence:
    process = facts.process
    if process is None:
        if facts.attempt is AttemptState.SUBMITTED:
            return Step.OBSERVE
        process = Process(Observation(Phase.UNKNOWN))
    is_late = facts.now > max(facts.start_deadline_us, facts.amnesty_until)
    if process.seen.started and not process.is_over and not is_late:
        return Silence(_silent(process)) if process.is_silent and not facts.refusal else Step.WAIT
    if facts.result is None:  # it may have one if the database was put back: see control/ownership.py
        return Step.LOOK
    if found := _found(facts.result):
        return found
    if not process.seen.started:
        return Fail(Failure(FailureReason.START_TIMEOUT, counts=False))
    if process.is_over:
        return _lost(process)
    # An attempt that waits for resources has not failed, and neither has one that the executor says nothing about.
    counts = bool(facts.refusal) or process.seen.phase not in (Phase.PENDING, Phase.UNKNOWN)
    return Fail(Failure(FailureReason.START_TIMEOUT, facts.refusal, counts=counts), stop=True)


def _running(facts: Facts) -> Step | Offer | Fail:
    ran = ran_us(facts.ran_us, facts.start_us, facts.now)
    is_too_long = facts.max_runtime_us is not None and ran > facts.max_runtime_us
    if not is_too_long and (_lasts(facts, facts.lease_expire_us or 0) or _lasts(facts, facts.amnesty_until)):
        return Step.WAIT
    if facts.result is None:
        return Step.LOOK
    if found := _found(facts.result):
        return found
    if is_too_long:
        return Fail(Failure(FailureReason.MAX_RUNTIME), stop=True)
    if facts.process is None:
        return Step.OBSERVE
    return _lost(facts.process) if facts.process.is_over else Step.WAIT


def _cancelling(facts: Facts) -> Step | Offer | Fail:
    runs = facts.attempt is AttemptState.RUNNING
    # A running worker learns of the cancellation with its next heartbeat. One that sends none is stopped.
    if not facts.stop_sent and (not runs or facts.now > facts.cancel_by_us + facts.lease_us):
        return Step.STOP
    if facts.process is None:
        return Step.OBSERVE
    # A process that waits for resources can claim nothing any more, and may keep waiting: Ray stops it when it starts.
    waits = facts.process.seen.phase is Phase.PENDING and not runs
    if not (facts.process.is_over or waits):
        return Step.WAIT
    if facts.result is None:
        return Step.LOOK
    return _found(facts.result) or Step.CANCELLED


def _found(result: Result) -> Offer | Fail | None:
    if result.damage:
        return Fail(Failure(FailureReason.ARTIFACT_CORRUPT, result.damage))
    return None if result.manifest_sha256 is None else Offer(result.manifest_sha256)


def _lost(process: Process) -> Fail:
    seen = process.seen
    how = f"exit code {seen.exit_code}" if seen.exit_code is not None else seen.phase.value.lower()
    detail = "".join(f": {text}" for text in (seen.detail, process.last_line) if text)
    return Fail(Failure(FailureReason.WORKER_LOST, f"the worker disappeared ({how}{detail})", lost=True))


def _silent(process: Process) -> str:
    wrote = f"its last line: {process.last_line}" if process.last_line else "it has written nothing"
    return f"the worker has run for {process.running_us // SECOND} s and has not called the server; {wrote}"


def _lasts(facts: Facts, until: int) -> bool:
    """Whether a lease is still valid."""
    return facts.now <= until <= facts.now + LONGEST_LEASES * facts.lease_us
