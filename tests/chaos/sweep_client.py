"""A client of sweeps that never gives up, and what must be true of a sweep that has ended."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import grpc
from sqlalchemy import create_engine, select

from mvprune.v1 import sweep_pb2, sweep_pb2_grpc
from mvprune_service.db.tables.jobs import JOBS
from mvprune_service.db.tables.sweeps import POINTS, SWEEP_EVENTS, SWEEPS
from mvprune_service.domain.machine import TERMINAL

from .counts import COUNTS
from .harness import PARENT, TRANSIENT, Client, Server, eventually

NAME = f"{PARENT}/sweeps/s"
ENDED = (sweep_pb2.Sweep.SUCCEEDED, sweep_pb2.Sweep.FAILED, sweep_pb2.Sweep.CANCELLED)


class SweepClient(Client):
    """Calls the server until it answers."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._sweeps = sweep_pb2_grpc.SweepServiceStub(self._channel)

    def create_sweep(self, points: int, parallel: int = 3, milliseconds: int = 300) -> sweep_pb2.Sweep:
        """A sweep over densities, whose jobs share a baseline."""
        axis = sweep_pb2.Axis(parameter="density")
        for number in range(points):
            axis.values.add(number_value=round(0.05 + 0.01 * number, 2))
        base = {
            "model": "bert-base-uncased",
            "task": "text-classification",
            "dataset": self._dataset,
            "magnitude": {},
            "teacher": {"none": True},  # the baseline's metrics are shared: what the stand-in makes is no model
            "training": {"max_steps": milliseconds},
            "seed": 1,
        }
        policy = {"resources": {"cpus": 0.01}, "max_attempts": 10}
        sweep = {"spec": {"base": base, "job_policy": policy, "axes": [axis]}, "policy": {"parallel": parallel}}
        request = sweep_pb2.CreateSweepRequest(parent=PARENT, sweep_id="s", sweep=sweep, request_id="r")
        return self._call(self._sweeps.CreateSweep, request)

    def sweep(self) -> sweep_pb2.Sweep:
        """Reads the sweep."""
        return self._call(self._sweeps.GetSweep, sweep_pb2.GetSweepRequest(name=NAME))

    def cancel_sweep(self) -> None:
        """Cancels the sweep."""
        self._call(self._sweeps.CancelSweep, sweep_pb2.CancelSweepRequest(name=NAME))

    def retry_sweep(self) -> None:
        """Runs again what has no result."""
        self._call(self._sweeps.RetrySweep, sweep_pb2.RetrySweepRequest(name=NAME))

    def points(self) -> list[sweep_pb2.SweepPoint]:
        """All points, a few a page."""
        found: list[sweep_pb2.SweepPoint] = []
        request = sweep_pb2.ListSweepPointsRequest(parent=NAME, page_size=3)
        while True:
            page = self._call(self._sweeps.ListSweepPoints, request)
            found += page.points
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    def watch(self) -> bool:
        """Watches the sweep until the stream is cut. Returns whether it has ended."""
        try:
            for message in self._sweeps.WatchSweep(sweep_pb2.WatchSweepRequest(name=NAME), timeout=5):
                if message.done:
                    assert message.sweep.state in ENDED
                    return True
        except grpc.RpcError as error:
            if error.code() not in TRANSIENT:
                raise
        return False


class Reader(threading.Thread):
    """Lists the points and watches the sweep again and again, until it has ended."""

    def __init__(self, server: Server, points: int) -> None:
        super().__init__(daemon=True)
        self._server, self._points = server, points
        self._failure: BaseException | None = None
        self.lists = 0

    def run(self) -> None:
        client = SweepClient(self._server)
        done: dict[int, str] = {}
        try:
            while not client.watch():
                listed = client.points()
                assert [point.number for point in listed] == list(range(1, self._points + 1))
                artifacts = {point.number: point.artifact for point in listed if point.artifact}
                assert done.items() <= artifacts.items(), "a result is gone"
                done, self.lists = artifacts, self.lists + 1
        except BaseException as error:
            self._failure = error
        finally:
            client.close()

    def finish(self) -> None:
        """Waits for its end. Raises what went wrong."""
        self.join(120)
        if self._failure is not None:
            raise self._failure
        assert not self.is_alive(), "the watch has no end"


def wait_ended(server: Server) -> sweep_pb2.Sweep:
    """Waits until the sweep has ended, and nothing runs any more."""
    client = SweepClient(server)
    eventually(lambda: client.sweep().state in ENDED, 120, lambda: f"{client.sweep()}\n{server.tail()}")
    eventually(lambda: not server.processes(), 20, lambda: f"left behind: {server.processes()}\n{server.tail()}")
    sweep = client.sweep()
    failures = [point.failure for point in client.points() if point.HasField("failure")]
    assert not failures, f"{failures[:2]}\n{server.tail()}"
    client.close()
    return sweep


def check_sweep(server: Server, points: int) -> Counter[str]:
    """Asserts that nothing is lost or doubled. Returns how many jobs of points ended in which state."""
    engine = create_engine(server.database)
    with engine.connect() as conn:
        (sweep,) = conn.execute(select(SWEEPS)).all()
        rows: list[Any] = list(conn.execute(select(POINTS).order_by(POINTS.c.number)))
        jobs = {row.uid: row for row in conn.execute(select(JOBS))}
        events = conn.execute(select(SWEEP_EVENTS.c.sequence).order_by(SWEEP_EVENTS.c.sequence)).scalars().all()
    engine.dispose()
    assert list(events) == list(range(1, sweep.last_sequence + 1))
    assert [row.number for row in rows] == list(range(1, points + 1))
    taken = [row.job_uid for row in rows if row.job_uid is not None]
    assert len(taken) == len(set(taken)), "two points have one job"
    own = {uid for uid, job in jobs.items() if job.sweep_id == "s"}
    assert own == set(taken), "a job is of no point"
    assert [jobs[uid].job_id for uid in taken] == [f"s-{row.number:04d}" for row in rows if row.job_uid is not None]
    assert all(job.state in TERMINAL for job in jobs.values())
    teachers = [job for uid, job in jobs.items() if uid not in own]
    assert len({job.teacher_key for job in teachers if job.teacher_key}) <= 1
    assert all(job.state != "SUCCEEDED" or job.artifact_sha256 for job in jobs.values())
    states = Counter(jobs[uid].state for uid in taken)
    assert states["SUCCEEDED"] == sum(row.result is not None for row in rows), "a result was not kept"
    COUNTS["jobs"] += len(jobs)
    COUNTS["sweeps"] += 1
    return states
