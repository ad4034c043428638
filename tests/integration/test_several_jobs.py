"""Several jobs in one command, with a real server whose workers train nothing: mvpctl as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mvprune import Client
from mvprune.cli.shared.exit import ExitCode

from ..conftest import Tiny, server_path
from ..waiting import PATIENCE
from .servers import Server

STAND_IN = Path(__file__).parents[1] / "e2e" / "sweep_stand_in"


@pytest.fixture
def server(tmp_path: Path, tiny: Tiny) -> Iterator[Server]:
    server = Server(tmp_path / "home")
    try:
        server.start({"PYTHONPATH": str(STAND_IN)}, models=tiny.models, roots=tiny.train.parent, drain_seconds=0)
        yield server
    finally:
        server.close()


@pytest.mark.slow
def test_jobs_are_waited_for_cancelled_listed_and_deleted_together(server: Server, tiny: Tiny) -> None:
    def mvpctl(*argv: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "MVPRUNE_ADDRESS": server.address}
        command = [str(Path(sys.executable).with_name("mvpctl")), *argv]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=4 * PATIENCE)

    with Client(server.address) as client:

        def submit(density: float, steps: int = 20) -> str:
            return client.submit(
                model="tiny-bert",
                task="text-classification",
                train=server_path(tiny.train),
                validation=server_path(tiny.validation),
                density=density,
                max_steps=steps,
                cpus=1,
            ).id

        ids = submit(0.1), submit(0.5), submit(0.1, 1_000_000)
        cancelled = mvpctl("cancel", ids[2], "none", "--reason", "too long")
        assert (cancelled.returncode, len(cancelled.stdout.splitlines())) == (ExitCode.NOT_FOUND, 1)
        assert "projects/default/jobs/none" in cancelled.stderr

        waited = mvpctl("wait", *ids, "-o", "json")
        assert waited.returncode == ExitCode.CANCELLED, waited.stderr
        one, two, long = json.loads(waited.stdout)
        assert [job["state"] for job in (one, two, long)] == ["SUCCEEDED", "SUCCEEDED", "CANCELLED"]
        for job in (one, two):
            name = job["result"]["primary_metric"]
            assert (job["primary_metric"], job["metric"]) == (name, job["result"]["metrics"][f"eval/{name}"])
            assert job["difference"] == job["result"]["metrics"][f"delta/{name}"]
            assert job["duration"] > 0

        for order in ("metric", "metric desc", "difference", "duration desc"):
            listed = json.loads(mvpctl("list", "--order-by", order, "-o", "json").stdout)
            field, _, descending = order.partition(" ")
            values = [job[field] for job in listed if job[field] is not None]
            assert values == sorted(values, reverse=bool(descending))
            if field != "duration":
                assert listed[-1]["name"].endswith(ids[2]), "without a metric: last in either direction"
        best = max(one["metric"], two["metric"])
        found = json.loads(mvpctl("list", "--filter", f"metric >= {best!r}", "-o", "json").stdout)
        assert {job["metric"] for job in found} == {best}
        heading = mvpctl("list").stdout.splitlines()[0].split()
        assert {"METRIC", "DIFF", "DURATION"} <= set(heading)

        deleted = mvpctl("delete", ids[0], "none", ids[2])
        lines = [f"job {job_id} deleted" for job_id in (ids[0], ids[2])]
        assert (deleted.returncode, deleted.stdout.splitlines()) == (ExitCode.NOT_FOUND, lines)
        assert [job.id for job in client.list()] == [ids[1]]
