"""Two sweep controllers over one database, users and workers, one write at a time, and the invariants after each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, select
from tests.unit.service.conftest import ScriptedExecutor, TestClock
from tests.unit.service.model_gate import Activity, Fault, GatedDatabase

from mvprune.v1 import sweep_pb2
from mvprune_service.api.access.errors import ApiError
from mvprune_service.db import lifecycle, sweep_records
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.leases import Fence
from mvprune_service.db.tables.jobs import JOBS
from mvprune_service.db.tables.sweeps import POINTS, SWEEP_EVENTS, SWEEPS
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.machine import TERMINAL, JobState
from mvprune_service.domain.sweeping import ENDED, LIVE, PointState, SweepState, point_state
from mvprune_service.ids import JobName

from .gym import Gym

PLANES = 2
COMMANDS = ("Cancel", "Cancel", "Pause", "Resume", "Retry", "Extend", "Policy", "Delete")
OUTCOMES = ("start", "start", "start", "succeed", "succeed", "fail", "unreachable")
_ROUNDS = 80
_QUEUE = 6
_Work = Coroutine[Any, Any, Any]


@dataclass(frozen=True)
class Snapshot:
    """The rows of sweeps, points and jobs, at one moment."""

    sweeps: dict[str, Row[Any]]
    points: dict[str, dict[int, Row[Any]]]  # by sweep and number
    jobs: dict[str, Row[Any]]
    events: dict[str, list[Row[Any]]]

    def live_of(self, sweep: Row[Any]) -> list[str]:
        """Ids of the jobs of a sweep that have not ended."""
        return [
            job.job_id for job in self.jobs.values() if job.sweep_id == sweep.sweep_id and job.state not in TERMINAL
        ]


def take(db: Database) -> Snapshot:
    """Reads everything."""
    with db.engine.connect() as conn:
        sweeps = {row.uid: row for row in conn.execute(select(SWEEPS).order_by(SWEEPS.c.create_us))}
        points: dict[str, dict[int, Row[Any]]] = {uid: {} for uid in sweeps}
        for row in conn.execute(select(POINTS).order_by(POINTS.c.number)):
            points[row.sweep_uid][row.number] = row
        events: dict[str, list[Row[Any]]] = {uid: [] for uid in sweeps}
        for row in conn.execute(select(SWEEP_EVENTS).order_by(SWEEP_EVENTS.c.sequence)):
            events[row.sweep_uid].append(row)
        jobs = conn.execute(select(JOBS).order_by(JOBS.c.create_us, JOBS.c.job_id))
        return Snapshot(sweeps, points, {row.uid: row for row in jobs}, events)


def check_moment(seen: Snapshot, db: Database) -> None:
    """What must be true of every state."""
    taken = [point.job_uid for own in seen.points.values() for point in own.values() if not point.reused]
    known = [uid for uid in taken if uid is not None]
    assert len(known) == len(set(known)), "two points have one job"
    orphans = [job.job_id for job in seen.jobs.values() if job.sweep_id is not None and job.uid not in known]
    assert not orphans, f"{orphans} are of no point"
    for uid, sweep in seen.sweeps.items():
        own = seen.points[uid]
        assert list(own) == list(range(1, len(own) + 1))
        sequences = [event.sequence for event in seen.events[uid]]
        assert sequences == list(range(1, sweep.last_sequence + 1)), "events have gaps"
        assert (sweep.end_us is not None) == (sweep.state in ENDED)
        if sweep.state in ENDED:
            assert not seen.live_of(sweep), f"{sweep.sweep_id} is {sweep.state}, and {seen.live_of(sweep)} live"
            _check_baselines(seen, own)
            states = [_state(point, seen) for point in own.values()]
            assert not set(states) & {*LIVE, PointState.PENDING}, f"{sweep.sweep_id} is {sweep.state}: {states}"
        _check_front(sweep, own)
        _check_counts(seen, own, uid, db)


def _check_baselines(seen: Snapshot, points: dict[int, Row[Any]]) -> None:
    awaited = {job.teacher_uid for job in seen.jobs.values() if job.state not in TERMINAL}
    for point in points.values():
        job = seen.jobs.get(point.job_uid or "")
        teacher = seen.jobs.get(job.teacher_uid or "") if job else None
        left = teacher is not None and teacher.state not in TERMINAL and teacher.uid not in awaited
        assert not left, f"the sweep has ended, and {teacher and teacher.job_id} is left behind"


def _check_front(sweep: Row[Any], points: dict[int, Row[Any]]) -> None:
    if sweep_pb2.SweepSpec.FromString(sweep.spec).HasField("tickets"):
        assert (sweep.front, sweep.recommendation) == ([], None)
        return
    scores = {
        number: (-point.result["metrics"]["eval/accuracy"], point.result["total_bytes"])
        for number, point in points.items()
        if point.result is not None
    }

    def is_dominated(number: int, by: Sequence[int]) -> bool:
        mine = scores[number]
        return any(scores[x] != mine and all(a <= b for a, b in zip(scores[x], mine, strict=True)) for x in by)

    assert not [number for number in sweep.front if is_dominated(number, sweep.front)], "a dominated point on the front"
    if sweep.state in ENDED:
        best = [number for number in scores if not is_dominated(number, list(scores))]
        assert sorted(sweep.front) == best, f"the front is {sweep.front}, the best are {best}"
        assert (sweep.recommendation is not None) == bool(scores)


def _check_counts(seen: Snapshot, points: dict[int, Row[Any]], uid: str, db: Database) -> None:
    with db.engine.connect() as conn:
        counts = sweep_records.counts_of(conn, uid)
    states = [_state(point, seen) for point in points.values()]
    assert {state: counts[state] for state in PointState} == {state: states.count(state) for state in PointState}


def _state(point: Row[Any], seen: Snapshot) -> PointState:
    job = seen.jobs.get(point.job_uid or "")
    return point_state(
        job=job.state if job is not None else None,
        had_job=bool(point.job_id),
        again=point.again,
        skipped=bool(point.skip_reason),
        has_result=point.result is not None,
    )


def check_change(before: Snapshot, after: Snapshot, *, expands: bool) -> None:
    """What must be true of every change; `expands`: made by a sweep controller."""
    for uid, old in before.sweeps.items():
        new = after.sweeps.get(uid)
        if new is None:
            assert not expands
            assert old.state in ENDED
            continue
        for number, point in before.points[uid].items():
            later = after.points[uid][number]
            assert (later.cell, later.spec_sha256) == (point.cell, point.spec_sha256), "a point changed"
            if point.result is not None:
                assert later.result == point.result, "a result changed"
                assert not later.again, "what has a result runs again"
                assert later.job_uid in (point.job_uid, None)
        if expands:
            parallel = sweep_pb2.SweepPolicy.FromString(old.policy).parallel
            live, now = len(before.live_of(old)), len(after.live_of(old))
            assert now <= max(live, parallel), f"{now} jobs live, of {parallel} that may"
            assert old.state is SweepState.ACTIVE or now <= live, f"a job was created while {old.state}"
    queued = [job for job in after.jobs.values() if job.state is JobState.QUEUED]
    assert len(queued) <= max(_QUEUE, sum(job.state is JobState.QUEUED for job in before.jobs.values()))


class Server:
    """One server's controller and API."""

    def __init__(self, url: str, clock: TestClock) -> None:
        self._url, self._clock = url, clock
        self.start()

    def start(self) -> None:
        """Makes new objects of everything."""
        self.db = GatedDatabase(self._url, self._clock)
        gym = Gym(self.db, ScriptedExecutor(), queue=_QUEUE, clock=self._clock)
        self.controller, self.servicer = gym.controller, gym.servicer


@dataclass(frozen=True)
class Doing:
    """A step of a sweep controller, or a call, that has begun."""

    plane: int
    what: str
    activity: Activity


class World:
    """Everything that an example has."""

    def __init__(self, url: str) -> None:
        self.clock = TestClock()
        self.planes = [Server(url, self.clock) for _ in range(PLANES)]
        self.db = Database(url, self.clock)
        self.workers = Gym(
            self.db, ScriptedExecutor(), lambda spec: 0.6 + 0.3 * spec.target_density**0.5, clock=self.clock
        )
        self._doing: list[Doing] = []
        self._fences: dict[str, Fence] = {}
        self._requests: dict[str, sweep_pb2.CreateSweepRequest] = {}
        self._made: dict[str, str] = {}  # request id to uid
        self._now = take(self.db)

    async def aclose(self) -> None:
        """Ends what is left."""
        for doing in self._doing:
            await doing.activity.kill()
        for server in self.planes:
            server.db.close()
        self.db.close()

    async def create(self, plane: int, request: sweep_pb2.CreateSweepRequest, faults: Sequence[Fault]) -> None:
        """A user creates a sweep."""
        request.request_id = f"request-{len(self._requests)}"
        self._requests[request.request_id] = request
        await self.repeat(plane, len(self._requests) - 1, faults)

    async def repeat(self, plane: int, which: int, faults: Sequence[Fault]) -> None:
        """A user who got no answer creates it again."""
        request = list(self._requests.values())[which % len(self._requests)]

        async def call() -> None:
            made = await _ask(self.planes[plane].servicer.CreateSweep, request)
            if made is not None:
                known = self._made.setdefault(request.request_id, made.uid)
                assert known == made.uid or known not in self._now.sweeps, f"{request.request_id} made two sweeps"
                self._made[request.request_id] = made.uid

        await self._do(plane, request.request_id, call, faults)

    async def step(self, plane: int, faults: Sequence[Fault], *, leave: bool) -> None:
        """A round of a sweep controller; with `leave`, only as many writes of it as there are faults."""
        await self._do(plane, "controller", self.planes[plane].controller.step, faults, leave=leave)

    async def both(self) -> None:
        """Rounds of all sweep controllers at the same time."""
        before = self._now
        await asyncio.gather(*(server.controller.step() for server in self.planes))
        self._look(before, expands=True)

    async def crash(self, plane: int) -> None:
        """A server ends between two writes, and starts again."""
        for doing in [x for x in self._doing if x.plane == plane]:
            await doing.activity.kill()
            self._doing.remove(doing)
        self.planes[plane].db.close()
        self.planes[plane].start()

    async def go_on(self, which: int, faults: Sequence[Fault]) -> None:
        """What was left in the middle goes on."""
        if self._doing:
            await self._advance(self._doing[which % len(self._doing)], faults, leave=False)

    async def command(self, plane: int, which: int, command: str, choice: int, faults: Sequence[Fault]) -> None:
        """A user changes a sweep."""
        if not self._now.sweeps:
            return
        sweep = list(self._now.sweeps.values())[which % len(self._now.sweeps)]
        name, kind = (
            f"projects/p/sweeps/{sweep.sweep_id}",
            "UpdateSweepPolicy" if command == "Policy" else f"{command}Sweep",
        )
        request = getattr(sweep_pb2, f"{kind}Request")(name=name)
        if command == "Extend":
            request.points.add().update({"density": 0.01 * (1 + choice)})
        elif command == "Policy":
            request.policy.parallel = 1 + choice % 4
        call = getattr(self.planes[plane].servicer, kind)
        await self._do(plane, f"{kind} {name}", lambda: _ask(call, request), faults)

    async def child(self, which: int, *, deletes: bool) -> None:
        """A user cancels or deletes a job."""
        jobs = [job for job in self._now.jobs.values() if (job.state in TERMINAL) == deletes]
        if not jobs:
            return
        job = jobs[which % len(jobs)]
        if deletes:

            def delete(tx: Tx) -> None:
                found = lifecycle.lock_job_named(tx, JobName("p", job.job_id))
                assert found is not None
                lifecycle.remove(tx, found)

            await self.db.write(delete)
        else:
            await self.workers.cancel_job(job.job_id)
        self._look(self._now)

    async def work(self, which: int, outcome: str) -> None:
        """A worker starts a job or ends one; students of teachers that have ended may start."""
        await self.workers.resolve()
        before = self._now
        self._now = take(self.db)
        running = [job for job in self._now.jobs.values() if job.job_id in self._fences and job.state not in TERMINAL]
        stopping = [job for job in running if job.state is JobState.CANCELLING]
        waiting = await self.workers.queued()
        if stopping and outcome in ("start", "fail"):
            await self.workers.stopped(self._fences.pop(stopping[which % len(stopping)].job_id))
        elif outcome == "start" and waiting:
            job_id = waiting[which % len(waiting)].job_id
            self._fences[job_id] = await self.workers.start(job_id)
        elif running and outcome != "start":
            job = running[which % len(running)]
            fence = self._fences.pop(job.job_id)
            if outcome == "succeed" or job.state is JobState.CANCELLING:  # a whole result wins
                await self.workers.finish(job.job_id, fence)
            else:
                reason = FailureReason.NAN_LOSS if outcome == "fail" else FailureReason.DENSITY_NOT_REACHED
                await self.workers.end(fence, reason)
        self._look(before)

    async def pass_time(self, which: int) -> None:
        """Time passes: budgets are used."""
        self.clock.pass_seconds(20 * which)

    async def heal(self) -> None:
        """Everything works, nothing is paused: then every sweep must end."""
        while self._doing:
            await self.go_on(0, ())
        for number in range(_ROUNDS):
            for uid, sweep in self._now.sweeps.items():
                if sweep.state is SweepState.PAUSED:
                    await self.command(0, list(self._now.sweeps).index(uid), "Resume", 0, ())
            await self.step(number % PLANES, (), leave=False)
            for _ in range(2 * _QUEUE):
                await self.work(number, "start")
                await self.work(number, "succeed")
            if all(sweep.state in ENDED for sweep in self._now.sweeps.values()):
                return
        raise AssertionError([(row.sweep_id, row.state, row.state_reason) for row in self._now.sweeps.values()])

    async def _do(
        self, plane: int, what: str, work: Callable[[], _Work], faults: Sequence[Fault], *, leave: bool = False
    ) -> None:
        begun = [x for x in self._doing if x.what == what and x.plane == plane]
        if not begun:
            begun = [Doing(plane, what, Activity(work()))]
            self._doing += begun
            await begun[0].activity.to_write()
        await self._advance(begun[0], faults, leave=leave)

    async def _advance(self, doing: Doing, faults: Sequence[Fault], *, leave: bool) -> None:
        for fault in faults:
            await self._write(doing, fault)
        while not doing.activity.done and not leave:
            await self._write(doing, Fault.NONE)
        if doing.activity.done:
            self._doing.remove(doing)

    async def _write(self, doing: Doing, fault: Fault) -> None:
        before = self._now
        await doing.activity.write(fault)
        self._look(before, expands=doing.what == "controller")

    def _look(self, before: Snapshot, *, expands: bool = False) -> None:
        self._now = after = take(self.db)
        check_moment(after, self.db)
        check_change(before, after, expands=expands)


async def _ask(call: Callable[..., _Work], request: Any) -> Any:
    try:
        return await call(request, None)
    except ApiError as error:
        if error.code.name not in ("NOT_FOUND", "FAILED_PRECONDITION", "ALREADY_EXISTS", "INVALID_ARGUMENT"):
            raise
        return None
