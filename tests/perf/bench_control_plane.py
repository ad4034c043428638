"""The control plane against what gRPC and SQLite cost by themselves, in the same run.

Run: make bench-service. Server, bare server and load are processes of their own; rounds are interleaved, the best of
N counts. MVPRUNE_SOAK_SECONDS: how long memory is watched (600 for a verdict). --json FILE writes the figures too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import grpc
from rich.console import Console
from rich.table import Table
from service_under_load import CARRIED, SPEC, Running, fill, floor, heartbeat, in_flight, reads, service, some_job

from mvprune.v1 import job_pb2, job_pb2_grpc, worker_pb2_grpc
from mvprune_service.db.leases import Fence

BIG, SMALL = 100_000, 1_000
IN_FLIGHT = 32
ROUNDS, ROUND_SECONDS = 6, 1.5
LISTS = 60  # of each kind
DEEP = 1_000  # pages of 50
WATCHERS, EVENTS = 1_000, 40
SOAK_SECONDS = float(os.environ.get("MVPRUNE_SOAK_SECONDS", "20"))
CREATE = job_pb2.CreateJobRequest(parent="projects/bench", job=job_pb2.Job(spec=SPEC))


@dataclass(frozen=True)
class Figure:
    """One line of the result. `ratio` is what `limit` bounds: from below where `more` is better, else from above."""

    what: str
    value: str
    floor: str
    ratio: float
    limit: float
    more: bool = False

    @property
    def met(self) -> bool:
        """Whether it is within its limit."""
        return self.ratio >= self.limit if self.more else self.ratio <= self.limit


class Stubs:
    """A channel to a server."""

    def __init__(self, running: Running, stack: AsyncExitStack) -> None:
        self.running = running
        self._stack = stack
        self.jobs = self._stub(job_pb2_grpc.JobServiceStub, running.address)

    def workers(self) -> Any:
        """WorkerService, on its own port."""
        return self._stub(worker_pb2_grpc.WorkerServiceStub, self.running.worker_address)

    def _stub(self, kind: Callable[[Any], Any], address: str) -> Any:
        channel = grpc.aio.insecure_channel(address)
        self._stack.push_async_callback(channel.close)
        return kind(channel)


@dataclass
class Rate:
    """Calls a second, and the server's CPU time a call: the best of some rounds each."""

    per_second: float = 0.0
    cpu_ms: float = float("inf")

    async def measure(self, running: Running, call: Callable[[int], Awaitable[Any]]) -> None:
        """One more round."""
        used, started = running.cpu_seconds, time.perf_counter()
        answered = await in_flight(IN_FLIGHT, ROUND_SECONDS, call)
        self.per_second = max(self.per_second, answered / (time.perf_counter() - started))
        self.cpu_ms = min(self.cpu_ms, 1000 * (running.cpu_seconds - used) / answered)

    def __str__(self) -> str:
        return f"{self.per_second:,.0f}/s, {self.cpu_ms:.2f} ms CPU"


async def throughput(bare: Stubs, served: Stubs) -> list[Figure]:
    """CreateJob and GetJob at 32 in flight, beside a bare server's answer of the same message."""
    got = job_pb2.GetJobRequest(name="projects/big/jobs/j1")
    calls: dict[str, tuple[Running, Callable[[int], Awaitable[Any]]]] = {
        "echo": (bare.running, lambda _: bare.jobs.GetJob(got)),
        "echo of a submit": (bare.running, lambda _: bare.jobs.CreateJob(CREATE)),
        "CreateJob": (served.running, lambda _: served.jobs.CreateJob(CREATE)),
        "GetJob": (served.running, lambda _: served.jobs.GetJob(got)),
    }
    rates = {name: Rate() for name in calls}
    for _ in range(ROUNDS):
        for name, (running, call) in calls.items():
            await rates[name].measure(running, call)
    return [
        Figure(
            f"{name}, {IN_FLIGHT} in flight",
            str(rates[name]),
            str(rates[echo]),
            rates[name].per_second / rates[echo].per_second,
            limit,
            more=True,
        )
        for name, echo, limit in (("CreateJob", "echo of a submit", 0.4), ("GetJob", "echo", 0.6))
    ]


def sqlite_commits(folder: Path) -> float:
    """Rows a second, each in a commit of its own (WAL, FULL)."""
    best = 0.0
    with sqlite3.connect(folder / "floor.sqlite", isolation_level=None) as conn:
        conn.execute("PRAGMA journal_mode=WAL")
        conn.execute("PRAGMA synchronous=FULL")
        conn.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, data BLOB)")
        for _ in range(ROUNDS):
            started = time.perf_counter()
            for _ in range(300):
                conn.execute("INSERT INTO t (data) VALUES (?)", (bytes(500),))
            best = max(best, 300 / (time.perf_counter() - started))
    return best


async def lists(jobs: Any) -> list[Figure]:
    """Pages of 50: the first against one far down, of many jobs against few, by metric against by time."""

    async def far_down(order: str) -> str:
        token = ""
        for _ in range(DEEP // 10):
            walk = job_pb2.ListJobsRequest(parent="projects/big", page_size=500, page_token=token, order_by=order)
            token = (await jobs.ListJobs(walk)).next_page_token
        return token

    def page(project: str, order: str = "", token: str = "") -> job_pb2.ListJobsRequest:
        return job_pb2.ListJobsRequest(parent=f"projects/{project}", page_size=50, order_by=order, page_token=token)

    requests = {
        "first": page("big"),
        "deep": page("big", token=await far_down("")),
        "small": page("small"),
        "metric": page("big", "metric desc"),
        "metric, deep": page("big", "metric desc", await far_down("metric desc")),  # where jobs have no metric
        "metric, small": page("small", "metric desc"),
    }
    times: dict[str, list[float]] = {name: [] for name in requests}
    for _ in range(LISTS):
        for name, request in requests.items():
            started = time.perf_counter()
            assert len((await jobs.ListJobs(request)).jobs) == 50
            times[name].append(time.perf_counter() - started)
    # The fastest tenth: what else the machine does slows all alike, but not at once.
    fast = {name: statistics.quantiles(values, n=10)[0] for name, values in times.items()}

    def figure(what: str, slow: str, quick: str) -> Figure:
        return Figure(what, f"{1e3 * fast[slow]:.2f} ms", f"{1e3 * fast[quick]:.2f} ms", fast[slow] / fast[quick], 1.3)

    return [
        figure(f"list of 50, page {DEEP:,} beside page 1", "deep", "first"),
        figure(f"list of 50, of {BIG:,} jobs beside {SMALL:,}", "first", "small"),
        figure("list of 50 by metric beside by time", "metric", "first"),
        figure(f"list of 50 by metric, page {DEEP:,} beside page 1", "metric, deep", "metric"),
        figure(f"list of 50 by metric, of {BIG:,} jobs beside {SMALL:,}", "metric", "metric, small"),
    ]


async def broadcast(
    jobs: Any, name: str, watchers: int, tell: Callable[[int], Awaitable[Any]], counted: Callable[[], int] = int
) -> tuple[float, float]:
    """Seconds from the beginning of a change to its last watcher, the 99th percentile over all events, and what
    `counted` grew by with each event."""
    seen = [0] * watchers
    last, arrived = 0.0, asyncio.Event()

    async def watch(number: int) -> None:
        nonlocal last
        async for _ in jobs.WatchJob(job_pb2.WatchJobRequest(name=name)):
            seen[number] += 1
            last = time.perf_counter()
            if min(seen) == seen[number]:
                arrived.set()

    tasks = [asyncio.create_task(watch(number)) for number in range(watchers)]
    while min(seen) < 1:
        await arrived.wait()
        arrived.clear()
    waits, counted_before = [], counted()
    for event in range(EVENTS):
        before, started = [count + 1 for count in seen], time.perf_counter()
        await tell(event + 1)
        while any(count < wanted for count, wanted in zip(seen, before, strict=True)):
            arrived.clear()
            await asyncio.wait_for(arrived.wait(), 30)
        waits.append(last - started)
        await asyncio.sleep(0.05)
    grown = (counted() - counted_before) / EVENTS
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return statistics.quantiles(waits, n=100)[98], grown


async def watching(bare: Stubs, served: Stubs, home: Path, fence: Fence, counter: Path) -> list[Figure]:
    """1,000 watchers on one job: how late the last one hears, and what the database has to do with it."""
    workers, name = served.workers(), f"projects/{CARRIED.project}/jobs/{CARRIED.job}"
    steps = iter(range(1, 1 << 30))

    def progress(_: int) -> Awaitable[Any]:
        request, metadata = heartbeat(home, fence, next(steps))
        return workers.Heartbeat(request, metadata=metadata)

    def counted() -> int:
        return reads(counter)

    cancel = job_pb2.CancelJobRequest()
    bare_late, _ = await broadcast(bare.jobs, name, WATCHERS, lambda _: bare.jobs.CancelJob(cancel))
    _, few = await broadcast(served.jobs, name, 10, progress, counted)
    late, many = await broadcast(served.jobs, name, WATCHERS, progress, counted)
    shown = f"{1e3 * late:.0f} ms", f"{1e3 * bare_late:.0f} ms"
    return [
        Figure(f"p99 to the last of {WATCHERS:,} watchers", *shown, late, 0.2),
        Figure("reads an event, 1,000 watchers beside 10", f"{many:.1f}", f"{few:.1f}", many / few, 1.3),
    ]


async def soak(jobs: Any, running: Running, seconds: float) -> Figure:
    """Memory over submit, get, watch, cancel and delete."""

    async def life(_: int) -> None:
        name = (await jobs.CreateJob(CREATE)).name
        await jobs.GetJob(job_pb2.GetJobRequest(name=name))
        watch = jobs.WatchJob(job_pb2.WatchJobRequest(name=name))
        assert not (await watch.read()).done
        await jobs.CancelJob(job_pb2.CancelJobRequest(name=name))
        while not (await watch.read()).done:
            pass
        assert await watch.read() is grpc.aio.EOF
        await jobs.DeleteJob(job_pb2.DeleteJobRequest(name=name))

    await in_flight(8, seconds / 4, life)
    warm = running.resident_mb
    lives = await in_flight(8, seconds * 3 / 4, life)
    end = running.resident_mb
    return Figure(f"memory after {lives:,} jobs more", f"{end:.0f} MB", f"{warm:.0f} MB", end / warm, 1.05)


async def measure(folder: Path, console: Console) -> list[Figure]:
    """Everything, in order."""
    home, counter = folder, folder / "reads"
    with console.status(f"filling a database with {BIG:,} jobs"):
        fence = await fill(home, {"big": BIG, "small": SMALL})
    figures = []
    with floor(some_job()) as bare:
        starts = []
        for _ in range(3):
            with service(home) as running:
                starts.append(running.ready_seconds)
        figures.append(Figure("restart to the first answer", f"{min(starts):.2f} s", "", min(starts), 2.0))
        with console.status("calls"), service(home) as running:
            async with AsyncExitStack() as stack:
                stubs = Stubs(bare, stack), Stubs(running, stack)
                figures += await lists(stubs[1].jobs)
                figures += await throughput(*stubs)
        with console.status("watchers"), service(home, counter) as running:
            async with AsyncExitStack() as stack:
                figures += await watching(Stubs(bare, stack), Stubs(running, stack), home, fence, counter)
        with console.status(f"{SOAK_SECONDS:g} s of jobs"), service(home) as running:
            async with AsyncExitStack() as stack:
                figures.append(await soak(Stubs(running, stack).jobs, running, SOAK_SECONDS))
    return figures


def main() -> None:
    """Prints one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    arguments, console = parser.parse_args(), Console()
    with tempfile.TemporaryDirectory(prefix="mvprune-bench-") as folder:
        commits = sqlite_commits(Path(folder))
        figures = asyncio.run(measure(Path(folder), console))
    table = Table(title=f"Control plane on SQLite ({commits:,.0f} commits/s of one row by themselves)")
    for column in ("", "here", "beside", "ratio or figure", "wanted", ""):
        table.add_column(column, justify="right" if column else "left")
    for figure in figures:
        wanted = f"{'≥' if figure.more else '≤'} {figure.limit:g}"
        met = "✓" if figure.met else "✗"
        table.add_row(figure.what, figure.value, figure.floor, f"{figure.ratio:.2f}", wanted, met)
    console.print(table)
    if arguments.json:
        rows = [asdict(figure) | {"met": figure.met} for figure in figures]
        arguments.json.write_text(json.dumps({"sqlite_commits_per_second": commits, "figures": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
