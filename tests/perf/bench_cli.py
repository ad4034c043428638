"""A cold start of mvpctl beside Python's with gRPC alone.

Run: make bench. Each is a process, from its start to its end; they take turns, and the best of many counts. The server
that `mvpctl get` asks answers at once, with a job.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from rich.console import Console
from rich.table import Table

from mvprune.v1 import job_pb2, job_pb2_grpc

MVPCTL = str(Path(sys.executable).with_name("mvpctl"))
_PYTHON, _GRPC = "python -c pass", "python -c 'import grpc'"
_HELP, _GET, _YAML, _TAB = "mvpctl --help", "mvpctl get JOB", "mvpctl get JOB -o yaml", "mvpctl get <TAB>"
_WANTED = {_HELP: 0.2, _GET: 0.35}


class _Jobs(job_pb2_grpc.JobServiceServicer):
    """One running job."""

    def __init__(self) -> None:
        self._job = job_pb2.Job(name="projects/default/jobs/sst2-k3x9", state="RUNNING", attempt=1)
        self._job.spec.movement.SetInParent()
        self._job.create_time.GetCurrentTime()

    def GetJob(self, request: Any, context: Any) -> job_pb2.Job:
        return self._job

    def ListJobs(self, request: Any, context: Any) -> job_pb2.ListJobsResponse:
        return job_pb2.ListJobsResponse(jobs=[self._job])


def seconds(argv: Sequence[str], env: dict[str, str]) -> float:
    """How long a process takes from its start to its end."""
    started = time.perf_counter()
    subprocess.run(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def main() -> None:
    """Prints one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    server = grpc.server(ThreadPoolExecutor(2))
    job_pb2_grpc.add_JobServiceServicer_to_server(_Jobs(), server)
    env = {**os.environ, "MVPRUNE_ADDRESS": f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"}
    line = "mvpctl get "
    tab = {
        "_ARGCOMPLETE": "1",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "_ARGCOMPLETE_STDOUT_FILENAME": os.devnull,
    }
    commands: dict[str, tuple[list[str], dict[str, str]]] = {
        _PYTHON: ([sys.executable, "-c", "pass"], env),
        _GRPC: ([sys.executable, "-c", "import grpc"], env),
        _HELP: ([MVPCTL, "--help"], env),
        _GET: ([MVPCTL, "get", "sst2-k3x9"], env),
        _YAML: ([MVPCTL, "get", "sst2-k3x9", "-o", "yaml"], env),
        _TAB: ([MVPCTL], {**env, **tab}),
    }
    server.start()
    found: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, (argv, variables) in commands.items():
            found[name].append(seconds(argv, variables))
    server.stop(None)
    best = {name: min(times) for name, times in found.items()}
    table = Table(title=f"cold start, best of {rounds}")
    for column in ("", "time", "of import grpc", "wanted"):
        table.add_column(column, justify="right" if column else "left")
    for name, time_taken in best.items():
        wanted = f"{1000 * _WANTED[name]:.0f} ms" if name in _WANTED else ""
        table.add_row(name, f"{1000 * time_taken:.0f} ms", f"{time_taken / best[_GRPC]:.2f}x", wanted)
    Console().print(table)


if __name__ == "__main__":
    main()
