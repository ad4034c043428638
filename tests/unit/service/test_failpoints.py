"""Failpoints: what places do that were told to, and that all others do nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from mvprune_service import failpoints
from mvprune_service.db.engine.outages import DatabaseUnavailable


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch):
    return lambda text: monkeypatch.setattr(failpoints, "_ACTIONS", failpoints._parse(text))


def test_errors_come_as_often_as_asked(told) -> None:
    told("a.b=error:2,c=error")
    for name in ("a.b", "c", "a.b", "c", "c"):
        with pytest.raises(DatabaseUnavailable):
            failpoints.failpoint(name)
    failpoints.failpoint("a.b")
    failpoints.failpoint("a")


def test_sleeping(told, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    told("a=sleep:2.5")
    failpoints.failpoint("a")
    failpoints.failpoint("b")
    assert slept == [2.5]


@pytest.mark.parametrize("text", ["a", "a=burn", "a=kill:1,b"])
def test_what_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be NAME=kill:N"):
        failpoints._parse(text)


def test_a_process_kills_itself_at_the_nth_hit() -> None:
    script = "from mvprune_service.failpoints import failpoint as f\nf('a'); f('b'); print('once', flush=True); f('a')"
    environment = {**os.environ, failpoints.ENVIRONMENT: "a=kill:2"}
    ended = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, "once\n"), ended.stderr
