"""mvpctl and gates: the table, the exit code, the files for CI systems."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import grpc
import pytest
from tests.unit.client.scripted_server import SUBMIT, Fake, Mvpctl, always, job, watch

from mvprune.v1 import job_pb2

F1 = {"metric": "eval/f1", "min": 0.8}
BYTES = {"metric": "bytes", "max": 10_000_000}
LATENCY = {"metric": "latency_ratio", "min": 2}
MISSED = [{"gate": F1, "observed": 0.7}, {"gate": BYTES, "observed": 3100, "passed": True}, {"gate": LATENCY}]
TABLE = """GATE              OBSERVED
f1>=80            70        missed
bytes<=10MB       3,100 B   passed
latency_ratio>=2  -         missed
"""


def gated(state: str, results: list[dict[str, Any]], gates: Any = (F1, BYTES, LATENCY), **fields: Any) -> job_pb2.Job:
    """A job with gates."""
    message = job(state, policy=job_pb2.ExecutionPolicy(gates=[job_pb2.Gate(**gate) for gate in gates]), **fields)
    message.gate_results.extend(job_pb2.GateResult(**result) for result in results)
    return message


@pytest.fixture
def misses(fake: Fake) -> str:
    """A job that SUCCEEDED and missed two of three gates; the name of its artifact."""
    name = fake.serve({"weights.safetensors": b"w" * 3000})
    done = gated("SUCCEEDED", MISSED, artifact=name)
    fake.answers |= {"CreateJob": always(job("QUEUED")), "GetJob": always(done), "WatchJob": watch(done)}
    return name


@pytest.fixture
def fails(fake: Fake) -> None:
    """A job that FAILED at its gates."""
    failure = job_pb2.Failure(reason="GATE_FAILED", message="the result misses a gate")
    done = gated("FAILED", MISSED, failure=failure)
    fake.answers |= {"CreateJob": always(job("QUEUED")), "GetJob": always(done), "WatchJob": watch(done)}


@pytest.mark.parametrize("argv", [("wait", "j1"), ("watch", "j1"), (*SUBMIT, "--density", "0.03", "--wait")])
def test_a_missed_gate_is_exit_code_5(mvpctl: Mvpctl, misses: str, argv: tuple[str, ...]) -> None:
    outcome = mvpctl(*argv)
    assert outcome.code == 5
    assert outcome.err == "error: job j1 missed 2 of 3 gates: f1>=80, latency_ratio>=2\n"
    assert outcome.out.endswith(TABLE)
    assert "density reached" in outcome.out


def test_an_artifact_that_misses_a_gate_is_downloaded_all_the_same(mvpctl: Mvpctl, misses: str, tmp_path: Path) -> None:
    assert mvpctl(*SUBMIT, "--density", "0.03", "--download", str(tmp_path / "out")).code == 5
    assert (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.parametrize("argv", [("wait", "j1"), ("watch", "j1"), (*SUBMIT, "--density", "0.03", "--wait")])
def test_a_job_that_failed_at_a_gate_is_exit_code_5(mvpctl: Mvpctl, fails: None, argv: tuple[str, ...]) -> None:
    outcome = mvpctl(*argv)
    assert outcome.code == 5
    assert outcome.err == "error: job j1 failed: GATE_FAILED: the result misses a gate\n"
    assert outcome.out.endswith(TABLE)


def test_gates_in_json(mvpctl: Mvpctl, misses: str) -> None:
    answer = mvpctl("wait", "j1", "-o", "json")
    assert answer.code == 5
    assert answer.json["policy"]["gates"][0] == {"metric": "eval/f1", "min": 0.8, "max": None, "fail_job": False}
    assert answer.json["gate_results"][0]["observed"] == 0.7
    assert [result["passed"] for result in answer.json["gate_results"]] == [False, True, False]


def test_gates_that_pass(fake: Fake, mvpctl: Mvpctl) -> None:
    name = fake.serve({"weights.safetensors": b"w"})
    results = [{"gate": F1, "observed": 0.81, "passed": True}]
    fake.answers["GetJob"] = always(gated("SUCCEEDED", results, [F1], artifact=name))
    outcome = mvpctl("wait", "j1")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.endswith("GATE    OBSERVED\nf1>=80  81        passed\n")


def test_get_shows_gates_and_is_no_gate_itself(fake: Fake, mvpctl: Mvpctl, misses: str) -> None:
    outcome = mvpctl("get", "j1")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.endswith(TABLE)
    fake.answers["GetJob"] = always(gated("RUNNING", []))
    assert "bytes<=10MB       -         not evaluated\n" in mvpctl("get", "j1").out


def test_a_job_without_gates_shows_none(fake: Fake, mvpctl: Mvpctl) -> None:
    fake.answers["GetJob"] = always(job("FAILED", failure=job_pb2.Failure(reason="NAN_LOSS")))
    assert "GATE" not in mvpctl("get", "j1").out
    assert mvpctl("wait", "j1").code == 3


@pytest.mark.parametrize("gate", ["f1>80", "accuracy>=0.9"])
def test_what_is_no_gate(mvpctl: Mvpctl, gate: str) -> None:
    outcome = mvpctl(*SUBMIT, "--density", "0.1", "--gate", "bytes<=1MB", "--gate", gate)
    assert outcome.code == 2
    assert outcome.err.startswith("error: job.policy.gates[1] (--gate): must be ")
    assert f"got '{gate}'" in outcome.err


@pytest.mark.parametrize("option", ["--timeout", "--summary", "--junit"])
def test_options_of_waiting_need_it(mvpctl: Mvpctl, option: str) -> None:
    outcome = mvpctl(*SUBMIT, "--density", "0.1", option, "1")
    assert outcome.code == 2
    assert outcome.err.startswith(f"error: {option}: is for waiting; it needs --wait or --download\n")
    if option != "--timeout":
        assert "--junit must be a file or a folder, got ''" in mvpctl("wait", "j1", "--junit", "").err


def test_the_summary_is_appended(mvpctl: Mvpctl, misses: str, tmp_path: Path) -> None:
    summary = tmp_path / "steps" / "summary.md"
    assert mvpctl("wait", "j1", "--summary", str(summary)).code == 5
    once = summary.read_text()
    heading, facts, result, gates = once.rstrip("\n").split("\n\n")
    assert heading == "### ✗ j1: SUCCEEDED, 1 of 3 gates passed"
    assert facts.splitlines()[2:] == [
        "| job | j1 |",
        "| model | bert-base-uncased |",
        "| task | sst2 |",
        "| method | movement |",
        "| density | 3.0 % asked, 3.0 % reached |",
        f"| artifact | {misses.rpartition('/')[2]} |",
    ]
    assert result.splitlines()[:3] == [
        "|  | dense | pruned | difference |",
        "| --- | ---: | ---: | ---: |",
        "| f1 | 0.8000 | 0.7000 | -0.1000 |",
    ]
    assert gates.splitlines() == [
        "| gate | observed |  |",
        "| --- | --- | --- |",
        "| f1\\>=80 | 70 | ✗ |",
        "| bytes\\<=10MB | 3,100 B | ✓ |",
        "| latency\\_ratio\\>=2 |  | ✗ |",
    ]
    mvpctl("wait", "j1", "--summary", str(summary))
    assert summary.read_text() == 2 * once, "a blank line parts them"


def test_the_files_are_there_though_the_download_fails(fake: Fake, mvpctl: Mvpctl, misses: str, tmp_path: Path) -> None:
    fake.answers["ReadFile"] = lambda request, context: context.abort(grpc.StatusCode.INTERNAL, "no")
    files = ("--summary", str(tmp_path / "s.md"), "--junit", str(tmp_path / "j.xml"))
    assert mvpctl(*SUBMIT, "--density", "0.03", "--download", str(tmp_path / "out"), *files).code == 1
    assert "1 of 3 gates passed" in (tmp_path / "s.md").read_text()
    assert junit(tmp_path / "j.xml").attrib["failures"] == "2"


@pytest.mark.parametrize("option", ["--summary", "--junit"])
def test_a_report_that_cannot_be_written_is_refused_before_the_job(
    fake: Fake, mvpctl: Mvpctl, option: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "report"):
        for command in ((*SUBMIT, "--density", "0.1", "--wait"), ("wait", "j1")):
            outcome = mvpctl(*command, option, str(path))
            assert (outcome.code, outcome.err) == (2, f"error: {option}: {path} cannot be written\n")
    assert not fake.requests


def test_a_summary_of_what_failed(fake: Fake, mvpctl: Mvpctl, tmp_path: Path) -> None:
    failure = job_pb2.Failure(reason="INVALID_DATASET", message="a|b `c`\n<script>")
    fake.answers["GetJob"] = always(gated("FAILED", [], failure=failure, display_name="*mine*"))
    summary = tmp_path / "summary.md"
    assert mvpctl("wait", "j1", "--summary", str(summary)).code == 3
    text = summary.read_text()
    assert text.startswith("### ✗ \\*mine\\*: FAILED\n")
    assert "| failure | INVALID\\_DATASET: a\\|b \\`c\\` \\<script\\> |\n" in text
    assert "| f1\\>=80 |  | not evaluated |\n" in text


def junit(path: Path) -> ElementTree.Element:
    """The one suite of a file, with what the schemas of Ant and Jenkins ask for."""
    root = ElementTree.parse(path).getroot()  # noqa: S314 (our own)
    assert (root.tag, root.attrib) == ("testsuites", {})
    [suite] = root
    assert suite.tag == "testsuite"
    counts = {"tests", "failures", "errors", "skipped"}
    assert suite.attrib.keys() == {"name", "package", "id", "time", "timestamp", "hostname", *counts}
    datetime.strptime(suite.attrib["timestamp"], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    cases = suite.findall("testcase")
    order = [element.tag for element in suite]
    assert order == ["properties", *("testcase" for _ in cases), "system-out", "system-err"]
    assert all(case.attrib.keys() == {"classname", "name", "time"} for case in cases)
    assert int(suite.attrib["tests"]) == len(cases)
    for kind, count in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        found = suite.findall(f"testcase/{kind}")
        assert int(suite.attrib[count]) == len(found)
        assert all(kind == "skipped" or one.attrib.keys() == {"type", "message"} for one in found)
    return suite


def test_each_gate_is_a_test(mvpctl: Mvpctl, misses: str, tmp_path: Path) -> None:
    path = tmp_path / "gates.xml"
    assert mvpctl("wait", "j1", "--junit", str(path)).code == 5
    suite = junit(path)
    assert suite.attrib["name"] == "j1"
    cases = {case.attrib["name"]: case for case in suite.findall("testcase")}
    assert list(cases) == ["job", "f1>=80", "bytes<=10MB", "latency_ratio>=2"]
    assert [len(case) for case in cases.values()] == [0, 1, 0, 1]
    assert cases["f1>=80"][0].attrib == {"type": "GATE", "message": "observed: 70"}
    assert cases["latency_ratio>=2"][0].attrib["message"] == "observed: no such metric"
    assert {case.attrib["classname"] for case in cases.values()} == {"mvprune.sst2 movement 3 %"}


@pytest.mark.parametrize(
    ("density", "name", "shown"),
    [(0.035, "", "sst2 movement 3,5 %"), (0.1, "", "sst2 movement 10 %"), (0.1, "bert v1.2", "bert v1,2")],
)
def test_a_ci_system_splits_a_class_from_its_package_at_one_dot(
    fake: Fake, mvpctl: Mvpctl, tmp_path: Path, density: float, name: str, shown: str
) -> None:
    done = gated("SUCCEEDED", [], display_name=name)
    done.spec.target_density = density
    artifact = fake.serve({"weights.safetensors": b"w"})
    done.artifact = artifact
    fake.answers["GetJob"] = always(done)
    mvpctl("wait", "j1", "--junit", str(tmp_path / "gates.xml"))
    names = {case.attrib["classname"] for case in junit(tmp_path / "gates.xml").findall("testcase")}
    assert [one.rpartition(".")[::2] for one in names] == [("mvprune", shown)]


@pytest.mark.parametrize(
    ("state", "kind", "word"), [("FAILED", "failure", "NAN_LOSS"), ("CANCELLED", "error", "CANCELLED")]
)
def test_a_job_without_a_result_is_a_test_that_failed(
    fake: Fake, mvpctl: Mvpctl, tmp_path: Path, state: str, kind: str, word: str
) -> None:
    failure = {"failure": job_pb2.Failure(reason="NAN_LOSS", message='"<&>\x00\uffff')} if kind == "failure" else {}
    fake.answers["GetJob"] = always(gated(state, [], display_name="mine", **failure))
    path = tmp_path / "gates.xml"
    mvpctl("wait", "j1", "--junit", str(path))
    suite = junit(path)
    [problem] = suite.findall(f"testcase[@name='job']/{kind}")
    assert problem.attrib["type"] == word
    assert kind == "error" or problem.attrib["message"] == '"<&>  '
    assert suite.attrib["skipped"] == "3"
    assert suite.find("testcase").attrib["classname"] == "mvprune.mine"  # type: ignore[union-attr]


def test_a_full_disk(mvpctl: Mvpctl, misses: str) -> None:
    outcome = mvpctl("wait", "j1", "--junit", "/dev/full", "-o", "json")
    assert outcome.code == 2
    assert outcome.err.splitlines()[-1] == "error: --junit: /dev/full cannot be written (No space left on device)"
    assert json.loads(outcome.out)["state"] == "SUCCEEDED"
