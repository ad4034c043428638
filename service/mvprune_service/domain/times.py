"""When a job is taken from the queue, ends and expires, in microseconds since the epoch."""

from __future__ import annotations

from typing import TypedDict

from mvprune.v1 import job_pb2
from mvprune_service.clock import SECOND
from mvprune_service.domain.machine import TERMINAL, JobState

PRIORITY_POINT = 600 * SECOND  # how much longer a job seems to have waited, for each point of its priority


class Times(TypedDict, total=False):
    """Columns of a job that change when its state does. A missing one stays as it is."""

    end_us: int | None
    duration_us: int | None
    expire_us: int | None
    queue_deadline_us: int | None


def rank_us(now: int, priority: int) -> int:
    """The place in the queue of a job that enters it now: the smallest is first. All jobs grow older at the same rate,
    so a rank stays as it is. Only the queued jobs of a sweep get a new one when one of them starts."""
    return now - priority * PRIORITY_POINT


def queue_deadline_us(now: int, policy: job_pb2.ExecutionPolicy, *, waits: bool) -> int | None:
    """Until when a job that enters the queue now may stay in it; None: for ever, or as long as it `waits` for its
    teacher."""
    if waits or not policy.HasField("max_queue_time"):
        return None
    return now + policy.max_queue_time.ToMicroseconds()


def expire_us(now: int, policy: job_pb2.ExecutionPolicy) -> int | None:
    """When something that is kept from now on may be deleted; None: never."""
    return now + policy.retention.ToMicroseconds() if policy.HasField("retention") else None


def after_move(
    before: JobState,
    after: JobState,
    policy: job_pb2.ExecutionPolicy,
    now: int,
    *,
    start_us: int | None,
    waits: bool,
) -> Times:
    """Changes of times when a job goes from one state to another.

    Args:
        start_us: when it first ran; None: it never ran.
        waits: it waits for its teacher.
    """
    queued = queue_deadline_us(now, policy, waits=waits) if after is JobState.QUEUED else None
    if after in TERMINAL:
        duration = None if start_us is None else now - start_us
        return Times(end_us=now, duration_us=duration, expire_us=expire_us(now, policy), queue_deadline_us=queued)
    if before in TERMINAL:
        return Times(end_us=None, duration_us=None, expire_us=None, queue_deadline_us=queued)
    return Times(queue_deadline_us=queued)
