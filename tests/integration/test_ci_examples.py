"""The examples of docs/ci: the script against a real server and workers whose trainer is a stand-in, the pipelines'
commands against mvpctl's options."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from mvprune.cli.shared.submit_parser import submit_parser
from mvprune.spec.gates import gates_of

from ..conftest import server_path
from .servers import Data, Server

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "ci"
STAND_IN = Path(__file__).parents[1] / "chaos" / "stand_in"  # accuracy 0.5, an artifact of 8 kB and a little


def words_of(command: str) -> list[str]:
    """The arguments of the one mvpctl command in a shell's text."""
    lines = command.replace("\\\n", " ").splitlines()
    [line] = [line for line in lines if line.startswith("mvpctl ")]
    return shlex.split(line)


@pytest.mark.parametrize("name", ["github-actions.yml", "gitlab-ci.yml"])
def test_the_commands_of_the_pipelines_are_ours(name: str) -> None:
    written = yaml.safe_load((EXAMPLES / name).read_text())
    steps = [step.get("run", "") for step in written["jobs"]["compress"]["steps"]] if "jobs" in written else []
    steps = steps or written["compress"]["script"]
    [command] = [step for step in steps if step.startswith("mvpctl")]
    program, verb, *options = words_of(command)
    assert (program, verb) == ("mvpctl", "submit")
    args = submit_parser().parse_args(options)
    assert [gate.metric for gate in gates_of(args.gates)] == ["eval/f1", "delta/f1", "bytes", "latency_ratio"]
    assert all((args.download, args.junit, args.summary))


def _options(name: str) -> list[str]:
    """The options that an example gives to the action or the component."""
    written = yaml.safe_load((EXAMPLES / name).read_text())
    [given] = (
        [step["with"] for step in written["jobs"]["compress"]["steps"] if "options" in step.get("with", {})]
        if "jobs" in written
        else [one["inputs"] for one in written["include"]]
    )
    options: list[str] = given["options"].splitlines()
    return options


@pytest.mark.parametrize("name", ["github-action.yml", "gitlab-component.yml"])
def test_the_options_of_the_action_and_the_component_are_ours(name: str) -> None:
    args = submit_parser().parse_args(_options(name))
    assert [gate.metric for gate in gates_of(args.gates)] == ["eval/f1", "delta/f1", "bytes", "latency_ratio"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("ci") / "home")
    server.start({"PYTHONPATH": str(STAND_IN)})
    yield server
    server.close()


class Pipeline:
    """Runs the script as a CI system does."""

    def __init__(self, server: Server, folder: Path) -> None:
        data = Data.write(server.home.parent)
        self.out = folder / "out"
        self._folder = folder
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "MVPRUNE_ADDRESS": server.address,
            "MODEL": "bert-base-uncased",
            "TRAIN": server_path(data.train),
            "VALIDATION": server_path(data.validation),
            "OUT": str(self.out),
            "TIMEOUT": "240",
        }

    def run(self, run: str, *options: str) -> subprocess.CompletedProcess[str]:
        """One step of a run."""
        job = ("--density", "0.1", "--max-steps", "10", "--seed", "8", "--cpus", "1")
        command = ["sh", str(EXAMPLES / "compress.sh"), *job, *options]
        environment = self.environment | {"BUILD_ID": run, "JOB_NAME": "compress"}
        return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=self._folder)

    @property
    def result(self) -> Any:
        return json.loads((self.out / "result.json").read_text())


@pytest.fixture
def pipeline(server: Server, tmp_path: Path) -> Pipeline:
    return Pipeline(server, tmp_path)


def test_a_pipeline_whose_gates_pass(pipeline: Pipeline) -> None:
    done = pipeline.run("1", "--gate", "bytes<=10kB", "--gate", "accuracy>=50")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"good enough: {pipeline.out}/artifact\n"
    observed = {result["gate"]["metric"]: result["observed"] for result in pipeline.result["gate_results"]}
    files = [path for path in (pipeline.out / "artifact").rglob("*") if path.is_file()]
    assert observed == {"bytes": sum(path.stat().st_size for path in files), "eval/accuracy": 0.5}


@pytest.mark.slow
def test_a_pipeline_that_misses_a_gate_and_is_run_again(pipeline: Pipeline) -> None:
    gates = ("--gate", "bytes<=10kB", "--gate", "accuracy>=80")
    done = pipeline.run("2", *gates)
    assert done.returncode == 5, done.stderr
    assert done.stdout == f"a gate was missed: see {pipeline.out}/summary.md\n"
    assert "missed 1 of 2 gates: accuracy>=80\n" in done.stderr
    first = pipeline.result
    assert first["state"] == "SUCCEEDED"
    assert (pipeline.out / "artifact" / "weights.bin").exists()
    assert "| accuracy\\>=80 | 50 | ✗ |\n" in (pipeline.out / "summary.md").read_text()
    [suite] = ElementTree.parse(pipeline.out / "gates.xml").getroot()  # noqa: S314 (our own)
    assert (suite.attrib["tests"], suite.attrib["failures"]) == ("3", "1")

    again = pipeline.run("2", *gates)
    assert again.returncode == 5
    assert pipeline.result == first, "the same job, and the same artifact"


@pytest.mark.slow
def test_a_pipeline_with_strict_gates_publishes_nothing(pipeline: Pipeline) -> None:
    done = pipeline.run("3", "--gate", "accuracy>=80", "--strict-gates")
    assert done.returncode == 5, done.stderr
    assert "GATE_FAILED: the result misses a gate: eval/accuracy is 0.5, at least 0.8 was asked for\n" in done.stderr
    assert (pipeline.result["state"], pipeline.result["artifact"]) == ("FAILED", "")
    assert [result["passed"] for result in pipeline.result["gate_results"]] == [False]
    assert not (pipeline.out / "artifact").exists()
    assert "GATE\\_FAILED" in (pipeline.out / "summary.md").read_text()


def _of_action() -> tuple[str, list[str]]:
    """The script of the action, and what its inputs are called."""
    written = yaml.safe_load((ROOT / "action.yml").read_text())
    [step] = [one for one in written["runs"]["steps"] if one.get("id") == "submit"]
    names = {match for value in step["env"].values() for match in re.findall(r"inputs\.([a-z-]+)", value)}
    return step["run"], sorted(names)


def _of_component() -> tuple[str, list[str]]:
    spec, job = (ROOT / "templates" / "compress.yml").read_text().split("---\n")
    [written] = yaml.safe_load(job).values()
    known = yaml.safe_load(spec)["spec"]["inputs"]
    asked = set(re.findall(r"\$\[\[ inputs\.([a-z-]+) ]]", job))
    assert asked == set(known), "every input is used"
    [script] = written["script"]
    return script, sorted(known)


@pytest.mark.slow
@pytest.mark.parametrize("of", [_of_action, _of_component])
def test_the_scripts_of_the_action_and_the_component(
    pipeline: Pipeline, server: Server, tmp_path: Path, of: Callable[[], tuple[str, list[str]]]
) -> None:
    script, inputs = of()
    assert {"options", "address", "audience", "project", "out", "timeout"} <= set(inputs)
    (tmp_path / "mvprune").mkdir()
    (tmp_path / "mvprune" / "bin").symlink_to(Path(sys.executable).parent)
    outputs = tmp_path / "outputs"
    environment = {
        **pipeline.environment,
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_OUTPUT": str(outputs),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "BUILD_ID": "4",
        "JOB_NAME": of.__name__,
    }
    files = {name.lower(): environment[name] for name in ("MODEL", "TRAIN", "VALIDATION")}
    options = [f"--{name}={value}" for name, value in files.items()]
    options += [
        "--density=0.1",
        "--max-steps=10",
        "--seed=8",
        "--cpus=1",
        "--gate=accuracy>=80",
        "--name=two words; $(false)",
    ]
    environment["OPTIONS"] = "\n".join(options) + "\n"
    done = subprocess.run(["bash", "-e", "-c", script], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 5, done.stderr
    assert pipeline.result["display_name"] == "two words; $(false)"
    assert (pipeline.out / "gates.xml").exists()
    assert "accuracy" in next(tmp_path.rglob("summary.md")).read_text()
    if of is _of_action:
        name, artifact = pipeline.result["name"], pipeline.out / "artifact"
        assert outputs.read_text().splitlines() == [f"job={name}", f"artifact={artifact}", "exit-code=5"]
        environment["MVPRUNE_ADDRESS"] = "127.0.0.1:1"
        away = subprocess.run(
            ["bash", "-e", "-c", script], capture_output=True, text=True, env=environment, cwd=tmp_path
        )
        assert away.returncode == 7
        assert "Traceback" not in away.stderr
