"""What is drawn on terminals: fewer columns where they are narrow, colours, the end of what was waited for."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.sparse_artifacts import make_artifact
from tests.unit.client.scripted_server import SUBMIT, Fake, always, job, watch

from mvprune.cli import main
from mvprune.v1 import job_pb2

Terminal = Callable[..., str]
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def terminal(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """What a command draws on a terminal of so many columns, with codes for colours."""

    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    def draw(columns: int, *argv: str) -> str:
        screen = Screen()
        with monkeypatch.context() as patch:
            patch.setenv("COLUMNS", str(columns))
            patch.setenv("TERM", "xterm-256color")
            patch.setenv("MVPRUNE_ADDRESS", fake.address)
            patch.setattr(sys, "stdout", screen)
            main(argv)
        return screen.getvalue()

    return draw


def plain(text: str) -> str:
    return _CODES.sub("", text)


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (120, ["JOB", "TASK", "METHOD", "DENSITY", "STATE", "PROGRESS", "AGE"]),
        (80, ["JOB", "TASK", "DENSITY", "STATE", "PROGRESS"]),
        (60, ["JOB", "TASK", "DENSITY", "STATE"]),
        (40, ["JOB", "DENSITY", "STATE"]),
    ],
)
def test_a_narrow_terminal_gets_fewer_columns(fake: Fake, terminal: Terminal, columns: int, shown: list[str]) -> None:
    progress = job_pb2.Progress(phase="evaluating", step=1200, total_steps=400_000)
    one = job("FINALIZING", progress=progress)
    one.name = "projects/default/jobs/squad-k3x9ab"
    one.spec.task = "squad_v2"
    fake.answers["ListJobs"] = always(job_pb2.ListJobsResponse(jobs=[one] * 3))
    lines = plain(terminal(columns, "list")).splitlines()
    heading = next(line for line in lines if line.startswith(" JOB"))
    assert heading.split() == shown
    rows = [line for line in lines if line.startswith(" squad-k3x9ab ")]
    assert len(rows) == 3
    assert all("FINALIZING" in row for row in rows)
    assert max(map(len, lines)) <= columns
    hidden = [name for name in ("TASK", "METHOD", "DENSITY", "PROGRESS", "AGE") if name not in shown]
    told = f"not shown: {', '.join(hidden)}; a wider terminal shows them, as does -o json"
    assert (told in " ".join(" ".join(lines).split())) == bool(hidden)


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (180, "JOB TASK METHOD DENSITY STATE PROGRESS METRIC DIFF DURATION FAILURE LABELS AGE"),
        (120, "JOB TASK DENSITY STATE PROGRESS METRIC DIFF DURATION FAILURE"),
        (100, "JOB TASK DENSITY STATE METRIC DIFF FAILURE"),
        (80, "JOB DENSITY STATE METRIC DIFF FAILURE"),
        (50, "JOB STATE METRIC DIFF"),
    ],
)
def test_a_narrow_terminal_keeps_what_became_of_jobs(fake: Fake, terminal: Terminal, columns: int, shown: str) -> None:
    metrics = {"eval/accuracy": 0.875, "delta/accuracy": -0.025}
    done = job("SUCCEEDED", metrics=metrics, primary_metric="accuracy", labels={"team": "search", "stage": "x" * 30})
    failed = job("FAILED", failure=job_pb2.Failure(reason="UNSATISFIABLE_RESOURCES"))
    for one in (done, failed):
        one.start_time.FromJsonString("2026-01-31T12:00:10Z")
        one.end_time.FromJsonString("2026-01-31T12:01:30Z")
    running = job(progress=job_pb2.Progress(phase="evaluating", step=1200, total_steps=4000))
    fake.answers["ListJobs"] = always(job_pb2.ListJobsResponse(jobs=[done, failed, running]))
    lines = plain(terminal(columns, "list")).splitlines()
    assert next(line for line in lines if line.startswith(" JOB")).split() == shown.split()
    assert max(map(len, lines)) <= columns


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_no_command_breaks_its_rows(
    terminal: Terminal, fake: Fake, succeeds: str, tmp_path: Path, columns: int
) -> None:
    for name in ("out", "other"):
        make_artifact(tmp_path / name)
    fake.answers["GetJob"] = always(job("SUCCEEDED", artifact=succeeds))
    for argv in (("get", "j1"), ("compare", str(tmp_path / "out"), str(tmp_path / "other"))):
        lines = plain(terminal(columns, *argv)).splitlines()
        assert max(map(len, lines)) <= columns, argv
    result = plain(terminal(columns, "get", "j1"))
    for name in ("accuracy", "f1", "non-zero weights", "of the embeddings"):
        assert re.search(rf"^ {name} ", result, flags=re.MULTILINE)


def test_states_are_coloured(fake: Fake, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    states = ("SUCCEEDED", "FAILED", "CANCELLED", "RUNNING", "QUEUED")
    fake.answers["ListJobs"] = always(job_pb2.ListJobsResponse(jobs=[job(state) for state in states]))
    colours = dict(zip(states, ("32", "31", "33", "36", "34"), strict=True))
    text = terminal(120, "list")
    for state, colour in colours.items():
        assert f"\x1b[{colour}m{state}" in text
    fake.answers["GetJob"] = always(job("FAILED"))
    assert re.search(r"\x1b\[31mFAILED", terminal(120, "get", "j1"))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[3[0-9]m", terminal(120, "list") + terminal(120, "get", "j1"))


@pytest.mark.parametrize(
    ("state", "end"),
    [
        ("SUCCEEDED", "job j1 is SUCCEEDED after 2m00s; next: mvpctl download j1 DIR"),
        ("FAILED", "job j1 is FAILED after 2m00s; next: mvpctl logs j1"),
        ("CANCELLED", "job j1 is CANCELLED after 2m00s; next: mvpctl retry j1"),
    ],
)
@pytest.mark.parametrize("command", ["submit", "wait", "watch"])
def test_what_was_waited_for_ends_with_its_state_and_what_is_next(
    fake: Fake, succeeds: str, terminal: Terminal, command: str, state: str, end: str
) -> None:
    done = job(state, artifact=succeeds if state == "SUCCEEDED" else "")
    done.end_time.FromJsonString("2026-01-31T12:02:00Z")
    fake.answers |= {"WatchJob": watch(done), "GetJob": [always(job()), always(done)]}
    argv = {"submit": [*SUBMIT, "--density", "0.03", "--wait"]}.get(command, [command, "j1"])
    if command == "watch":
        fake.answers["GetJob"] = always(done)
    text = terminal(60, *argv)
    assert plain(text).splitlines()[-1] == end
    assert re.search(rf"is \x1b\[3[0-9]m{state}\x1b\[0m", text)


def test_what_was_downloaded_is_what_is_next(fake: Fake, succeeds: str, terminal: Terminal, tmp_path: Path) -> None:
    folder = tmp_path / "of mine"
    text = plain(terminal(80, *SUBMIT, "--density", "0.03", "--download", str(folder)))
    assert text.splitlines()[-1] == f"job j1 is SUCCEEDED; next: mvpctl serve '{folder}'"


@pytest.mark.parametrize("phase", ["waiting", "fetching"])
def test_ctrl_c_says_how_to_get_the_artifact_later(
    fake: Fake,
    succeeds: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    phase: str,
) -> None:
    def interrupt(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mvprune.Client.wait" if phase == "waiting" else "mvprune.Client.download", interrupt)
    folder = tmp_path / "out"
    assert main([*SUBMIT, "--density", "0.03", "--download", str(folder), "--address", fake.address]) == 130
    error = capsys.readouterr().err
    assert f"mvpctl download j1 {folder}\n" in error
    assert ("job j1 continues. To wait again: mvpctl wait j1" in error) == (phase == "waiting")
