"""Completion, in the shells themselves: what TAB gives."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.unit.client.scripted_server import Fake, Mvpctl, always, job
from tests.unit.client.scripted_sweeps import sweep
from tests.waiting import PATIENCE, until

from mvprune.cli.shared.commands import COMMANDS
from mvprune.data.tasks import TASKS
from mvprune.v1 import catalog_pb2, job_pb2, sweep_pb2

BIN = Path(sys.executable).parent
# What readline sets and calls when TAB is pressed at the end of a line.
_PRESS = """
source <(mvpctl completion bash)
while IFS= read -r line; do
  COMP_LINE=$line COMP_POINT=${#line} COMP_TYPE=9 COMPREPLY=()
  read -ra COMP_WORDS <<< "$line"
  [[ $line == *' ' ]] && COMP_WORDS+=('')
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  "$(complete -p mvpctl | sed 's/.*-F \\([^ ]*\\).*/\\1/')" mvpctl
  (IFS='|'; echo "${COMPREPLY[*]}")
done
"""


def press_tab(*lines: str, address: str = "127.0.0.1:1", **environment: str) -> list[list[str]]:
    """What bash offers at the end of each line."""
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "MVPRUNE_ADDRESS": address, **environment}
    done = subprocess.run(
        ["bash", "--norc", "-c", _PRESS],
        input="".join(f"{line}\n" for line in lines),
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.stderr == ""
    return [[word.strip() for word in line.split("|") if word] for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_commands_options_and_words_without_a_server(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").touch()
    commands, one, options, methods, tasks, of_token, scopes, file, states, none, unknown, job, *of_sweeps = press_tab(
        "mvpctl ",
        "mvpctl subm",
        "mvpctl submit --me",
        "mvpctl submit --model m --method ",
        "mvpctl submit --task s",
        "mvpctl token ",
        "mvpctl token create --scope ",
        f"mvpctl submit --train {tmp_path}/tr",
        "mvpctl list --state R",
        "mvpctl submit --density ",
        "mvpctl nonsense ",
        "mvpctl get ",
        "mvpctl sweep re",
        "mvpctl sweep create --goal ",
        "mvpctl submit --set initial_s",
    )
    settings = ["initial_scores=zero", "initial_scores=magnitude"]
    assert of_sweeps == [["report", "resume", "retry"], ["density", "bytes", "latency"], settings]
    assert set(commands) == set(COMMANDS)
    assert one == ["submit"]
    assert options == ["--method", "--metric", "--memory", "--measure-latency"]
    assert methods == [
        "movement",
        "soft_movement",
        "l0",
        "magnitude",
        "one_shot_magnitude",
        "random",
        "platon",
        "obert",
        "smp",
        "locked_mask",
        "rigl",
        "sparse_momentum",
        "rpp",
        "auto",
    ]
    assert set(tasks) == {name for name in TASKS if name.startswith("s")}
    assert of_token == ["create", "list", "revoke", "share", "whoami"]
    assert scopes == ["read", "submit", "admin"]
    assert file == [f"{tmp_path}/train.tsv"]
    assert states == ["RUNNING"]
    assert none == unknown == job == []


@pytest.mark.slow
def test_options_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    options, executors, folder, none = press_tab(
        "mvpctl server start --worker-c",
        "mvpctl server start --no-migrate --executor ",
        f"mvpctl server start --models {tmp_path}/m",
        "mvpctl server start --address ",
    )
    assert options == ["--worker-ca", "--worker-client-ca", "--worker-cert"]
    assert executors == ["ray", "local"]
    assert folder == [f"{tmp_path}/models/"]
    assert none == []


def test_nothing_else_imports_the_service(tmp_path: Path) -> None:
    """Nor is anything said where it is not installed."""
    for package in ("pydantic", "pydantic_settings"):
        (tmp_path / f"{package}.py").write_text(f"raise ModuleNotFoundError(name={package!r})")
    commands, options, none = press_tab(
        "mvpctl server st", "mvpctl server migrate --h", "mvpctl server start --", PYTHONPATH=str(tmp_path)
    )
    assert commands == ["start", "status"]
    assert "--home" in options
    assert none == []


@pytest.mark.slow
def test_jobs_and_models_of_the_server(fake: Fake) -> None:
    jobs = [job(), job("FAILED")]
    jobs[1].name = "projects/default/jobs/sst2-other"
    fake.answers["ListJobs"] = always(job_pb2.ListJobsResponse(jobs=jobs))
    models = [
        catalog_pb2.ModelEntry(name="tiny/bert", source="SERVER", size=job_pb2.ModelSize(base_parameters=1)),
        catalog_pb2.ModelEntry(name="broken", source="SERVER", problem="no weights"),
    ]
    fake.answers["ListModels"] = always(catalog_pb2.ListModelsResponse(models=models))
    lines = (
        *("mvpctl get ", "mvpctl wait --timeout 3 ss", "mvpctl submit --model t"),
        *(f"mvpctl {name} j1 " for name in ("wait", "cancel", "retry", "delete")),
        "mvpctl sweep get ",
    )
    fake.answers["ListSweeps"] = always(sweep_pb2.ListSweepsResponse(sweeps=[sweep()]))

    def offered() -> list[list[str]]:
        found = press_tab(*lines, address=fake.address)
        return found if all(found) else []

    # A server that is late is not waited for: on a busy machine one presses it again.
    of_jobs, begun, of_models, *more, of_sweeps = until(offered)
    assert of_sweeps == ["s1"]
    assert of_jobs == ["j1", "sst2-other"]
    assert begun == ["sst2-other"]
    assert more == [["sst2-other"]] * 4, "the one that is there already is not offered again"
    assert "tiny/bert" in of_models
    assert "broken" not in of_models


def test_a_server_that_does_not_answer_is_not_waited_for() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        assert press_tab("mvpctl get ", address=f"127.0.0.1:{silent.getsockname()[1]}") == [[]]
        assert time.monotonic() - started < 20, "half a minute is what a call may take"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_what_their_shell_can_read(mvpctl: Mvpctl, shell: str) -> None:
    outcome = mvpctl("completion", shell)
    assert outcome.code == 0
    assert "mvpctl" in outcome.out
    if shutil.which(shell):
        flag = "--no-execute" if shell == "fish" else "-n"
        subprocess.run([shell, flag], input=outcome.out, text=True, check=True)


def test_other_shells_are_refused(mvpctl: Mvpctl) -> None:
    outcome = mvpctl("completion", "csh")
    assert (outcome.code, outcome.err.splitlines()[0]) == (
        2,
        "error: SHELL must be one of bash, zsh, fish, got 'csh'",
    )
