"""The life of a job: states, commands, and one pure function over a table.

The states have the names of the contract. The diagram in docs/architecture.md is generated from TRANSITIONS.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class JobState(StrEnum):
    """mvprune.v1.Job.State."""

    QUEUED = "QUEUED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    FINALIZING = "FINALIZING"
    CANCELLING = "CANCELLING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


TERMINAL = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})


class Wait(StrEnum):
    """Why a QUEUED job waits, or a STARTING one for a NODE or its WORKER, as its `state_reason`."""

    TEACHER = "WAITING_FOR_TEACHER"
    CAPACITY = "WAITING_FOR_CAPACITY"
    NODE = "WAITING_FOR_NODE"
    WORKER = "WAITING_FOR_WORKER"
    QUOTA = "WAITING_FOR_QUOTA"
    EXECUTOR = "EXECUTOR_UNREACHABLE"


class AttemptState(StrEnum):
    """mvprune.v1.Attempt.State."""

    CREATED = "CREATED"
    SUBMITTED = "SUBMITTED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    LOST = "LOST"


LIVE_ATTEMPTS = (AttemptState.CREATED, AttemptState.SUBMITTED, AttemptState.RUNNING)


class Command(StrEnum):
    """Commands on a job."""

    SCHEDULE = "SCHEDULE"  # capacity found: an attempt is created
    CLAIM = "CLAIM"  # the attempt's worker took the lease
    REQUEUE = "REQUEUE"  # an attempt failed, and another one may help
    OFFER = "OFFER"  # there is a result: the worker reports it, or the watchdog finds it in the store
    PUBLISH = "PUBLISH"  # the offered artifact was verified
    FAIL = "FAIL"  # not retryable, or attempts used up, or the artifact is corrupt
    CANCEL = "CANCEL"  # a user asks
    STOPPED = "STOPPED"  # the process of a job that is being cancelled has ended
    RETRY = "RETRY"  # a user asks


_S, _C = JobState, Command

TRANSITIONS: Mapping[tuple[JobState, Command], JobState] = MappingProxyType(
    {
        (_S.QUEUED, _C.SCHEDULE): _S.STARTING,
        (_S.QUEUED, _C.CANCEL): _S.CANCELLED,
        (_S.QUEUED, _C.FAIL): _S.FAILED,
        (_S.STARTING, _C.CLAIM): _S.RUNNING,
        # The database was put back to a moment before its worker took the lease: see control/ownership.py.
        (_S.STARTING, _C.OFFER): _S.FINALIZING,
        (_S.STARTING, _C.REQUEUE): _S.QUEUED,
        (_S.STARTING, _C.FAIL): _S.FAILED,
        (_S.STARTING, _C.CANCEL): _S.CANCELLING,
        (_S.RUNNING, _C.REQUEUE): _S.QUEUED,
        (_S.RUNNING, _C.OFFER): _S.FINALIZING,
        (_S.RUNNING, _C.FAIL): _S.FAILED,
        (_S.RUNNING, _C.CANCEL): _S.CANCELLING,
        (_S.FINALIZING, _C.PUBLISH): _S.SUCCEEDED,
        (_S.FINALIZING, _C.FAIL): _S.FAILED,
        (_S.FINALIZING, _C.CANCEL): _S.CANCELLING,
        (_S.CANCELLING, _C.CANCEL): _S.CANCELLING,
        # A result that is complete already is kept.
        (_S.CANCELLING, _C.OFFER): _S.CANCELLING,
        (_S.CANCELLING, _C.PUBLISH): _S.SUCCEEDED,
        (_S.CANCELLING, _C.STOPPED): _S.CANCELLED,
        (_S.CANCELLED, _C.CANCEL): _S.CANCELLED,
        (_S.FAILED, _C.RETRY): _S.QUEUED,
        (_S.CANCELLED, _C.RETRY): _S.QUEUED,
    }
)


class IllegalTransition(Exception):
    """The command does not apply in this state."""

    def __init__(self, state: JobState, command: Command) -> None:
        super().__init__(f"{command.value} does not apply to a {state.value} job")
        self.state = state
        self.command = command


def transition(state: JobState, command: Command) -> JobState:
    """The state after `command`. Raises IllegalTransition."""
    try:
        return TRANSITIONS[state, command]
    except KeyError:
        raise IllegalTransition(state, command) from None


def mermaid() -> str:
    """The state diagram, as Mermaid text."""
    lines = ["stateDiagram-v2", "    [*] --> QUEUED: CreateJob"]
    edges: dict[tuple[JobState, JobState], list[str]] = {}
    for (source, command), target in TRANSITIONS.items():
        if source is not target:
            edges.setdefault((source, target), []).append(command.value)
    lines += [f"    {source} --> {target}: {', '.join(commands)}" for (source, target), commands in edges.items()]
    lines += [f"    {state} --> [*]" for state in JobState if state in TERMINAL]
    return "\n".join(lines)
