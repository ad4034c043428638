"""Job files: what is read, what is refused and where, what options change of it."""

from __future__ import annotations

import io
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.bert_folder import write_bert
from tests.unit.client.scripted_server import Fake, Mvpctl, echo, refuse
from tests.unit.client.scripted_uploads import Uploads

from mvprune.cli.shared.jobfile import read
from mvprune.cli.shared.yaml import MAX_BYTES
from mvprune.v1 import job_pb2

JOB = """\
# three per cent
model: bert-base-uncased
task: sst2
density: 0.03
method: soft_movement
penalty: 1e2
learning_rate: 3e-5
labels: {team: search, version: "1.10"}
include:
  - "*.attention.*"
max_runtime: 2h
memory_bytes: 8GiB
compile: true
seed: 7
"""


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    return file


def sent(fake: Fake, mvpctl: Mvpctl, *argv: str) -> Any:
    """The job that a submit sends."""
    fake.answers["CreateJob"] = echo
    outcome = mvpctl("submit", *argv)
    assert outcome.code == 0, outcome.err
    return fake.requests["CreateJob"][-1].job


def test_a_file_is_a_submit_with_these_options(fake: Fake, mvpctl: Mvpctl, job_file: Path) -> None:
    by_file = sent(fake, mvpctl, "-f", str(job_file))
    options = "--model bert-base-uncased --task sst2 --density 0.03 --method soft_movement --set penalty=1e2 --seed 7 "
    options += "--learning-rate 3e-5 --label team=search --label version=1.10 --include *.attention.* "
    options += "--set compile=true --max-runtime 2h --memory 8GiB"
    assert by_file == sent(fake, mvpctl, *options.split())


def test_options_outweigh_the_file(fake: Fake, mvpctl: Mvpctl, job_file: Path) -> None:
    argv = ("-f", str(job_file), "--seed", "1", "--sparsity", "0.1", "--label", "team=ads", "--label", "x=y")
    job = sent(fake, mvpctl, *argv)
    assert (job.spec.seed, job.spec.target_density, job.spec.task) == (1, 0.1, "sst2")
    assert dict(job.labels) == {"team": "ads", "version": "1.10", "x": "y"}
    job_file.write_text(JOB + "epochs: 3\n")
    training = sent(fake, mvpctl, "-f", str(job_file), "--max-steps", "5").spec.training
    assert (training.max_steps, training.HasField("epochs")) == (5, False)
    training = sent(fake, mvpctl, "-f", str(job_file), "--preset", "long").spec.training
    assert (training.preset, training.HasField("epochs")) == (job_pb2.Training.LONG, False)
    job_file.write_text("model: m\ntask: sst2\nmask_from: ./pruned\n" + "rewind: 0.1\n")
    write_bert(job_file.with_name("pruned"))
    Uploads(fake)
    locked = sent(fake, mvpctl, "-f", str(job_file)).spec.locked_mask
    assert (locked.mask_from.model.startswith("upload:"), locked.rewind) == (True, 0.1)


def test_json_is_read_too_with_tabs_and_escapes(fake: Fake, mvpctl: Mvpctl, tmp_path: Path) -> None:
    values = {"model": "m", "density": 0.1, "display_name": "café 😀", "max_steps": 5}
    file = tmp_path / "job.json"
    for indent, ascii in (("\t", True), (2, False), (None, True)):
        file.write_text(json.dumps(values, indent=indent, ensure_ascii=ascii))
        job = sent(fake, mvpctl, "-f", str(file))
        assert (job.display_name, job.spec.training.max_steps) == ("café 😀", 5)


def test_stdin(fake: Fake, mvpctl: Mvpctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(JOB.encode())))
    assert sent(fake, mvpctl, "-f", "-").spec.seed == 7
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"model: [\n")))
    outcome = mvpctl("submit", "-f", "-")
    assert outcome.code == 2
    assert outcome.err.startswith("error: stdin:2:1: while parsing a flow node: ")


@pytest.mark.parametrize("form", ["--quiet", "-ojson", "-otext"])
def test_what_was_submitted_before_the_queue_was_full_is_told(
    fake: Fake, mvpctl: Mvpctl, tmp_path: Path, form: str
) -> None:
    def answer(request: Any, context: grpc.ServicerContext) -> Any:
        if request.job.spec.target_density > 0.25 and not request.validate_only:
            refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "there is no room")
        return echo(request, context)

    fake.answers["CreateJob"] = answer
    file = tmp_path / "jobs.yaml"
    file.write_text("---\n".join(f"model: m\ndensity: 0.{n}\n" for n in (1, 2, 3, 4)))
    outcome = mvpctl("submit", "-f", str(file), form)
    assert outcome.code == 2
    assert outcome.err.splitlines()[-2:] == [
        "error: there is no room",
        "hint: 2 of 4 jobs were submitted, the others were not",
    ]
    if form == "-ojson":
        assert [job["spec"]["target_density"] for job in outcome.json] == [0.1, 0.2]
    else:
        assert [re.sub("^job | submitted.*", "", line) for line in outcome.out.splitlines()] == ["j1", "j1"]


def test_relative_paths_begin_at_the_file(fake: Fake, mvpctl: Mvpctl, tmp_path: Path) -> None:
    Uploads(fake)
    write_bert(tmp_path / "folder" / "model")
    write_bert(tmp_path / "big")
    for train in (tmp_path / "folder" / "data" / "train.tsv", tmp_path / "other" / "dev.tsv"):
        train.parent.mkdir()
        train.write_text(f"text\tlabel\n{train}\t1\n{train}, too\t0\n")
    file = tmp_path / "folder" / "job.yaml"
    file.write_text(
        f"model: model\nteacher: ../big\ntrain: data/train.tsv\nvalidation: {tmp_path}/other/dev.tsv\ndensity: 0.1\n"
    )
    spec = sent(fake, mvpctl, "-f", str(file)).spec
    names = [spec.model, spec.teacher.model, spec.dataset.train, spec.dataset.validation]
    assert all(name.startswith("upload:") for name in names)
    assert [name.rpartition("/")[2] for name in names] == ["model", "big", "train.tsv", "dev.tsv"]
    file.write_text("model: server:/srv/m\ntrain: upload:x/t\nvalidation: server:/srv/dev.tsv\ndensity: 0.1\n")
    spec = sent(fake, mvpctl, "-f", str(file)).spec
    assert (spec.model, spec.dataset.train, spec.dataset.validation) == (
        "server:/srv/m",
        "upload:x/t",
        "server:/srv/dev.tsv",
    )
    file.write_text("model: bert-base-uncased\nteacher: job:abc\ntask: sst2\ndensity: 0.1\n")
    spec = sent(fake, mvpctl, "-f", str(file)).spec
    assert (spec.model, spec.teacher.job) == ("bert-base-uncased", "abc")


def test_several_documents_are_several_jobs(fake: Fake, mvpctl: Mvpctl, tmp_path: Path) -> None:
    fake.answers["CreateJob"] = echo
    file = tmp_path / "jobs.yaml"
    file.write_text("---\n" + "---\n".join(f"model: m\ndensity: 0.{n}\n" for n in (1, 2, 3)))
    outcome = mvpctl("submit", "-f", str(file), "-o", "json")
    assert [job["spec"]["target_density"] for job in outcome.json] == [0.1, 0.2, 0.3]
    requests = fake.requests["CreateJob"]
    assert [request.validate_only for request in requests] == [True] * 3 + [False] * 3
    assert len({request.request_id for request in requests}) == 6
    assert mvpctl("submit", "-f", str(file), "--quiet").out == "j1\nj1\nj1\n"
    for option in (["--wait"], ["--download", "out"], ["--request-id", "x"]):
        outcome = mvpctl("submit", "-f", str(file), *option)
        assert outcome.code == 2
        assert "must be used with one job, got a file of 3 jobs" in outcome.err


def test_nothing_is_submitted_if_one_document_is_refused(fake: Fake, mvpctl: Mvpctl, tmp_path: Path) -> None:
    def answer(request: Any, context: grpc.ServicerContext) -> Any:
        if request.job.spec.target_density > 1:
            violations = {"job.spec.target_density": "got 2; allowed: up to 1"}
            refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "bad", violations=violations)
        return echo(request, context)

    fake.answers["CreateJob"] = answer
    file = tmp_path / "jobs.yaml"
    file.write_text("model: m\ndensity: 0.1\n---\nmodel: m\ndensity: 2\n---\nmodel: m\ndensity: 3\n")
    outcome = mvpctl("submit", "-f", str(file))
    assert outcome.code == 2
    assert outcome.err.splitlines() == [
        f"error: {file}:5:10: density: got 2; allowed: up to 1",
        f"error: {file}:8:10: density: got 2; allowed: up to 1",
    ]
    assert all(request.validate_only for request in fake.requests["CreateJob"])


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("densty: 0.03", ":1:1: must be a key of job files, got 'densty'; did you mean density?"),
        ("xyzzy: 1", ":1:1: must be a key of job files, got 'xyzzy'; `mvpctl submit --print-schema` lists the keys"),
        ("model: m\ntask: [sst2]", ":2:7: task: must be text, got a list"),
        ("model: 3", ':1:8: model: must be text, got the number 3; write it in quotes: "3"'),
        ("model:", ":1:7: model: must be text, got nothing"),
        ("density: lots", ":1:10: density: must be a number, got 'lots'"),
        ("density: .nan", ":1:10: density: must be a number, got '.nan'"),
        ("max_steps: 1.5", ":1:12: max_steps: must be a whole number, got the number 1.5"),
        ("compile: on", ":1:10: compile: must be true or false, got 'on'"),
        ("compile: 1", ":1:10: compile: must be true or false, got the number 1"),
        ("seed: true", ":1:7: seed: must be a whole number, got the bool true"),
        ("method: movment", ":1:9: method: must be one of movement, soft_movement, l0, "),
        ("labels: {a: {b: c}}", ":1:13: labels.a: must be text, got a table"),
        ("include: [a, 1]", ':1:14: include[1]: must be text, got the number 1; write it in quotes: "1"'),
        ("max_runtime: 2 hours", ":1:14: max_runtime: must be seconds, or a number with s, m, h or d"),
        ("memory_bytes: 8XB", ":1:15: memory_bytes: must be bytes, or a number with a unit"),
        (f"memory_bytes: {'9' * 400}B", ":1:15: memory_bytes: must be bytes, "),
        ("model: m\nmodel: n", ":2:1: model: is there twice, first in line 1"),
        ("- model: m", ":1:1: must be keys with their values"),
        ("model", ":1:1: must be keys with their values"),
        ("1: m", ":1:1: must be text, as every key"),
        ("model: [m", ":1:10: while parsing a flow sequence: expected ',' or ']'"),
        ("model: m\n\ttask: x", ":2:1: while scanning for the next token: found character '\\t'"),
        ("a: &a [x]\nb: *a", ":1:4: must be written out, got an anchor or an alias"),
        (
            "model: !!python/name:os.system x",
            ":1:8: must have no tag, got tag:yaml.org,2002:python/name:os.system",
        ),
        ("model: " + "[" * 50_000, ":1:23: is nested more than 16 deep"),
        ('model: "\x07"', ":1:9: holds U+0007, which YAML does not allow"),
        ('{"model": "\\ud83d"}', ":1:11: holds half of a character"),
        ("", ": holds no job"),
        ("# nothing", ": holds no job"),
        ("---\n---\n", ": holds no job"),
    ],
    ids=lambda text: text[:30],
)
def test_mistakes_are_told_with_their_place(mvpctl: Mvpctl, tmp_path: Path, text: str, error: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    outcome = mvpctl("submit", "-f", str(file))
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"error: {file}{error}")
    assert "Traceback" not in outcome.err


def test_all_mistakes_are_told_at_once(mvpctl: Mvpctl, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("densty: 1\nseed: x\n---\nmodel: 1\n")
    assert [line.split(": ")[1] for line in mvpctl("submit", "-f", str(file)).err.splitlines()] == [
        f"{file}:1:1",
        f"{file}:2:7",
        f"{file}:4:8",
    ]


def test_files_that_cannot_be_read(mvpctl: Mvpctl, tmp_path: Path) -> None:
    assert (
        mvpctl("submit", "-f", "/nowhere.yaml").err
        == "error: /nowhere.yaml: cannot be read (No such file or directory)\n"
    )
    large, latin = tmp_path / "large.yaml", tmp_path / "latin.yaml"
    large.write_text("#" * (MAX_BYTES + 1))
    assert "is larger than 64 KiB" in mvpctl("submit", "-f", str(large)).err
    latin.write_bytes(b"model: m\ndisplay_name: caf\xe9\n")
    assert mvpctl("submit", "-f", str(latin)).err == f"error: {latin}:2:1: is not UTF-8\n"


def test_what_the_server_refuses_is_told_with_its_place(fake: Fake, mvpctl: Mvpctl, job_file: Path) -> None:
    violations = {
        "job.spec.target_density": "1",
        "job.spec.soft_movement.penalty": "2",
        "job.labels.team": "3",
        "job.spec.include[0]": "4",
        "job.policy.max_runtime": "5",
        "job.policy.resources.memory_bytes": "6",
        "job.spec.training.batch_size": "7",
        "job.spec.training": "8",
        "job.spec.soft_movement.schedule": "9",
    }
    fake.answers["CreateJob"] = lambda request, context: refuse(
        context, grpc.StatusCode.INVALID_ARGUMENT, "bad", violations=violations
    )
    outcome = mvpctl("submit", "-f", str(job_file), "--batch-size", "0")
    assert outcome.code == 2
    assert [line.removeprefix(f"error: {job_file}:") for line in outcome.err.splitlines()] == [
        "4:10: density: 1",
        "6:10: penalty: 2",
        "8:16: labels: 3",
        "10:5: include: 4",
        "11:14: max_runtime: 5",
        "12:15: memory_bytes: 6",
        "error: job.spec.training.batch_size (--batch-size): 7",
        "2:1: job.spec.training: 8",
        "5:9: method: 9",
    ]


def test_an_option_that_outweighs_the_file_is_not_told_with_the_file_s_place(
    fake: Fake, mvpctl: Mvpctl, job_file: Path
) -> None:
    violations = {"job.spec.target_density": "got 7", "job.spec.seed": "got -1", "job.spec.soft_movement.penalty": "x"}
    fake.answers["CreateJob"] = lambda request, context: refuse(
        context, grpc.StatusCode.INVALID_ARGUMENT, "bad", violations=violations
    )
    for density in (["--density", "7"], ["--sparsity", "7"]):
        told = mvpctl("submit", "-f", str(job_file), *density, "--seed", "-1").err.splitlines()
        assert [line for line in told if not line.startswith("note: --sparsity 7 keeps 700.0 %")] == [
            "error: job.spec.target_density (--density): got 7",
            "error: job.spec.seed (--seed): got -1",
            f"error: {job_file}:6:10: penalty: x",
        ]


def test_an_entry_that_an_option_adds_is_not_told_with_the_file_s_place(
    fake: Fake, mvpctl: Mvpctl, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("model: m\ndensity: 0.1\ntask: sst2\ngates: [bytes<=1MB]\nlabels: {team: search}\n")
    gates = mvpctl("submit", "-f", str(file), "--gate", "f1>80").err
    assert gates.startswith("error: job.policy.gates[1] (--gate): must be METRIC>=NUMBER or METRIC<=NUMBER")
    fake.answers["CreateJob"] = lambda request, context: refuse(
        context, grpc.StatusCode.INVALID_ARGUMENT, "bad", violations={"job.labels.more": "1", "job.labels.team": "2"}
    )
    assert mvpctl("submit", "-f", str(file), "--label", "more=x").err.splitlines() == [
        "error: job.labels.more (--label): 1",
        f"error: {file}:5:16: labels: 2",
    ]


def test_an_option_of_another_method_is_told_with_its_place(mvpctl: Mvpctl, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("model: m\ndensity: 0.1\nmethod: magnitude\npenalty: 1\n")
    outcome = mvpctl("submit", "-f", str(file))
    assert outcome.code == 2
    assert outcome.err.startswith(
        f"error: {file}:4:10: penalty: must be unset for magnitude, which has pruning_start, "
    )


def test_a_full_file_is_read_in_time(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    lines = ["model: m", "density: 0.1", "include:"]
    file.write_text("\n".join([*lines, *("  - x" for _ in range(MAX_BYTES // 6 - 10))]))
    started = time.monotonic()
    (document,) = read(str(file))
    assert len(document.values["include"]) > 10_000
    assert time.monotonic() - started < 120
