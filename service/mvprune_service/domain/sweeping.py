"""The life of a sweep: states, commands, and what to do next. Pure: tested over every state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from mvprune_service.domain.machine import JobState


class SweepState(StrEnum):
    """mvprune.v1.Sweep.State."""

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    CANCELLING = "CANCELLING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


ENDED = frozenset({SweepState.SUCCEEDED, SweepState.FAILED, SweepState.CANCELLED})


class PointState(StrEnum):
    """mvprune.v1.SweepPoint.State."""

    PENDING = "PENDING"
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    SKIPPED = "SKIPPED"
    DELETED = "DELETED"


LIVE = frozenset({PointState.QUEUED, PointState.RUNNING})
REPEATABLE = frozenset({PointState.FAILED, PointState.CANCELLED, PointState.SKIPPED, PointState.DELETED})


class Reason(StrEnum):
    """Why a sweep is as it is, and why a point gets no job: `state_reason`."""

    QUOTA = "WAITING_FOR_QUOTA"
    BUDGET = "BUDGET_USED"
    FAILURES = "TOO_MANY_FAILURES"
    NOTHING = "NOTHING_SUCCEEDED"
    MISSED = "NO_POINT_PASSES"
    CANCELLED = "SWEEP_CANCELLED"
    EARLY = "STOPPED_EARLY"


class SweepCommand(StrEnum):
    """Commands of users on a sweep."""

    CANCEL = "CANCEL"
    PAUSE = "PAUSE"
    RESUME = "RESUME"
    RETRY = "RETRY"
    EXTEND = "EXTEND"


_S, _C = SweepState, SweepCommand
TRANSITIONS: Mapping[tuple[SweepState, SweepCommand], SweepState] = MappingProxyType(
    {
        (_S.ACTIVE, _C.CANCEL): _S.CANCELLING,
        (_S.PAUSED, _C.CANCEL): _S.CANCELLING,
        (_S.CANCELLING, _C.CANCEL): _S.CANCELLING,
        (_S.CANCELLED, _C.CANCEL): _S.CANCELLED,
        (_S.ACTIVE, _C.PAUSE): _S.PAUSED,
        (_S.PAUSED, _C.PAUSE): _S.PAUSED,
        (_S.PAUSED, _C.RESUME): _S.ACTIVE,
        (_S.ACTIVE, _C.RESUME): _S.ACTIVE,
        (_S.ACTIVE, _C.RETRY): _S.ACTIVE,
        (_S.PAUSED, _C.RETRY): _S.PAUSED,
        (_S.SUCCEEDED, _C.RETRY): _S.ACTIVE,
        (_S.FAILED, _C.RETRY): _S.ACTIVE,
        (_S.CANCELLED, _C.RETRY): _S.ACTIVE,
        (_S.ACTIVE, _C.EXTEND): _S.ACTIVE,
        (_S.PAUSED, _C.EXTEND): _S.PAUSED,
        (_S.SUCCEEDED, _C.EXTEND): _S.ACTIVE,
        (_S.FAILED, _C.EXTEND): _S.ACTIVE,
    }
)


class IllegalSweepCommand(Exception):
    """The command does not apply in this state."""

    def __init__(self, state: SweepState, command: SweepCommand) -> None:
        super().__init__(f"{command.value} does not apply to a {state.value} sweep")
        self.state = state
        self.command = command


def transition(state: SweepState, command: SweepCommand) -> SweepState:
    """The state after a command. Raises IllegalSweepCommand."""
    try:
        return TRANSITIONS[state, command]
    except KeyError:
        raise IllegalSweepCommand(state, command) from None


_OF_JOB = {
    JobState.QUEUED: PointState.QUEUED,
    JobState.SUCCEEDED: PointState.SUCCEEDED,
    JobState.FAILED: PointState.FAILED,
    JobState.CANCELLED: PointState.CANCELLED,
}


def point_state(*, job: JobState | None, had_job: bool, again: bool, skipped: bool, has_result: bool) -> PointState:
    """The state of a point.

    Args:
        job: the state of its job, None if there is none now.
        had_job: whether a job was created for it.
        again: whether its job, which has ended, is to run again.
        skipped: whether it gets no job, or its job was stopped early.
        has_result: whether a result of its job is stored.
    """
    if again:
        return PointState.PENDING
    if skipped and job is JobState.CANCELLED:  # it was stopped early
        return PointState.SKIPPED
    if job is not None:
        return _OF_JOB.get(job, PointState.RUNNING)
    if has_result:
        return PointState.SUCCEEDED
    if had_job:
        return PointState.DELETED
    return PointState.SKIPPED if skipped else PointState.PENDING


@dataclass(frozen=True)
class Facts:
    """Facts that decide the next step of a sweep.

    Attributes:
        state: of the sweep.
        points: number to state.
        parallel: jobs at a time.
        max_failed: points that may fail, None for any number.
        stop_on_failure: whether live jobs are cancelled when too many points have failed.
        is_budget_used: whether no further job may be created.
        is_complete: whether no further points will be added.
        passes: whether a result passes all gates; True without gates.
    """

    state: SweepState
    points: Mapping[int, PointState]
    parallel: int
    max_failed: int | None
    stop_on_failure: bool
    is_budget_used: bool
    is_complete: bool
    passes: bool


@dataclass(frozen=True)
class Decision:
    """The next step of a sweep.

    Attributes:
        create: points whose jobs are created, or run again.
        skip: points that get no job, for `skip_reason`.
        cancel: points whose jobs are cancelled.
        state, reason: of the sweep, from now on.
    """

    state: SweepState
    reason: str = ""
    create: tuple[int, ...] = ()
    skip: tuple[int, ...] = ()
    skip_reason: str = ""
    cancel: tuple[int, ...] = ()


def decide(facts: Facts) -> Decision:
    """The next step. Carried out, and decided again, until the sweep has ended."""
    live = _in(facts, LIVE)
    if facts.state in ENDED or facts.state is SweepState.PAUSED:
        return Decision(facts.state)
    if facts.state is SweepState.CANCELLING:
        state = SweepState.CANCELLING if live else SweepState.CANCELLED
        return Decision(state, "", skip=_pending(facts), skip_reason=Reason.CANCELLED, cancel=live)
    failed = len(_in(facts, {PointState.FAILED}))
    if facts.max_failed is not None and failed > facts.max_failed:
        state = SweepState.ACTIVE if live else SweepState.FAILED
        stopped = live if facts.stop_on_failure else ()
        reason = Reason.FAILURES
        return Decision(state, reason, skip=_pending(facts), skip_reason=reason, cancel=stopped)
    pending = _pending(facts)
    if facts.is_budget_used:
        if live:
            return Decision(SweepState.ACTIVE, Reason.BUDGET, skip=pending, skip_reason=Reason.BUDGET)
        if pending or _in(facts, {PointState.SKIPPED}) or not facts.is_complete:
            state = SweepState.SUCCEEDED if _in(facts, {PointState.SUCCEEDED}) else SweepState.FAILED
            return Decision(state, Reason.BUDGET, skip=pending, skip_reason=Reason.BUDGET)
    if pending or live or not facts.is_complete:
        return Decision(SweepState.ACTIVE, create=pending[: max(0, facts.parallel - len(live))])
    if not _in(facts, {PointState.SUCCEEDED}):
        return Decision(SweepState.FAILED, Reason.NOTHING)
    return Decision(SweepState.SUCCEEDED, "" if facts.passes else Reason.MISSED)


def with_late_result(state: SweepState, reason: str, *, passes: bool, has_more: bool = False) -> tuple[SweepState, str]:
    """The state and the reason of a sweep that has ended, after a further point has a result.

    Args:
        passes: whether a result passes all gates; True without gates.
        has_more: whether the strategy has further points now.
    """
    if state is SweepState.FAILED and reason == Reason.BUDGET:
        return SweepState.SUCCEEDED, reason
    if (state, reason) == (SweepState.FAILED, Reason.NOTHING) or (
        state is SweepState.SUCCEEDED and reason in ("", Reason.MISSED)
    ):
        if has_more:
            return SweepState.ACTIVE, ""
        return SweepState.SUCCEEDED, "" if passes else Reason.MISSED
    return state, reason


def _in(facts: Facts, states: frozenset[PointState] | set[PointState]) -> tuple[int, ...]:
    return tuple(number for number, state in sorted(facts.points.items()) if state in states)


def _pending(facts: Facts) -> tuple[int, ...]:
    return _in(facts, {PointState.PENDING})
