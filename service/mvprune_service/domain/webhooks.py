"""Webhooks: which of them want an event, and when it is sent again. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.machine import JobState
from mvprune_service.domain.sweeping import SweepState

_SECOND = 1_000_000
GIVE_UP_US = 3 * 86_400 * _SECOND
"""Time after an event until which its delivery is tried."""
BACK_OFF_SECONDS = (5, 30, 300, 1_800, 7_200, 18_000, 36_000)
"""Time until the next attempt, by the number of attempts that failed in a row; the last stands for all further ones."""
GONE = 410
TEST_TYPE = "webhook.test"

JOB_TYPES = tuple(f"job.{one}" for one in ("created", "started", "requeued", "retried"))
JOB_TYPES += tuple(f"job.{one}" for one in ("succeeded", "failed", "cancelled", "gate_failed"))
SWEEP_TYPES = tuple(f"sweep.{one}" for one in ("created", "paused", "resumed", "succeeded", "failed", "cancelled"))
EVENT_TYPES = (*JOB_TYPES, *SWEEP_TYPES, "job.*", "sweep.*")
"""What a webhook may ask for."""

_JOB_STATES = MappingProxyType(
    {
        JobState.RUNNING: "job.started",
        JobState.SUCCEEDED: "job.succeeded",
        JobState.CANCELLED: "job.cancelled",
    }
)
_SWEEP_STATES = MappingProxyType(
    {
        SweepState.ACTIVE: "sweep.resumed",
        SweepState.PAUSED: "sweep.paused",
        SweepState.SUCCEEDED: "sweep.succeeded",
        SweepState.FAILED: "sweep.failed",
        SweepState.CANCELLED: "sweep.cancelled",
    }
)
_RETRIED = frozenset({JobState.FAILED, JobState.CANCELLED})


class WebhookFormat(StrEnum):
    """mvprune.v1.Webhook.Format."""

    CLOUDEVENTS = "CLOUDEVENTS"
    SLACK = "SLACK"


class WebhookState(StrEnum):
    """mvprune.v1.Webhook.State."""

    ENABLED = "ENABLED"
    DISABLED = "DISABLED"


class DeliveryState(StrEnum):
    """mvprune.v1.WebhookDelivery.State."""

    PENDING = "PENDING"
    DELIVERED = "DELIVERED"
    FAILED = "FAILED"


@dataclass(frozen=True)
class Event:
    """Something that happened to a job or a sweep.

    Attributes:
        types: its names, the first of which that a webhook asks for is sent.
        subject: the full name of the job or sweep, in `project`.
        sequence: of the event, in the history of `uid`.
        data: what the body says of it.
    """

    types: tuple[str, ...]
    project: str
    subject: str
    uid: str
    sequence: int
    labels: Mapping[str, str]
    data: Mapping[str, Any]


def job_types(source: JobState | None, target: JobState, reason: FailureReason | None) -> tuple[str, ...]:
    """The names of a job's move; none for a move that webhooks do not hear of."""
    if target is JobState.QUEUED:
        return ("job.created" if source is None else "job.retried" if source in _RETRIED else "job.requeued",)
    if target is JobState.FAILED:
        return ("job.failed", "job.gate_failed") if reason is FailureReason.GATE_FAILED else ("job.failed",)
    return (_JOB_STATES[target],) if source is not target and target in _JOB_STATES else ()


def sweep_types(source: SweepState | None, target: SweepState) -> tuple[str, ...]:
    """The names of a sweep's change; none for one that webhooks do not hear of."""
    if source is None:
        return ("sweep.created",)
    return (_SWEEP_STATES[target],) if source is not target and target in _SWEEP_STATES else ()


def wanted(events: Sequence[str], labels: Mapping[str, str], event: Event) -> str | None:
    """The name under which a webhook asks for an event; None: it does not.

    Args:
        events: types that it asks for.
        labels: that the job or sweep must have.
    """
    if any(event.labels.get(key) != value for key, value in labels.items()):
        return None
    return next((name for name in event.types if name in events or f"{name.partition('.')[0]}.*" in events), None)


def full_type(name: str) -> str:
    """The type of a CloudEvent."""
    return f"dev.mvprune.{name}.v1"


@dataclass(frozen=True)
class Answer:
    """How an attempt ended.

    Attributes:
        status: of HTTP, None where no answer came.
        error: why it failed; "" after a 2xx.
    """

    status: int | None
    error: str = ""

    @property
    def is_success(self) -> bool:
        """Whether the receiver has it."""
        return not self.error


@dataclass(frozen=True)
class Verdict:
    """What follows from an attempt.

    Attributes:
        state: of the delivery.
        failures: attempts of the webhook that failed in a row.
        due_us: when the webhook may be tried again.
        disabled: why the webhook is disabled from now on; "": it is not.
    """

    state: DeliveryState
    failures: int
    due_us: int
    disabled: str = ""


def verdict(answer: Answer, *, failures: int, until_us: int, now_us: int) -> Verdict:
    """What follows from an attempt.

    Args:
        failures: that the webhook had in a row before.
        until_us: when the delivery is given up.
    """
    if answer.is_success:
        return Verdict(DeliveryState.DELIVERED, 0, 0)
    if answer.status == GONE:
        return Verdict(DeliveryState.FAILED, failures + 1, 0, "the receiver answered 410 (Gone)")
    due_us = now_us + BACK_OFF_SECONDS[min(failures, len(BACK_OFF_SECONDS) - 1)] * _SECOND
    state = DeliveryState.PENDING if now_us < until_us else DeliveryState.FAILED
    return Verdict(state, failures + 1, due_us)
