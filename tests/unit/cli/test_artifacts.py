"""mvpctl inspect, compare, export: folders on this machine, and artifacts of jobs that are not downloaded."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from tests.sparse_artifacts import OUTPUT, make_artifact
from tests.unit.client.scripted_server import SUBMIT, Fake, Mvpctl, always, job, refuse, serve_folder

from mvprune.artifact import MANIFEST_FILE, WEIGHTS_FILE, Manifest
from mvprune.artifact.inspection import inspect

Serve = Callable[[Path, Manifest], None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_artifact(tmp_path / "out")
    return tmp_path / "out"


@pytest.fixture
def serve(fake: Fake) -> Serve:
    """Makes a folder the artifact of every job."""

    return functools.partial(serve_folder, fake)


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_inspect_a_folder(mvpctl: Mvpctl, folder: Path) -> None:
    outcome = mvpctl("inspect", str(folder))
    assert (outcome.code, outcome.err) == (0, "")
    table = rows(outcome.out)
    assert [OUTPUT, "4", "x", "8", "2", "6.2", "%", "gap", "F16"] in [row[:9] for row in table]
    assert ["query", "1", "16", "4", "25.0", "%"] in [row[:6] for row in table]
    assert ["embeddings", "40", "0", "160", "B", "80", "2.0x", "smaller"] in table
    assert "verified    all 2 files\n" in outcome.out
    assert "data        sst2, 256 rows to train on, 64 to evaluate on\n" in outcome.out
    found = mvpctl("inspect", str(folder), "-o", "json").json
    assert found["digest"] == inspect(folder).digest
    assert found["manifest"]["seed"] == 7
    assert mvpctl("inspect", str(folder), "--quiet").out == f"{found['digest']}\n"


def test_inspect_shows_the_notes_of_the_run(mvpctl: Mvpctl, tmp_path: Path) -> None:
    make_artifact(tmp_path / "noted", notes=("the label column was guessed", "two"))
    shown = mvpctl("inspect", str(tmp_path / "noted")).out
    assert "note        the label column was guessed\nnote        two\n" in shown
    assert mvpctl("inspect", str(tmp_path / "noted"), "-o", "json").json["manifest"]["notes"][1] == "two"


def test_inspect_a_job(fake: Fake, mvpctl: Mvpctl, folder: Path, serve: Serve) -> None:
    """Its manifest and the header of its weights are read, the weights are not."""
    serve(folder, inspect(folder).manifest)
    found = mvpctl("inspect", "j1", "-o", "json").json
    expected = mvpctl("inspect", str(folder), "-o", "json").json
    assert found == expected | {"verified_files": None}
    assert {request.path for request in fake.requests["ReadFile"]} == {MANIFEST_FILE, WEIGHTS_FILE}
    assert "verified    the manifest; download it to verify its files\n" in mvpctl("inspect", "j1").out


def test_a_server_that_gives_another_manifest(mvpctl: Mvpctl, folder: Path, serve: Serve) -> None:
    serve(folder, inspect(folder).manifest)
    path = folder / MANIFEST_FILE
    path.write_bytes(path.read_bytes().replace(b'"seed": 7', b'"seed": 8'))
    for command in (["inspect", "j1"], ["compare", "j1", "j2"]):
        outcome = mvpctl(*command)
        assert outcome.code == 1
        assert "manifest.json is not the one that projects/default/artifacts/" in outcome.err


def test_a_changed_folder(mvpctl: Mvpctl, folder: Path) -> None:
    (folder / "vocab.txt").write_text("other\n")
    outcome = mvpctl("inspect", str(folder))
    assert outcome.code == 2
    assert outcome.err.startswith("error: vocab.txt: must have the SHA-256")


@pytest.mark.parametrize(
    "command", [["inspect", "./no"], ["compare", "./no", "./no"], ["export", "./no", "x", "--to=csr"]]
)
def test_no_such_folder(mvpctl: Mvpctl, command: list[str]) -> None:
    outcome = mvpctl(*command)
    assert outcome.code == 2
    assert (
        outcome.err.splitlines()[-1]
        == "error: no: must be an artifact's folder, got none: manifest.json: No such file or directory"
    )


def test_inspect_names_the_structures(mvpctl: Mvpctl, tmp_path: Path) -> None:
    make_artifact(tmp_path / "out", spec={"task": "sst2", "magnitude": {}, "structure": "HEADS_AND_UNITS"})
    assert ["structures", "whole", "heads", "and", "units"] in rows(mvpctl("inspect", str(tmp_path / "out")).out)


def test_inspect_names_the_pattern(mvpctl: Mvpctl, tmp_path: Path) -> None:
    make_artifact(tmp_path / "out", spec={"task": "sst2", "magnitude": {}, "pattern": "2:4"})
    assert ["pattern", "2:4"] in rows(mvpctl("inspect", str(tmp_path / "out")).out)


def test_a_job_without_an_artifact(fake: Fake, mvpctl: Mvpctl) -> None:
    fake.answers["GetJob"] = always(job("RUNNING"))
    assert mvpctl("inspect", "j1").code == 2
    fake.answers["GetJob"] = always(job("FAILED"))
    assert mvpctl("compare", "j1", "j2").code == 3


def test_compare_a_folder_and_a_job(mvpctl: Mvpctl, folder: Path, tmp_path: Path, serve: Serve) -> None:
    older = inspect(folder).manifest  # without FLOPs
    counted = dataclasses.replace(older.accounting, dense_flops=9_000_000, sparse_flops=3_000_000)
    spec = {"task": "sst2", "magnitude": {}}
    other = make_artifact(tmp_path / "other", spec=spec, metrics={"eval/accuracy": 0.5}, accounting=counted)
    serve(tmp_path / "other", other)
    outcome = mvpctl("compare", str(folder), "j1")
    assert (outcome.code, outcome.err) == (0, "")
    table = rows(outcome.out)
    assert ["eval/accuracy", "0.7500", "0.5000", "(-0.2500)"] in table
    assert ["dense/accuracy", "0.8750", "-"] in table
    assert ["method", "movement", "magnitude"] in table
    assert ["density", "of", "query", "25.0", "%", "25.0", "%"] in table
    assert ["FLOPs", "-", "3,000,000"] in table
    assert ["FLOPs,", "dense", "-", "9,000,000"] in table
    assert ["OPTION", str(folder), "j1"] in table
    assert ["movement.schedule.pruning_start", "0.1", "-"] in table
    found = mvpctl("compare", str(folder), "j1", "-o", "json").json
    assert [one["name"] for one in found["artifacts"]] == [str(folder), "j1"]
    assert found["artifacts"][1]["differences"] == {"eval/accuracy": -0.25}
    assert found["options"]["model"] == ["tiny", None]


def test_a_coding_that_there_is_not(mvpctl: Mvpctl) -> None:
    outcome = mvpctl("submit", "--model", "m", "--task", "sst2", "--density", "0.1", "--weight-dtype", "int9")
    assert outcome.code == 2
    assert (
        outcome.err
        == "error: job.spec.weight_dtype (--weight-dtype): must be one of fp32, fp16, bf16, int8, int4, got 'int9'; "
        "did you mean int8?\n"
    )


def test_compare_needs_two(mvpctl: Mvpctl, folder: Path) -> None:
    outcome = mvpctl("compare", str(folder))
    assert outcome.code == 2
    assert "error: ARTIFACT|JOB must be given at least twice, got 1" in outcome.err


def test_compare_says_which_manifest_is_wrong(mvpctl: Mvpctl, folder: Path, tmp_path: Path) -> None:
    make_artifact(tmp_path / "other")
    (tmp_path / "other" / MANIFEST_FILE).write_text("{")
    outcome = mvpctl("compare", str(folder), str(tmp_path / "other"))
    assert outcome.code == 2
    assert outcome.err.startswith(f"error: {tmp_path / 'other'}: manifest.json: invalid JSON: ")


def test_export(mvpctl: Mvpctl, folder: Path, tmp_path: Path) -> None:
    outcome = mvpctl("export", str(folder), str(tmp_path / "csr"), "--to", "csr")
    assert outcome.code == 0
    assert outcome.out.splitlines()[:2] == ["verifying the artifact", "writing 2 matrices"]
    assert outcome.out.splitlines()[-1].startswith(f"exported to {tmp_path / 'csr'}: 2 files, ")
    again = mvpctl("export", str(folder), str(tmp_path / "csr"), "--to", "csr")
    assert again.code == 2
    assert again.err == f"error: {tmp_path / 'csr'}: must be a new or empty folder, got one with files\n"
    answer = mvpctl("export", str(folder), str(tmp_path / "more"), "--to", "csr", "-o", "json")
    assert answer.json["folder"] == str(tmp_path / "more")
    assert answer.json["files"].keys() == {path.name for path in (tmp_path / "more").iterdir()}
    quiet = mvpctl("export", str(folder), str(tmp_path / "third"), "--to", "csr", "--quiet")
    assert (quiet.out, quiet.err) == (f"{tmp_path / 'third'}\n", "")


def test_only_onnx_is_exported_in_int8(mvpctl: Mvpctl, folder: Path, tmp_path: Path) -> None:
    outcome = mvpctl("export", str(folder), str(tmp_path / "csr"), "--to", "csr", "--quantize", "int8")
    assert outcome.code == 2
    assert "--quantize: is for --to onnx, got --to csr" in outcome.err


def test_export_of_a_jobs_artifact(
    mvpctl: Mvpctl, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    serve(tmp_path / "served", make_artifact(tmp_path / "served"))
    outcome = mvpctl("export", "j1", str(tmp_path / "csr"), "--to", "csr")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines()[0].startswith("fetching and verifying ")
    assert outcome.out.splitlines()[-1].startswith(f"exported to {tmp_path / 'csr'}: 2 files, ")
    assert list(scratch.iterdir()) == []
    assert mvpctl("export", str(tmp_path / "served"), str(tmp_path / "same"), "--to", "csr").code == 0
    files = sorted(path.name for path in (tmp_path / "same").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "csr").iterdir())
    assert [(tmp_path / "same" / name).read_bytes() for name in files] == [
        (tmp_path / "csr" / name).read_bytes() for name in files
    ]


def test_what_cannot_be_written_is_refused_before_anything_is_fetched(
    fake: Fake, mvpctl: Mvpctl, serve: Serve, folder: Path, tmp_path: Path
) -> None:
    serve(folder, make_artifact(tmp_path / "served"))
    outcome = mvpctl("export", "j1", str(folder), "--to", "csr")
    assert (outcome.code, outcome.err) == (2, f"error: {folder}: must be a new or empty folder, got one with files\n")
    assert fake.requests == {}


@pytest.mark.parametrize("given", ["nowhere/", "./nowhere", "no.where", "a/b", "train.jsonl", "~nobody.here/out"])
@pytest.mark.parametrize(
    "command",
    [
        ("inspect",),
        ("compare", "j1"),
        ("push", "--to", "hub-folder", "OUT"),
        ("export", "OUT", "--to", "csr"),
        ("evaluate",),
        ("benchmark",),
        ("serve", "--address", "127.0.0.1:0"),
    ],
)
def test_what_is_neither_a_folder_nor_a_job(
    mvpctl: Mvpctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], given: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.jsonl").touch()
    outcome = mvpctl(command[0], given, *command[1:])
    assert outcome.code == 2
    assert outcome.err.startswith(f"error: {Path(given)}: must be an artifact's folder, got none: manifest.json: ")


@pytest.mark.parametrize(
    "command",
    [
        ("inspect", "typo"),
        ("compare", "typo", "typo"),
        ("push", "typo", "--to", "hub-folder", "OUT"),
        ("export", "typo", "OUT", "--to", "csr"),
        ("evaluate", "typo"),
        ("benchmark", "typo"),
        ("serve", "typo"),
    ],
)
def test_a_name_that_is_neither_tells_what_it_was_taken_for(
    fake: Fake, mvpctl: Mvpctl, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    hint = "hint: typo is not a folder on this machine, so a job was requested from the server\n"
    fake.answers["GetJob"] = lambda request, context: refuse(context, grpc.StatusCode.NOT_FOUND, "there is no such job")
    outcome = mvpctl(*command)
    assert (outcome.code, outcome.err) == (8, f"error: there is no such job\n{hint}")
    monkeypatch.setenv("MVPRUNE_ADDRESS", "127.0.0.1:1")
    outcome = mvpctl(*command)
    assert outcome.code == 7
    assert hint in outcome.err


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("inspect", ""), "ARTIFACT|JOB"),
        (("compare", "j1", ""), "ARTIFACT|JOB"),
        (("push", "", "--to", "hub-folder", "OUT"), "ARTIFACT|JOB"),
        (("export", "", "OUT", "--to", "csr"), "ARTIFACT|JOB"),
        (("export", "out", "", "--to", "csr"), "OUT"),
        (("evaluate", "out", "--data", ""), "--data"),
        (("serve", "out", "--base", ""), "--base"),
        (("download", "j1", ""), "DIR"),
        ((*SUBMIT, "--density", "0.1", "--download", ""), "--download"),
    ],
)
def test_a_variable_that_is_not_set_is_not_the_working_folder(
    mvpctl: Mvpctl, command: tuple[str, ...], name: str
) -> None:
    outcome = mvpctl(*command)
    assert outcome.code == 2
    assert re.match(rf"error: {re.escape(name)} must be (a|an) .*, got ''\n", outcome.err)


def test_a_format_that_there_is_not(mvpctl: Mvpctl, folder: Path, tmp_path: Path) -> None:
    outcome = mvpctl("export", str(folder), str(tmp_path / "x"), "--to", "gguf")
    assert outcome.code == 2
    assert outcome.err == "error: --to must be one of dense, onnx, csr, got 'gguf'\nsee: mvpctl export --help\n"
    assert not (tmp_path / "x").exists()


def test_what_export_lacks(mvpctl: Mvpctl, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.delitem(sys.modules, "mvprune.export.csr", raising=False)
    outcome = mvpctl("export", str(folder), str(tmp_path / "x"), "--to", "csr")
    assert outcome.code == 2
    assert outcome.err == "error: this needs the package scipy: pip install 'mvprune[export]'\n"


def test_names_in_an_artifact_do_not_steer_the_terminal(mvpctl: Mvpctl, tmp_path: Path) -> None:
    manifest = make_artifact(tmp_path / "out", versions={"\x1b[31m": "\r\ud800"})
    assert "\ud800" in next(iter(manifest.versions.values()))
    text = mvpctl("inspect", str(tmp_path / "out")).out
    assert not set(text) & {"\x1b", "\r", "\ud800"}
    assert json.loads(mvpctl("inspect", str(tmp_path / "out"), "-o", "json").out)
