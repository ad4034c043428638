"""What is printed where little can be printed: closed and full outputs, other encodings, narrow terminals."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.client.scripted_server import SUBMIT, Fake, Mvpctl, always, job
from tests.waiting import PATIENCE

from mvprune.cli import main
from mvprune.v1 import job_pb2

ID = "text-classification-k7zt52"


def run(redirection: str, *argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """mvpctl as a shell starts it."""
    code = "import sys; from mvprune.cli import main; sys.exit(main())"
    command = ["bash", "-c", f'"$@" {redirection}', "bash", sys.executable, "-c", code, *argv]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=PATIENCE)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_disk_is_said() -> None:
    done = run("> /dev/full", "--version")
    assert (done.returncode, done.stderr) == (1, "error: No space left on device\n")


@pytest.mark.parametrize("redirection", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_output_is_no_error(fake: Fake, redirection: str) -> None:
    fake.answers["ListJobs"] = always(job_pb2.ListJobsResponse(jobs=[job()]))
    done = run(redirection, "list", "--limit", "1", "--address", fake.address)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


def test_grpc_says_nothing_of_its_own(fake: Fake) -> None:
    done = run("", "list", "--address", f"grpcs://{fake.address}")
    assert done.returncode == 7
    assert done.stderr.startswith(f"error: no server answers at {fake.address} (what is there speaks no TLS)\n")


def test_what_an_encoding_lacks_is_escaped(tmp_path: Path) -> None:
    file = tmp_path / "\u2192.toml"
    done = run("", "config", "path", MVPRUNE_CONFIG=str(file), PYTHONIOENCODING="latin-1")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/\\u2192.toml\n")


@pytest.mark.parametrize(
    "argv",
    [
        ("get", "a\udcff"),
        ("list", "--filter", "a\udcff"),
        ("list", "--address", "a\udcff:1"),
        ("cancel", "j1", "--reason", "a\udcff"),
        (*SUBMIT, "--density", "0.1", "--label", "a=a\udcff"),
        ("submit", "--model", "a\udcff", "--task", "sst2", "--density", "0.1"),
    ],
)
def test_bytes_that_are_no_text_are_refused(mvpctl: Mvpctl, argv: tuple[str, ...]) -> None:
    """As Python gives the arguments of a command line that is not UTF-8."""
    outcome = mvpctl(*argv)
    assert outcome.code == 2
    assert "must be UTF-8, got '" in outcome.err
    assert "a\\udcff" in outcome.err


@pytest.fixture
def on_terminal(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What a command draws on a terminal of so many columns."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def draw(columns: int, *argv: str) -> str:
        terminal = Terminal()
        with monkeypatch.context() as patch:
            patch.setenv("COLUMNS", str(columns))
            patch.setattr(sys, "stdout", terminal)
            assert main([*argv, "--address", fake.address]) == 0
        return terminal.getvalue()

    return draw


def test_names_can_be_copied_from_terminals_of_any_width(fake: Fake, on_terminal: Callable[..., str]) -> None:
    long = job()
    long.name = f"projects/default/jobs/{ID}"
    long.spec.task = "text-classification"
    fake.answers["ListJobs"] = always(job_pb2.ListJobsResponse(jobs=[long]))
    for columns in (20, 40, 60, 80, 100, 120):
        assert ID in on_terminal(columns, "list"), f"{columns} columns"
    assert "\u2500" in on_terminal(60, "list"), "drawn"
    assert "\u2500" not in on_terminal(20, "list"), "plain lines, which the terminal breaks"


def test_a_long_value_is_folded_and_not_cut(fake: Fake, on_terminal: Callable[..., str]) -> None:
    model = "/models/" + "x" * 100
    fake.answers["GetJob"] = always(job())
    fake.answers["GetJob"](None, None).spec.model = model
    text = on_terminal(60, "get", "j1")
    assert text.count("x") >= 100
    assert "\u2026" not in text
