"""mvpctl: answers, exit codes and errors of each command."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.unit.cli.processes import started
from tests.unit.client.scripted_server import NAME, SIZE, SUBMIT, Fake, Mvpctl, always, job, refuse, watch
from tests.waiting import PATIENCE

from mvprune.cli import main
from mvprune.cli.shared.exit import ExitCode
from mvprune.v1 import job_pb2


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("INVALID_ARGUMENT", ExitCode.REFUSED),
        ("FAILED_PRECONDITION", ExitCode.REFUSED),
        ("ALREADY_EXISTS", ExitCode.REFUSED),
        ("ABORTED", ExitCode.REFUSED),
        ("RESOURCE_EXHAUSTED", ExitCode.REFUSED),
        ("NOT_FOUND", ExitCode.NOT_FOUND),
        ("UNAUTHENTICATED", ExitCode.NOT_FOUND),
        ("PERMISSION_DENIED", ExitCode.NOT_FOUND),
        ("INTERNAL", ExitCode.ERROR),
        ("UNAVAILABLE", ExitCode.UNREACHABLE),
    ],
)
def test_exit_codes_of_calls(fake: Fake, mvpctl: Mvpctl, code: str, expected: ExitCode) -> None:
    fake.answers["RetryJob"] = lambda request, context: refuse(context, grpc.StatusCode[code], "the reason", "R")
    outcome = mvpctl("retry", "j1")
    assert outcome.code == expected
    assert outcome.err.splitlines()[0].startswith("error: ")
    assert "the reason" in outcome.err


def test_nobody_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["get", "j1", "--address", "127.0.0.1:1"]) == 7
    assert capsys.readouterr().err == (
        "error: no server answers at 127.0.0.1:1 (Connection refused)\n"
        "start a server with `mvpctl server start`, or name another with --address or MVPRUNE_ADDRESS\n"
    )


def test_time_is_up(fake: Fake, mvpctl: Mvpctl) -> None:
    def silent(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        done = threading.Event()
        context.add_callback(done.set)
        yield job_pb2.WatchJobResponse(sequence=1, job=job())
        done.wait(PATIENCE)

    fake.answers |= {"GetJob": always(job()), "WatchJob": silent}
    outcome = mvpctl("wait", "j1", "--timeout", "0.2")
    assert outcome.code == 6
    assert outcome.err == "error: job j1 is still RUNNING after 0.2 s\nwait again: mvpctl wait j1\n"
    assert mvpctl("wait", "j1", "--timeout", "0.2", "-o", "json").json["state"] == "RUNNING"


def test_an_interrupted_submit_says_what_may_have_become_of_it(fake: Fake) -> None:
    asked, done = threading.Event(), threading.Event()

    def slow(request: Any, context: grpc.ServicerContext) -> Any:
        context.add_callback(done.set)
        asked.set()
        done.wait(PATIENCE)
        return job()

    fake.answers["CreateJob"] = slow
    with started(fake, *SUBMIT, "--density", "0.1") as process:
        try:
            assert asked.wait(PATIENCE)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert (process.returncode, out) == (130, "")
    assert err.strip() == "interrupted; what was being submitted may be in the queue all the same: see mvpctl list"


def test_interrupted(fake: Fake) -> None:
    watching, done = threading.Event(), threading.Event()

    def silent(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        context.add_callback(done.set)
        yield job_pb2.WatchJobResponse(sequence=1, job=job())
        watching.set()
        done.wait(PATIENCE)

    fake.answers |= {"GetJob": always(job()), "WatchJob": silent}
    with started(fake, "wait", NAME) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "RUNNING\n"
        assert watching.wait(PATIENCE)
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 130
    lines = [
        "interrupted; job j1 continues. To wait again: mvpctl wait j1",
        "to get its artifact: mvpctl download j1 DIR",
    ]
    assert (out, err.split("\n")[1:-1]) == ("", lines)


def test_watch_shows_events_and_the_result(fake: Fake, mvpctl: Mvpctl, succeeds: str) -> None:
    fake.answers["GetJob"] = always(job("SUCCEEDED", artifact=succeeds))
    outcome = mvpctl("watch", "j1")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert lines[:4] == [
        "STATE_CHANGED  QUEUED  scheduler",
        "QUEUED",
        "STATE_CHANGED  RUNNING  scheduler",
        "RUNNING  pruning 120/400  loss 0.4313  density 41.2 %  eta 1m20s",
    ]
    assert "density reached" in outcome.out
    updates = [json.loads(line) for line in mvpctl("watch", "j1", "-o", "json").out.splitlines()]
    assert [update["sequence"] for update in updates] == [1, 2, 3]
    assert updates[1]["job"]["progress"]["eta"] == 80
    assert updates[-1]["done"] is True


def test_get(fake: Fake, mvpctl: Mvpctl, succeeds: str) -> None:
    fake.answers["GetJob"] = always(
        job(
            "RUNNING", model_size=SIZE, state_reason="", progress=job_pb2.Progress(phase="dense", step=1, total_steps=2)
        )
    )
    text = mvpctl("get", "j1").out
    assert "state     RUNNING\n" in text
    assert "progress  dense 1/2\n" in text
    assert "density   keeps 3.0 % of 84.9 M prunable weights (2.5 M)\n" in text
    assert "teacher" not in text
    taught = job("QUEUED", state_reason="WAITING_FOR_TEACHER")
    taught.spec.teacher.job = "projects/default/jobs/sst2-teacher-k3"
    fake.answers["GetJob"] = always(taught)
    text = mvpctl("get", "j1").out
    assert "state    QUEUED: waits for the job of its teacher or baseline (WAITING_FOR_TEACHER)\n" in text
    assert "teacher  projects/default/jobs/sst2-teacher-k3\n" in text
    masked = job("SUCCEEDED", artifact=succeeds)
    masked.notes.extend(["the result is near a constant answer", "another"])
    masked.spec.ClearField("target_density")
    masked.spec.locked_mask.mask_from.job = "projects/default/jobs/first"
    fake.answers["GetJob"] = always(masked)
    text = mvpctl("get", "j1").out
    assert "mask      job:projects/default/jobs/first\n" in text
    assert "density   keeps the weights that the mask keeps\n" in text
    assert "note      the result is near a constant answer\nnote      another\n" in text
    alone = job("QUEUED")
    alone.spec.teacher.none = True
    fake.answers["GetJob"] = always(alone)
    assert "teacher  none\n" in mvpctl("get", "j1").out
    fake.answers["GetJob"] = always(job("SUCCEEDED", artifact=succeeds))
    stored = job("SUCCEEDED", artifact=succeeds)
    stored.spec.weight_dtype, stored.spec.delta = job_pb2.CompressionSpec.INT8, True
    fake.answers["GetJob"] = always(stored)
    text = mvpctl("get", "j1").out
    assert "stored    int8 weights, delta\n" in text
    stored.spec.activations = job_pb2.Runtime.INT8
    assert "activations  int8\n" in mvpctl("get", "j1").out
    table = [line.split() for line in text.splitlines()]
    assert ["bytes", "438.0", "MB", "55.0", "MB", "8.0x", "smaller"] in table
    assert ["of", "the", "encoder", "340.2", "MB", "7.0", "MB", "48.6x", "smaller"] in table
    assert ["of", "the", "embeddings", "47.1", "MB"] in table
    assert mvpctl("get", "j1", "-o", "json").json["result"]["name"] == succeeds
    failed = job("FAILED", failure=job_pb2.Failure(reason="INVALID_MODEL", message="no weights"))
    fake.answers["GetJob"] = always(failed)
    text = mvpctl("get", "j1").out
    assert "failure  INVALID_MODEL: no weights\n" in text
    for absent in ("hint", "priority", "creator", "expires"):
        assert absent not in text


@pytest.mark.parametrize(
    ("state", "reason", "words"),
    [
        ("QUEUED", "", "QUEUED"),
        ("QUEUED", "WAITING_FOR_CAPACITY", "QUEUED: waits until the cluster has room for it (WAITING_FOR_CAPACITY)"),
        ("QUEUED", "WAITING_FOR_QUOTA", "QUEUED: waits until the project's quota leaves it GPUs (WAITING_FOR_QUOTA)"),
        ("QUEUED", "EXECUTOR_UNREACHABLE", "QUEUED: waits until the cluster can be reached (EXECUTOR_UNREACHABLE)"),
        (
            "STARTING",
            "WAITING_FOR_NODE",
            "STARTING: waits until the cluster has added a node for it (WAITING_FOR_NODE)",
        ),
        ("QUEUED", "WORKER_LOST", "QUEUED: tries again (WORKER_LOST)"),
        ("RUNNING", "ODD", "RUNNING (ODD)"),
        ("FAILED", "NAN_LOSS", "FAILED"),
    ],
)
def test_the_state_in_words(fake: Fake, mvpctl: Mvpctl, state: str, reason: str, words: str) -> None:
    fake.answers["GetJob"] = always(job(state, state_reason=reason))
    assert mvpctl("get", "j1").out.splitlines()[1].split(maxsplit=1) == ["state", words]


def test_whose_a_job_is_how_urgent_and_until_when(fake: Fake, mvpctl: Mvpctl) -> None:
    ended = job("CANCELLED", creator="token-k3h9", policy=job_pb2.ExecutionPolicy(priority=-7))
    ended.expire_time.FromJsonString("2026-02-07T12:00:00Z")
    fake.answers["GetJob"] = always(ended)
    text = mvpctl("get", "j1").out
    assert "creator   token-k3h9\n" in text
    assert "priority  -7\n" in text
    assert "expires   2026-02-07 12:00:00 UTC, with its artifact\n" in text


@pytest.mark.parametrize("reason", ["MAX_RUNTIME", "MAX_QUEUE_TIME"])
def test_what_to_do_about_a_limit_is_said(fake: Fake, mvpctl: Mvpctl, reason: str) -> None:
    fake.answers["GetJob"] = always(job("FAILED", failure=job_pb2.Failure(reason=reason, message="too long")))
    assert "hint     mvpctl retry j1 " in mvpctl("get", "j1").out
    assert mvpctl("wait", "j1").err.splitlines()[-1].startswith("hint: mvpctl retry j1 ")


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (("wait", "j1", "--timeout", "nan"), "--timeout must be a number, got 'nan'"),
        (("wait", "j1", "--timeout", "-1"), "--timeout must be from 0 to 31,536,000, got '-1'"),
        (("wait", "j1", "--timeout", "1e10"), "--timeout must be from 0 to 31,536,000, got '1e10'"),
        (("benchmark", "out", "--seconds", "-1"), "--seconds must be from 0 to 31,536,000, got '-1'"),
        ((*SUBMIT, "--density", "0.1", "--set", "alpha=inf"), "--set must be a number for alpha, got 'inf'"),
    ],
)
def test_numbers_that_nothing_can_be_done_with(mvpctl: Mvpctl, argv: tuple[str, ...], error: str) -> None:
    outcome = mvpctl(*argv)
    assert outcome.code == 2
    assert outcome.err.startswith(f"error: {error}\n")


def test_json_has_no_nan(fake: Fake, mvpctl: Mvpctl) -> None:
    progress = job_pb2.Progress(phase="pruning", loss=float("nan"), density=float("inf"))
    fake.answers["GetJob"] = always(job(progress=progress))
    assert mvpctl("get", "j1", "-o", "json").json["progress"]["loss"] is None


def test_a_server_cannot_steer_the_terminal(fake: Fake, mvpctl: Mvpctl) -> None:
    fake.answers["GetJob"] = always(job(display_name="\x1b[31mred\x1b[0m\r\x9b2J"))
    text = mvpctl("get", "j1").out
    assert "red" in text
    assert not set(text) & {"\x1b", "\r", "\x9b"}


def test_events(fake: Fake, mvpctl: Mvpctl) -> None:
    event = job_pb2.JobEvent(
        sequence=2,
        type="STATE_CHANGED",
        actor="worker",
        from_state="STARTING",
        to_state="RUNNING",
        details={"node": "n1"},
    )
    event.time.FromJsonString("2026-01-31T12:00:00Z")
    fake.answers["ListJobEvents"] = always(job_pb2.ListJobEventsResponse(events=[event]))
    assert mvpctl("events", "j1").out == (
        "#  TIME (UTC)           TYPE           STATE                ACTOR   DETAILS\n"
        "2  2026-01-31 12:00:00  STATE_CHANGED  STARTING -> RUNNING  worker  node=n1\n"
    )
    assert mvpctl("events", "j1", "-o", "json").json[0]["to_state"] == "RUNNING"


def test_attempts(fake: Fake, mvpctl: Mvpctl) -> None:
    lost = job_pb2.Attempt(name=f"{NAME}/attempts/1", state="LOST", node="n1")
    lost.failure.CopyFrom(job_pb2.Failure(reason="WORKER_LOST", message="the worker disappeared"))
    lost.create_time.FromJsonString("2026-01-31T12:00:00Z")
    lost.end_time.FromJsonString("2026-01-31T12:05:00Z")
    second = job_pb2.Attempt(name=f"{NAME}/attempts/2", state="RUNNING")
    fake.answers["ListAttempts"] = always(job_pb2.ListAttemptsResponse(attempts=[lost, second]))
    assert mvpctl("attempts", "j1").out == (
        "#  STATE    NODE  CREATED (UTC)        STARTED  ENDED                FAILURE\n"
        "1  LOST     n1    2026-01-31 12:00:00           2026-01-31 12:05:00  WORKER_LOST: the worker disappeared\n"
        "2  RUNNING\n"
    )
    assert [each["state"] for each in mvpctl("attempts", "j1", "-o", "json").json] == ["LOST", "RUNNING"]


def test_cancel_retry_delete(fake: Fake, mvpctl: Mvpctl) -> None:
    fake.answers |= {
        "CancelJob": always(job("CANCELLING")),
        "RetryJob": always(job("QUEUED")),
        "DeleteJob": always(job_pb2.DeleteJobResponse()),
    }
    assert mvpctl("cancel", "j1", "--reason", "wrong data").out == "job j1 is CANCELLING\n"
    assert fake.asked("CancelJob").reason == "wrong data"
    assert mvpctl("retry", "j1").out == "job j1 is QUEUED\n"
    assert mvpctl("retry", "j1", "--from-scratch", "-o", "json").json["state"] == "QUEUED"
    assert [request.from_scratch for request in fake.requests["RetryJob"]] == [False, True]
    assert mvpctl("delete", "j1").out == "job j1 deleted\n"
    assert mvpctl("delete", "j1", "-o", "json").json == {"deleted": "j1"}


def test_logs_are_printed_as_they_are(fake: Fake, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    data = b"caf\xc3\xa9 \xff\n\x1b[0m"

    def answer(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        yield job_pb2.FollowLogsResponse(offset=0, data=data)
        yield job_pb2.FollowLogsResponse(offset=len(data), end=True)

    fake.answers |= {"GetJob": always(job()), "FollowLogs": answer, "WatchJob": watch(job("SUCCEEDED"))}
    for argv in (["logs", "j1"], ["logs", "-f", "j1"]):
        assert main([*argv, "--address", fake.address]) == 0
        assert capfdbinary.readouterr().out == data


def test_a_retry_says_what_has_to_change(fake: Fake, mvpctl: Mvpctl) -> None:
    answer = job("QUEUED")
    answer.notes.append("mend the model")
    fake.answers["RetryJob"] = always(answer)
    outcome = mvpctl("retry", "j1")
    assert (outcome.code, outcome.err) == (0, "note: j1: mend the model\n")
    assert mvpctl("retry", "j1", "--quiet").err == ""


def test_lines_of_a_log_are_documents(fake: Fake, mvpctl: Mvpctl) -> None:
    def answer(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        for offset, data in ((0, b"caf\xc3"), (4, b"\xa9 \xff\n\nlast")):
            yield job_pb2.FollowLogsResponse(offset=offset, data=data)
        yield job_pb2.FollowLogsResponse(offset=14, end=True)

    fake.answers |= {"GetJob": always(job()), "FollowLogs": answer}
    lines = [json.loads(line) for line in mvpctl("logs", "j1", "-o", "json").out.splitlines()]
    assert lines == [{"offset": None, "text": text, "time": None} for text in ("café \ufffd", "", "last")]


def test_download(fake: Fake, mvpctl: Mvpctl, succeeds: str, tmp_path: Path) -> None:
    fake.answers["GetJob"] = always(job("SUCCEEDED", artifact=succeeds))
    outcome = mvpctl("download", "j1", str(tmp_path / "out"), "-o", "json")
    assert outcome.json["directory"] == str(tmp_path / "out")
    assert outcome.json["artifact"]["name"] == succeeds
    (tmp_path / "out" / "more").write_text("x")
    again = mvpctl("download", "j1", str(tmp_path / "out"))
    assert again.code == 2
    assert again.err.startswith(f"error: {tmp_path / 'out'} exists and is not the artifact")


@pytest.mark.slow
def test_a_reader_that_leaves_is_no_error(fake: Fake) -> None:
    fake.answers["ListJobs"] = always(job_pb2.ListJobsResponse(jobs=[job()] * 5000))
    code = "import sys; from mvprune.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "list", "--limit", "5000", "--address", fake.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal(fake: Fake, succeeds: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "160")
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    assert main([*SUBMIT, "--density", "0.03", "--wait", "--address", fake.address]) == 0
    text = terminal.getvalue()
    for part in ("\x1b[", "SUCCEEDED", "2,556,533", "8.0x smaller", "─"):
        assert part in text
    fake.answers["GetJob"] = always(job(display_name="[bold]not markup[/bold]"))
    assert main(["get", "j1", "--address", fake.address]) == 0
    assert "[bold]not markup[/bold]" in terminal.getvalue()
