"""Long work on a thread leaves the interpreter to others."""

from __future__ import annotations

import time

import pytest

from mvprune_service.api.access import threads
from mvprune_service.api.access.threads import Rests


def work(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_work_beyond_the_first_is_followed_by_twice_as_long_a_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(threads.time, "sleep", slept.append)
    rests = Rests(free_seconds=0.01)
    rests.rest()
    assert slept == []
    work(0.01)
    rests.rest()
    rests.rest()
    work(0.001)
    rests.rest()
    assert slept == [pytest.approx(0.002)] * 2
