"""mvpctl: progress bars and progress lines."""

from __future__ import annotations

import io
from typing import Any

import pytest
from tests.unit.client.scripted_server import job

from mvprune import Client, Job
from mvprune.cli.shared.live import Bar, Lines, live
from mvprune.cli.shared.text import clean
from mvprune.client import convert
from mvprune.common.units import age, count, duration, percent, size
from mvprune.v1 import job_pb2


def _job(step: int = 0, phase: str = "pruning", state: str = "RUNNING", **fields: Any) -> Job:
    progress = job_pb2.Progress(phase=phase, step=step, total_steps=400, density=0.5, loss=1.0)
    return Job(**convert.job_fields(job(state, progress=progress, **fields)), calls=Client()._core)


def test_lines_come_at_changes_and_now_and_then() -> None:
    stream, now = io.StringIO(), [0.0]
    lines = Lines(stream, lambda: now[0])
    for second, step, phase in [(0, 1, "dense"), (1, 2, "dense"), (4, 3, "dense"), (5, 4, "dense"), (6, 1, "pruning")]:
        now[0] = second
        lines.show(_job(step, phase))
    lines.show(_job(1, state="QUEUED", state_reason="WAITING_FOR_CAPACITY"))
    lines.show(_job(1, state="QUEUED", state_reason="WAITING_FOR_QUOTA"))
    lines.show(_job(state="SUCCEEDED", phase="pruning"))
    assert [line.split("  ")[:2] for line in stream.getvalue().splitlines()] == [
        ["RUNNING", "dense 1/400"],
        ["RUNNING", "dense 4/400"],
        ["RUNNING", "pruning 1/400"],
        ["QUEUED: waits until the cluster has room for it (WAITING_FOR_CAPACITY)", "pruning 1/400"],
        ["QUEUED: waits until the project's quota leaves it GPUs (WAITING_FOR_QUOTA)", "pruning 1/400"],
        ["SUCCEEDED"],
    ]
    assert "\x1b" not in stream.getvalue()


def test_the_form_fits_the_stream() -> None:
    with live(io.StringIO()) as plain:
        assert isinstance(plain, Lines)


def test_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with live(stream) as bar:
        assert isinstance(bar, Bar)
        bar.show(_job(120, state_reason="[red]odd[/red]"))
        bar.note("an event\x07")
        bar.bytes(500, 1000)
    text = stream.getvalue()
    assert "an event \n" in text.replace("\x1b[2K", "").replace("\r", "")
    assert "fetching and verifying" in text
    assert "500 B of 1.0 kB" in text


def test_words() -> None:
    assert [count(n) for n in (0, 999, 1000, 85_054_464, 1.2e9)] == ["0", "999", "1.0 k", "85.1 M", "1.2 B"]
    assert [size(n) for n in (0, 999, 24_117_248, 2_000_000_000)] == ["0 B", "999 B", "24.1 MB", "2.0 GB"]
    assert [percent(f) for f in (0.03, 0.125, 1.0, 0.0005)] == ["3.0 %", "12.5 %", "100.0 %", "0.05 %"]
    assert [duration(s) for s in (-1, 59, 80, 3700, 90000)] == ["0s", "59s", "1m20s", "1h01m", "1d01h"]
    assert age(None) == ""
    assert clean("a\x1b[1mb\nc\td") == "a [1mb\nc d"
