"""Processes for executors to launch, and waits for what becomes of them."""

from __future__ import annotations

import sys
from pathlib import Path

from mvprune_service.executors.base import (
    Executor,
    Launch,
    Observation,
    Phase,
)

from ..waiting import until


def python(ref: str, script: str, *args: str, env: dict[str, str] | None = None, grace: int = 30) -> Launch:
    return Launch(ref, (sys.executable, "-c", script, *args), env or {}, cpus=0.5, grace_seconds=grace)


def wait_for(executor: Executor, ref: str, phase: Phase) -> Observation:
    """What is seen of it once it is in a phase."""
    seen: list[Observation] = []

    def is_there() -> bool:
        seen.append(executor.observe(ref))
        return seen[-1].phase is phase

    until(is_there, lambda: f"{ref} is {seen[-1]}, not {phase}")
    return seen[-1]


def wait_for_lines(path: Path, count: int) -> list[str]:
    until(lambda: path.exists() and path.read_text().count("\n") >= count, f"{path} has {count} lines")
    return path.read_text().splitlines()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for_end(*pids: int) -> None:
    """Of processes that have been killed: they let go of their files a moment before they are dead."""
    until(lambda: not any(map(is_alive, pids)), f"{pids} are dead")


STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(sys.argv[1], "a") as file:
    print(os.getpid(), file=file)
if len(sys.argv) > 2:  # a descendant in a session of its own
    subprocess.Popen([sys.executable, *sys.orig_argv[1:-1]], start_new_session=True)
time.sleep(1000)
"""


OBEDIENT = """
import signal, sys, time
def save(*_):
    with open(sys.argv[1], "a") as file:
        print("saved", file=file)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
with open(sys.argv[1], "a") as file:
    print("ready", file=file)
time.sleep(1000)
"""
