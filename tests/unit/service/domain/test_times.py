"""When jobs leave the queue, end and expire, over every transition."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from mvprune.v1 import job_pb2
from mvprune_service.clock import SECOND
from mvprune_service.domain.machine import TRANSITIONS
from mvprune_service.domain.times import after_move, expire_us, queue_deadline_us, rank_us

NOW = 1_000 * SECOND
SET = job_pb2.ExecutionPolicy(max_queue_time={"seconds": 5}, retention={"seconds": 60})
OPEN = job_pb2.ExecutionPolicy()


@pytest.mark.parametrize("start", [None, NOW - 7])
@pytest.mark.parametrize(("edge", "policy", "waits"), list(itertools.product(TRANSITIONS, (SET, OPEN), (False, True))))
def test_every_transition(edge: Any, policy: job_pb2.ExecutionPolicy, waits: bool, start: int | None) -> None:
    before, after = edge[0], TRANSITIONS[edge]
    expected: dict[str, int | None] = {"queue_deadline_us": None}
    if after in ("SUCCEEDED", "FAILED", "CANCELLED"):
        expected |= {"end_us": NOW, "duration_us": start and 7}
        expected |= {"expire_us": NOW + 60 * SECOND if policy is SET else None}
    elif before in ("FAILED", "CANCELLED"):
        expected |= {"end_us": None, "duration_us": None, "expire_us": None}
    if after == "QUEUED" and policy is SET and not waits:
        expected["queue_deadline_us"] = NOW + 5 * SECOND
    assert after_move(before, after, policy, NOW, start_us=start, waits=waits) == expected


def test_a_point_of_priority_is_ten_minutes() -> None:
    assert rank_us(NOW, 0) == NOW
    assert rank_us(NOW, 2) == NOW - 1200 * SECOND
    assert rank_us(NOW, -1) == NOW + 600 * SECOND


def test_without_limits_nothing_expires() -> None:
    assert expire_us(NOW, OPEN) is None
    assert expire_us(NOW, SET) == NOW + 60 * SECOND
    assert queue_deadline_us(NOW, OPEN, waits=False) is None
    assert queue_deadline_us(NOW, SET, waits=True) is None
