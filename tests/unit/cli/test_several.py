"""Commands that take several jobs: all are tried, each has its answer, and the exit code is the worst."""

from __future__ import annotations

import io
import json
import re
import signal
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import grpc
import pytest
from tests.unit.cli.processes import started
from tests.unit.client.scripted_server import Fake, Mvpctl, job, refuse
from tests.waiting import PATIENCE, until

from mvprune.cli import main
from mvprune.cli.shared.exit import ExitCode, worst
from mvprune.cli.shared.live_jobs import JobBars, live_jobs
from mvprune.client import convert
from mvprune.client.models import JobRecord
from mvprune.v1 import job_pb2

CLI_PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
METRICS = {"eval/f1": 0.7, "delta/f1": -0.1}


def named(job_id: str, state: str, **fields: Any) -> job_pb2.Job:
    """A job with this id."""
    found = job(state, **fields)
    found.name = f"projects/default/jobs/{job_id}"
    return found


class Jobs:
    """A server with jobs: by id, the states that they go through."""

    def __init__(self, fake: Fake) -> None:
        self.artifact = fake.serve({"weights.safetensors": b"w"})
        self.ways: dict[str, list[job_pb2.Job]] = {}
        self.watched: list[str] = []
        for method in ("GetJob", "CancelJob", "RetryJob", "DeleteJob"):
            fake.answers[method] = self._answer(method)
        fake.answers["WatchJob"] = self._watch

    def add(self, job_id: str, *states: str, **fields: Any) -> None:
        """A job that goes through these states; SUCCEEDED has a result."""
        self.ways[job_id] = []
        for state in states:
            more = {"artifact": self.artifact, "metrics": METRICS, "primary_metric": "f1", **fields}
            self.ways[job_id].append(named(job_id, state, **(more if state == "SUCCEEDED" else fields)))

    def _answer(self, method: str) -> Any:
        def answer(request: Any, context: grpc.ServicerContext) -> Any:
            job_id = request.name.rpartition("/")[2]
            if job_id not in self.ways:
                refuse(context, grpc.StatusCode.NOT_FOUND, f"{request.name} does not exist")
            found = self.ways[job_id][0]
            if method == "DeleteJob":
                if found.state not in (6, 7, 8):
                    refuse(context, grpc.StatusCode.FAILED_PRECONDITION, f"{request.name} is not finished")
                return job_pb2.DeleteJobResponse()
            if method != "GetJob":
                found = named(job_id, {"CancelJob": "CANCELLING", "RetryJob": "QUEUED"}[method])
            return found

        return answer

    def _watch(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        job_id = request.name.rpartition("/")[2]
        self.watched.append(job_id)
        way = self.ways[job_id]
        for number, one in enumerate(way, 1):
            done = one.state in (6, 7, 8)
            yield job_pb2.WatchJobResponse(sequence=number, job=one, done=done)
        if not done:
            gone = threading.Event()
            context.add_callback(gone.set)
            gone.wait(PATIENCE)


@pytest.fixture
def jobs(fake: Fake) -> Jobs:
    return Jobs(fake)


def test_the_worst_code_is_defined_for_all() -> None:
    order = [ExitCode[name] for name in re.findall(r"`([A-Z_]+)`", _order_in_the_documents())]
    assert sorted(order) == sorted(ExitCode)
    for worse, better in pairwise(order):
        assert worst([better, worse, better]) is worse


def _order_in_the_documents() -> str:
    found = re.search(r"worst first: (.*?)\.", CLI_PAGE, flags=re.DOTALL)
    assert found, "docs/cli.md must name the order"
    return found[1]


@pytest.mark.parametrize(
    ("command", "line"),
    [("cancel", "job {} is CANCELLING"), ("retry", "job {} is QUEUED"), ("delete", "job {} deleted")],
)
def test_all_are_tried(jobs: Jobs, fake: Fake, mvpctl: Mvpctl, command: str, line: str) -> None:
    jobs.add("a", "FAILED")
    jobs.add("c", "FAILED")
    outcome = mvpctl(command, "a", "b", "projects/default/jobs/c")
    assert outcome.code == ExitCode.NOT_FOUND
    shown = ("a", "c" if command != "delete" else "projects/default/jobs/c")
    assert outcome.out.splitlines() == [line.format(name) for name in shown]
    assert outcome.err == "error: projects/default/jobs/b does not exist\n"
    asked = fake.requests[f"{command.capitalize()}Job"]
    assert [request.name.rpartition("/")[2] for request in asked] == ["a", "b", "c"]
    assert mvpctl(command, "a", "c").code == ExitCode.OK
    assert mvpctl(command, "a", "b", "c", "--quiet").out.splitlines() == ["a", "c"]


@pytest.mark.parametrize("command", ["cancel", "retry", "delete", "wait"])
def test_json_has_an_entry_for_each(jobs: Jobs, mvpctl: Mvpctl, command: str) -> None:
    jobs.add("a", "SUCCEEDED")
    outcome = mvpctl(command, "a", "b", "-o", "json")
    assert outcome.code == ExitCode.NOT_FOUND
    first, second = outcome.json
    assert first == {"deleted": "a"} if command == "delete" else first["name"] == "projects/default/jobs/a"
    assert second == {"job": "b", "error": "projects/default/jobs/b does not exist", "exit_code": 8}
    single = mvpctl(command, "a", "-o", "json")
    assert (single.code, single.json) == (0, first)


def test_options_may_stand_between_jobs(jobs: Jobs, fake: Fake, mvpctl: Mvpctl) -> None:
    for name in "ab":
        jobs.add(name, "RUNNING")
    assert mvpctl("cancel", "a", "--reason", "wrong data", "b").code == 0
    assert [request.reason for request in fake.requests["CancelJob"]] == ["wrong data"] * 2


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["a", "a"], "error: job: must be different jobs, got 'a' more than once\n"),
        (["projects/default/jobs/a", "a"], "must be different jobs, got 'projects/default/jobs/a' more than once"),
        (["a", "b/c"], "error: job: must be a job's id or its name, projects/PROJECT/jobs/JOB, got 'b/c'\n"),
        (["a", "\udcff"], "error: text must be UTF-8, got 'projects/default/jobs/\\udcff'\n"),
        ([], "the following arguments are required: JOB"),
    ],
)
@pytest.mark.parametrize("command", ["cancel", "retry", "delete", "wait"])
def test_what_cannot_be_is_refused_before_anything_is_done(
    jobs: Jobs, fake: Fake, mvpctl: Mvpctl, command: str, argv: list[str], error: str
) -> None:
    outcome = mvpctl(command, *argv)
    assert (outcome.code, outcome.out, fake.requests) == (ExitCode.REFUSED, "", {})
    assert error in outcome.err


@pytest.mark.parametrize("command", ["cancel", "retry", "delete"])
def test_the_rest_is_not_tried_once_no_server_answers(capsys: pytest.CaptureFixture[str], command: str) -> None:
    started = time.monotonic()
    code = main([command, *(f"j{number}" for number in range(20)), "--address", "127.0.0.1:1", "-o", "json"])
    assert code == ExitCode.UNREACHABLE
    assert time.monotonic() - started < 20, "each try takes two seconds"
    captured = capsys.readouterr()
    assert captured.err.count("no server answers") == 1
    assert "error: not tried: j1, j2, j3" in captured.err
    assert [entry["exit_code"] for entry in json.loads(captured.out)] == [7] * 20


def test_wait_waits_for_all(jobs: Jobs, mvpctl: Mvpctl) -> None:
    failure = job_pb2.Failure(reason="NAN_LOSS", message="it became NaN")
    jobs.add("good", "QUEUED", "RUNNING", "SUCCEEDED")
    jobs.add("bad", "RUNNING", "FAILED", failure=failure)
    jobs.add("ended", "CANCELLED")
    outcome = mvpctl("wait", "good", "bad", "none", "ended")
    assert outcome.code == ExitCode.NOT_FOUND
    assert sorted(jobs.watched) == ["bad", "good"]
    lines = outcome.out.splitlines()
    progress, table = lines[:-4], [line.split() for line in lines[-4:]]
    assert table == [
        ["JOB", "STATE", "METRIC", "DIFF", "FAILURE"],
        ["good", "SUCCEEDED", "f1", "0.7000", "-10.00"],
        ["bad", "FAILED", "NAN_LOSS"],
        ["ended", "CANCELLED"],
    ]
    for name in ("good", "bad"):
        assert f"{name}  RUNNING" in progress
    assert outcome.err.splitlines() == [
        "error: job bad failed: NAN_LOSS: it became NaN",
        "error: projects/default/jobs/none does not exist",
        "error: job ended was cancelled",
    ]
    assert mvpctl("wait", "good", "bad", "ended").code == ExitCode.FAILED
    assert mvpctl("wait", "good", "ended", "--quiet").out.splitlines() == ["good", "ended"]
    answers = mvpctl("wait", "good", "bad", "-o", "json").json
    assert [(one["state"], one["result"] is None) for one in answers] == [("SUCCEEDED", False), ("FAILED", True)]


def test_wait_has_one_timeout_for_all(jobs: Jobs, mvpctl: Mvpctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mvprune.cli.shared.wait_jobs._AT_ONCE", 1)
    names = [f"j{number}" for number in range(40)]
    for name in names:
        jobs.add(name, "RUNNING")
    jobs.add("e", "SUCCEEDED")
    started = time.monotonic()
    outcome = mvpctl("wait", *names, "e", "--timeout", "1.5", "-o", "json")
    assert time.monotonic() - started < 40 * 1.5, "not one after another"
    assert outcome.code == ExitCode.TIMEOUT
    assert [one["state"] for one in outcome.json] == ["RUNNING"] * 40 + ["SUCCEEDED"]
    for name in names:
        assert f"error: job {name} is still RUNNING after 1.5 s\nwait again: mvpctl wait {name}\n" in outcome.err


def test_a_missed_gate_counts_less_than_a_cancellation(jobs: Jobs, mvpctl: Mvpctl) -> None:
    gate = job_pb2.Gate(metric="eval/f1", min=0.8)
    missed = [job_pb2.GateResult(gate=gate, observed=0.7)]
    jobs.add("a", "SUCCEEDED")
    jobs.add("b", "SUCCEEDED")
    jobs.ways["b"][0].gate_results.extend(missed)
    outcome = mvpctl("wait", "a", "b")
    assert outcome.code == ExitCode.GATE
    assert "0 of 1 passed" in outcome.out
    assert outcome.err == "error: job b missed 1 of 1 gates: f1>=80\n"
    jobs.add("c", "CANCELLED")
    assert mvpctl("wait", "a", "b", "c").code == ExitCode.CANCELLED


def test_reports_have_all_jobs(jobs: Jobs, mvpctl: Mvpctl, tmp_path: Path) -> None:
    jobs.add("good", "SUCCEEDED")
    jobs.add("bad", "FAILED", failure=job_pb2.Failure(reason="NAN_LOSS", message="it became NaN"))
    summary, xml = tmp_path / "s.md", tmp_path / "j.xml"
    files = ("--summary", str(summary), "--junit", str(xml))
    assert mvpctl("wait", "good", "no.ne", "bad", *files).code == ExitCode.NOT_FOUND
    suites = ElementTree.parse(xml).getroot()  # noqa: S314 (our own)
    assert [suite.attrib["name"] for suite in suites] == ["good", "no.ne", "bad"]
    assert [suite.attrib["id"] for suite in suites] == ["0", "1", "2"]
    assert [(suite.attrib["errors"], suite.attrib["failures"]) for suite in suites] == [
        ("0", "0"),
        ("1", "0"),
        ("0", "1"),
    ]
    for suite in suites:
        assert suite.attrib.keys() == suites[0].attrib.keys()
        assert [part.tag for part in suite] == ["properties", "testcase", "system-out", "system-err"]
    [error] = suites[1].findall("testcase/error")
    assert error.attrib == {"type": "NotFound", "message": "projects/default/jobs/no.ne does not exist"}
    assert suites[1].find("testcase").attrib["classname"] == "mvprune.no,ne"  # type: ignore[union-attr]
    headings = re.findall(r"^### (.) ([\w.]+)", summary.read_text(), flags=re.MULTILINE)
    assert headings == [("✓", "good"), ("✗", "no.ne"), ("✗", "bad")]


def test_wait_says_once_that_no_server_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wait", "a", "b", "--address", "127.0.0.1:1"]) == ExitCode.UNREACHABLE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("no server answers") == 1
    assert captured.err.endswith("error: not waited for: a, b\n")


def test_a_download_is_of_one_job(mvpctl: Mvpctl, jobs: Jobs) -> None:
    outcome = mvpctl("wait", "a", "b", "--download", "out")
    assert outcome.code == ExitCode.REFUSED
    assert outcome.err.startswith("error: unrecognized arguments: --download")


def test_ctrl_c_names_the_jobs(jobs: Jobs, fake: Fake) -> None:
    for name in ("a", "b"):
        jobs.add(name, "RUNNING")
    with started(fake, "wait", "a", "b", "--timeout", "60") as process:
        until(lambda: len(jobs.watched) == 2, "both are watched")
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=PATIENCE)
    assert process.returncode == ExitCode.INTERRUPTED
    assert error == "\ninterrupted; the jobs continue. To wait again: mvpctl wait a b\n"


def _record(job_id: str, state: str, step: int = 0) -> JobRecord:
    progress = job_pb2.Progress(phase="pruning", step=step, total_steps=400)
    return JobRecord(**convert.job_fields(named(job_id, state, progress=progress)))


def test_a_terminal_has_a_bar_for_each_job_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with live_jobs(stream, 2) as bars:
        assert isinstance(bars, JobBars)
        bars.show(_record("a[red]", "RUNNING", 100))
        bars.show(_record("b", "QUEUED"))
        assert [(task.description, task.completed) for task in bars._bars.tasks[1:]] == [
            ("a\\[red]  [cyan]RUNNING[/]", 100),
            ("b  [blue]QUEUED[/]", 0),
        ]
        for _ in range(2):
            bars.show(_record("a[red]", "SUCCEEDED"))
        assert [task.description for task in bars._bars.tasks] == ["jobs that have ended", "b  [blue]QUEUED[/]"]
        assert (bars._bars.tasks[0].completed, bars._bars.tasks[0].fields["steps"]) == (1, "1/2")
    assert re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", stream.getvalue()).count("a[red]  SUCCEEDED\n") == 1
    with live_jobs(None, 2) as nothing:
        assert nothing is None
