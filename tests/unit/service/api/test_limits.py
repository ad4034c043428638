"""Rate limits: how often a caller may call."""

from __future__ import annotations

import grpc
import pytest
from tests.unit.service.conftest import TestClock

from mvprune_service.api.access.errors import ApiError
from mvprune_service.api.access.limits import RateLimiter


def test_a_bucket_fills_at_its_rate_and_tells_how_long_to_wait(clock: TestClock) -> None:
    limiter = RateLimiter(10, 20, clock)
    for _ in range(20):
        limiter.take("a")
    with pytest.raises(ApiError) as caught:
        limiter.take("a")
    assert (caught.value.code, caught.value.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "RATE_LIMITED")
    wait = caught.value.retry_seconds
    assert wait == pytest.approx(0.1, abs=1e-3)
    limiter.take("b")  # another's is full
    clock.pass_seconds(wait - 0.01)
    with pytest.raises(ApiError):
        limiter.take("a")
    clock.pass_seconds(0.01)
    limiter.take("a")  # what it said was true
    clock.pass_seconds(3600)
    for _ in range(20):
        limiter.take("a")
    with pytest.raises(ApiError):
        limiter.take("a")


def test_large_takes_wait_for_a_full_bucket_and_leave_a_debt(clock: TestClock) -> None:
    limiter = RateLimiter(10, 20, clock)
    limiter.take("a", 50)
    with pytest.raises(ApiError) as caught:
        limiter.take("a", 1)
    assert caught.value.retry_seconds == pytest.approx(3.1, abs=1e-3)


def test_a_clock_that_is_set_back_locks_nobody_out(clock: TestClock) -> None:
    limiter = RateLimiter(10, 1, clock)
    limiter.take("a")
    clock.pass_seconds(-3600)
    with pytest.raises(ApiError) as caught:
        limiter.take("a")
    clock.pass_seconds(caught.value.retry_seconds or 0)
    limiter.take("a")


def test_callers_that_are_gone_are_forgotten(clock: TestClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mvprune_service.api.access.limits._CALLERS", 3)
    limiter = RateLimiter(1, 2, clock)
    for key in "abc":
        limiter.take(key)
    limiter.take("a")
    limiter.take("d")
    assert set(limiter._buckets) == {"a", "c", "d"}, "the one that was used longest ago is forgotten"
    assert not limiter.has("a")
    assert limiter.has("c")
    assert limiter.has("b")
