"""mvpctl submit that waits: progress, the result, how the job ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.client.scripted_server import (
    NAME,
    SUBMIT,
    Fake,
    Mvpctl,
    always,
    job,
    watch,
)

from mvprune.v1 import job_pb2


def test_submit_wait_shows_progress_and_the_result(fake: Fake, mvpctl: Mvpctl, succeeds: str) -> None:
    outcome = mvpctl(*SUBMIT, "--density", "0.03", "--wait")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == (
        "job j1 submitted: keeps 3.0 % of 84.9 M prunable weights (2.5 M)\n"
        "QUEUED\n"
        "RUNNING  pruning 120/400  loss 0.4313  density 41.2 %  eta 1m20s\n"
        "SUCCEEDED\n"
        "                        dense     pruned     difference\n"
        "f1                     0.8000     0.7000        -0.1000\n"
        "accuracy               0.9000     0.8750        -0.0250\n"
        "density asked                      3.0 %\n"
        "density reached                    3.0 %\n"
        "non-zero weights   84,934,656  2,556,533\n"
        "bytes                438.0 MB    55.0 MB   8.0x smaller\n"
        "of the encoder       340.2 MB     7.0 MB  48.6x smaller\n"
        "of the embeddings                47.1 MB\n"
    )


def test_submit_download_waits_and_downloads(fake: Fake, mvpctl: Mvpctl, succeeds: str, tmp_path: Path) -> None:
    outcome = mvpctl(*SUBMIT, "--density", "0.03", "--download", str(tmp_path / "out"))
    assert outcome.code == 0
    assert f"downloaded and verified: {tmp_path / 'out'}\n" in outcome.out
    assert (tmp_path / "out" / "weights.safetensors").read_bytes() == b"w" * 3000


def test_json_is_one_document_with_the_result(fake: Fake, mvpctl: Mvpctl, succeeds: str, tmp_path: Path) -> None:
    alone = mvpctl(*SUBMIT, "--density", "0.03", "-o", "json")
    assert alone.json["name"] == NAME
    assert alone.json["result"] is None
    waited = mvpctl(*SUBMIT, "--density", "0.03", "--download", str(tmp_path / "out"), "-o", "json")
    assert waited.json.keys() == alone.json.keys()
    assert waited.json["state"] == "SUCCEEDED"
    assert waited.json["create_time"] == "2026-01-31T12:00:00Z"
    assert waited.json["spec"]["target_density"] == 0.03
    assert waited.json["result"]["metrics"]["delta/accuracy"] == -0.025
    assert waited.json["result"]["accounting"]["kept_weights"] == 2_556_533
    assert "RUNNING  pruning 120/400" in waited.err


@pytest.mark.parametrize(
    ("state", "code", "line"),
    [
        ("FAILED", 3, "error: job j1 failed: NAN_LOSS: lower the learning rate"),
        ("CANCELLED", 4, "error: job j1 was cancelled"),
    ],
)
@pytest.mark.parametrize("command", ["wait", "watch", "submit"])
def test_how_the_job_ended(fake: Fake, mvpctl: Mvpctl, command: str, state: str, code: int, line: str) -> None:
    ended = job(state)
    if state == "FAILED":
        ended.failure.CopyFrom(job_pb2.Failure(reason="NAN_LOSS", message="lower the learning rate"))
    fake.answers |= {
        "CreateJob": always(job("QUEUED")),
        "GetJob": [always(job("QUEUED")), always(ended)] if command == "wait" else always(ended),
        "WatchJob": watch(job("QUEUED"), ended),
    }
    argv = (*SUBMIT, "--density", "0.03", "--wait") if command == "submit" else (command, "j1")
    outcome = mvpctl(*argv)
    assert (outcome.code, outcome.err.strip()) == (code, line)
    as_json = mvpctl(*argv, "-o", "json")
    assert as_json.code == code
    last = json.loads(as_json.out.splitlines()[-1])["job"] if command == "watch" else as_json.json
    assert last["state"] == state


def test_a_folder_that_no_artifact_can_go_to_is_refused_first(
    fake: Fake, mvpctl: Mvpctl, succeeds: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    for folder, code, error in (
        (tmp_path, 2, f"{tmp_path} exists and is not an artifact: remove it or choose another folder"),
        (tmp_path / "file", 2, f"{tmp_path / 'file'} exists and is not an artifact"),
        (tmp_path / "file" / "a" / "out", 1, f"{tmp_path / 'file'} is not a folder that can be written"),
    ):
        outcome = mvpctl(*SUBMIT, "--density", "0.1", "--download", str(folder))
        assert outcome.code == code
        assert error in outcome.err
    assert "CreateJob" not in fake.requests
    out = str(tmp_path / "a" / "out")
    assert mvpctl(*SUBMIT, "--density", "0.1", "--download", out).code == 0
    assert mvpctl(*SUBMIT, "--density", "0.1", "--download", out).code == 0, "the same artifact is there already"


def test_submit_that_waits_says_it_too(fake: Fake, mvpctl: Mvpctl) -> None:
    noted = job("QUEUED")
    noted.notes.append("columns: text 'a'")
    fake.answers["CreateJob"] = always(noted)
    fake.answers["WatchJob"] = watch(job("FAILED", failure=job_pb2.Failure(reason="NAN_LOSS", message="x")))
    fake.answers["GetJob"] = always(job("FAILED", failure=job_pb2.Failure(reason="NAN_LOSS", message="x")))
    assert "note: columns: text 'a'\n" in mvpctl(*SUBMIT, "--density", "0.03", "--wait", "-o", "json").err
    assert "note: columns: text 'a'\n" in mvpctl(*SUBMIT, "--density", "0.03", "--wait").out
