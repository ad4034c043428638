"""`make cluster-demo`: a Ray cluster of two nodes on this machine loses one of them in the middle of a job.

    python scripts/cluster_demo.py

A job of two ranks, one on each node, runs undisturbed. The same job runs again, and the node of its second rank is
killed in the middle of pruning. Another node joins, and the job resumes from its checkpoint. Both artifacts must have
the same digest. Everything lives under .demo/ in the current folder; nothing outside it is touched.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from demo import BIN, FOLDER, server
from demo_data import DemoInputError, DemoInputs, build
from tests.chaos.ray_nodes import RayNodes

NODES = ("a", "b")
STEPS = 60
SECONDS = 1800


def main() -> int:
    """Runs the demo; returns 0 if both runs ended SUCCEEDED with the same artifact."""
    began = time.monotonic()
    try:
        inputs = build(FOLDER / "inputs")
    except DemoInputError as error:
        sys.exit(f"error: {error}")
    same = demonstrate(inputs, FOLDER / "inputs", FOLDER / "cluster", STEPS)
    say(f"took {time.monotonic() - began:.0f} s")
    return 0 if same else 1


def demonstrate(inputs: DemoInputs, roots: Path, home: Path, steps: int) -> bool:
    """Runs the job twice, for so many steps, with all files under `home`; returns whether the second run has resumed,
    and both have the same artifact. Exits if a run does not succeed."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    say("1/5  starting Ray: a head without CPUs, and two nodes of one CPU each, a and b …")
    with RayNodes(home / "ray.log", stand_in=False, quick=False) as ray:
        for name in NODES:
            ray.start_node("--num-cpus=1", name=name)
        say("2/5  starting the service on this cluster …")
        os.environ["RAY_AUTH_TOKEN"] = ray.token  # the server sends it
        options = ("--roots", roots, "--executor", "ray", "--ray-address", ray.address)
        with server(home / "home", home / "server.log", *options) as address:
            command = [
                "submit", "--model", f"server:{inputs.model}", "--task", "text-classification",
                "--train", f"server:{inputs.train}", "--validation", f"server:{inputs.validation}",
                "--method", "soft_movement", "--density", "0.10", "--max-steps", str(steps), "--batch-size", "16",
                "--workers", "2", "--gpus", "0", "--cpus", "1", "--set", "checkpoint_interval=1s",
            ]  # fmt: skip
            say(f"3/5  a run that nothing disturbs: mvpctl {' '.join(command)}")
            undisturbed = ended(address, mvpctl(address, *command, "-q").strip())
            say("4/5  the same job again …")
            name = mvpctl(address, *command, "-q").strip()
            until(lambda: has_come_far(job_of(address, name), steps))
            if not all(trains(ray.processes(node)) for node in NODES):
                sys.exit("the ranks do not train on both nodes")
            say("     both nodes train; killing node b, and starting node c …")
            ray.kill("b")
            ray.start_node("--num-cpus=1", name="c")
            disturbed = ended(address, name)
            log = mvpctl(address, "logs", name)
            resumed = [line for line in log.splitlines() if "resuming after step" in line]
            say("\n".join(f"     {line}" for line in resumed))
            say("5/5  stopping the service and Ray …")
    same = undisturbed == disturbed
    say(f"the artifacts are {'the same' if same else 'NOT the same'}: {undisturbed}, {disturbed}")
    return same and bool(resumed)


def say(text: str) -> None:
    """Prints it at once."""
    print(text, flush=True)


def mvpctl(address: str, *arguments: str) -> str:
    """What a command prints; ends the demo if it fails."""
    environment = {**os.environ, "MVPRUNE_ADDRESS": address}
    done = subprocess.run([BIN / "mvpctl", *arguments], env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"mvpctl {' '.join(arguments)} ended with code {done.returncode}")
    return done.stdout


def job_of(address: str, name: str) -> dict[str, Any]:
    """The job as JSON."""
    found: dict[str, Any] = json.loads(mvpctl(address, "get", name, "-o", "json"))
    return found


def ended(address: str, name: str) -> str:
    """Waits for the end of a job; returns the name of its artifact. Ends the demo unless the job SUCCEEDED."""
    until(lambda: job_of(address, name)["state"] in ("SUCCEEDED", "FAILED", "CANCELLED"))
    job = job_of(address, name)
    if job["state"] != "SUCCEEDED":
        sys.exit(
            f"{name} is {job['state']}: {job['failure']}; the end of its log:\n{mvpctl(address, 'logs', name)[-3000:]}"
        )
    say(f"     SUCCEEDED in attempt {job['attempt']}: {job['artifact']}")
    return str(job["artifact"])


def until(condition: Callable[[], bool]) -> None:
    """Waits; ends the demo after `SECONDS`."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"nothing happened for {SECONDS} s; the logs are in {FOLDER}")
        time.sleep(1)


def has_come_far(job: dict[str, Any], steps: int) -> bool:
    """Whether pruning is at its middle, long after a first checkpoint."""
    progress = job["progress"] or {}
    return bool(progress.get("phase") == "pruning" and progress["step"] >= steps // 2)


def trains(processes: Iterable[int]) -> bool:
    """Whether a trainer is among the processes."""
    for process in processes:
        with suppress(OSError):
            if b"mvprune_workers.trainer" in Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0"):
                return True
    return False


if __name__ == "__main__":
    sys.exit(main())
