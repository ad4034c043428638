"""Two control planes, their workers and their users, one write at a time, with the invariants checked after each."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mvprune.sources.references import Roots
from mvprune.v1 import job_pb2, worker_pb2
from mvprune_service.api.access.errors import ApiError
from mvprune_service.api.checks.lost_chunks import LostChunks
from mvprune_service.api.feeds import Feeds
from mvprune_service.api.jobs import JobServicer
from mvprune_service.api.log_reader import LogReader
from mvprune_service.api.submissions import Submissions, capacity_of
from mvprune_service.api.worker import WorkerServicer
from mvprune_service.changes import Changes
from mvprune_service.control.dispatcher import Dispatcher
from mvprune_service.control.finalizer import Finalizer
from mvprune_service.control.janitor import Janitor
from mvprune_service.control.log_mover import LogMover
from mvprune_service.control.ownership import Ownership
from mvprune_service.control.scheduler import Scheduler
from mvprune_service.control.watchdog import Watchdog
from mvprune_service.db.quotas import QueueQuota
from mvprune_service.domain.machine import TERMINAL, Command, JobState
from mvprune_service.ids import JobName
from mvprune_service.observability.probes import Problems

from . import model_invariants
from .beating import steady
from .conftest import TestClock
from .model_gate import Activity, Fault, GatedDatabase
from .model_neighbours import Cluster, MemoryStore
from .model_worker import Call, Worker

LOOPS = ("scheduler", "dispatcher", "finalizer", "watchdog", "logs", "janitor")
COMMANDS = ("repeat", "cancel", "retry", "delete")  # of users, about jobs that are there
CHANGES = (
    *(f"time {seconds}" for seconds in (1, 6, 16, 61, 400, 90_000)),
    *("cluster away", "cluster deaf", "cluster forgets", "cluster well", "store away", "store well", "store well"),
)
PLANES = 2
_KEY = b"k" * 32
_LEASE = 15.0
_DAYS = 10_000.0  # longer than any example: nothing is forgotten
_ROUNDS = 60
_ROUND_SECONDS = 10
_Work = Coroutine[Any, Any, Any]


class Plane:
    """One server. It can crash, which leaves the database and nothing else."""

    def __init__(self, number: int, url: str, cluster: Cluster, store: MemoryStore, clock: TestClock) -> None:
        self._name = f"server-{number}"
        self._parts = url, cluster, store, clock
        self.start()

    def start(self) -> None:
        """Makes new objects of everything."""
        url, cluster, store, clock = self._parts
        self.db = db = GatedDatabase(url, clock)
        submissions = Submissions(db, Roots(), capacity_of(cluster), quota=QueueQuota(100))
        changes = Changes()
        self.jobs = JobServicer(db, changes, Feeds(db, changes), submissions, LogReader(db, store))
        self.worker = WorkerServicer(db, _KEY, LostChunks(db, store), pace=steady(db, _LEASE))
        janitor = Janitor(
            db,
            cluster,
            store,
            Problems(),
            server=self._name,
            request_days=_DAYS,
            checkpoint_days=_DAYS,
            upload_days=_DAYS,
            quarantine_days=0,
            clock=clock,
        )
        self.steps: dict[str, Callable[[], _Work]] = {
            "scheduler": Scheduler(db, cluster, clock=clock).step,
            "dispatcher": Dispatcher(db, cluster, Ownership(db, store), _KEY, {}, python="python").step,
            "watchdog": Watchdog(db, cluster, store, pace=steady(db, _LEASE), problems=Problems(), clock=clock).step,
            "finalizer": Finalizer(db, store).step,
            "logs": LogMover(db, store, clock).step,
            "janitor": janitor.step,
        }


@dataclass(frozen=True)
class Doing:
    """Something that has begun: a loop's step or a call, on one plane."""

    plane: int
    what: str
    activity: Activity
    worker: Worker | None = None


class World:
    """Everything that an example has. Jobs are spoken of by their place in the order of their creation."""

    def __init__(self, url: str, folder: Path) -> None:
        self.clock = TestClock()
        self.store = MemoryStore(self.clock)
        self.cluster = Cluster(self.clock)
        self.planes = [Plane(number, url, self.cluster, self.store, self.clock) for number in range(PLANES)]
        self._folder = folder
        self._doing: list[Doing] = []
        self._workers: list[Worker] = []
        self._requests: list[job_pb2.CreateJobRequest] = []
        self._accepted: dict[str, str] = {}  # request id → uid
        self._cancelled: dict[str, int] = {}  # uid → events known when it was accepted
        self._now = self._look()

    async def aclose(self) -> None:
        """Ends what is left."""
        for doing in self._doing:
            await doing.activity.kill()
        for plane in self.planes:
            plane.db.close()

    # What can happen.

    async def rest(self) -> None:
        """Nothing."""

    async def turn(self, change: str) -> None:
        """The world around the servers becomes another."""
        kind, _, what = change.partition(" ")
        if kind == "time":
            self.clock.pass_seconds(float(what))
        elif kind == "store":
            self.store.away = what == "away"
        elif what == "forgets":
            self.cluster.restart_head()
        else:
            self.cluster.away, self.cluster.loses_answers = what == "away", what == "deaf"

    async def round(self, plane: int) -> None:
        """A step of every loop that moves jobs on, and a heartbeat of every worker."""
        for loop in LOOPS[:-1]:
            await self.step(plane, loop, ())
        await self.all_work(plane, "heartbeat", 0)

    async def lose(self, plane: int) -> None:
        """The cluster forgets its processes, which go on, and their leases run out."""
        self.cluster.restart_head()
        for seconds in (_LEASE, _LEASE):
            self.clock.pass_seconds(seconds + 1)
            await self.step(plane, "watchdog", ())
        await self.round(plane)
        await self.round(plane)

    async def step(self, plane: int, loop: str, faults: Sequence[Fault], *, leave: bool = False) -> None:
        """A step of a loop; with `leave`, only as many writes of it as there are faults."""
        await self._do(plane, loop, self.planes[plane].steps[loop], faults, leave=leave)

    async def go_on(self, which: int, faults: Sequence[Fault]) -> None:
        """What was left in the middle goes on."""
        if self._doing:
            await self._advance(self._doing[which % len(self._doing)], faults, leave=False)

    async def crash(self, plane: int) -> None:
        """A server ends between two writes, and starts again."""
        for doing in [x for x in self._doing if x.plane == plane]:
            await doing.activity.kill()
            self._doing.remove(doing)
        self.planes[plane].db.close()
        self.planes[plane].start()

    async def create(self, plane: int, request: job_pb2.CreateJobRequest, faults: Sequence[Fault]) -> None:
        """A user submits a job."""
        request.request_id = f"request-{len(self._requests)}"
        self._requests.append(request)
        await self.repeat(plane, len(self._requests) - 1, faults)

    async def repeat(self, plane: int, which: int, faults: Sequence[Fault]) -> None:
        """A user who did not hear an answer submits the job again."""
        if self._requests:
            request = self._requests[which % len(self._requests)]
            await self._do(plane, request.request_id, lambda: self._create(plane, request), faults)

    async def ask(self, plane: int, which: int, command: str, choice: int, faults: Sequence[Fault]) -> None:
        """A user changes a job."""
        jobs, servicer = list(self._now.jobs.values()), self.planes[plane].jobs
        if command == "repeat":
            await self.repeat(plane, which, faults)
        if command == "repeat" or not jobs:
            return
        name = str(JobName("p", jobs[which % len(jobs)].job_id))

        async def call() -> None:
            if command == "cancel":
                await self._cancel(servicer, job_pb2.CancelJobRequest(name=name, grace={"seconds": choice}))
            elif command == "retry":
                await self._ask(servicer.RetryJob, job_pb2.RetryJobRequest(name=name, from_scratch=choice % 2 == 0))
            else:
                await self._ask(servicer.DeleteJob, job_pb2.DeleteJobRequest(name=name))

        await self._do(plane, f"{command} {name}", call, faults)

    async def work(
        self, plane: int, which: int, action: str, choice: int, faults: Sequence[Fault], *, leave: bool = False
    ) -> None:
        """A worker does something, and tells this plane."""
        self._meet_workers()
        alive = [worker for worker in self._workers if worker.process.alive]
        if alive:
            await self._work(plane, alive[which % len(alive)], action, choice, faults, leave=leave)

    async def all_work(self, plane: int, action: str, choice: int) -> None:
        """Every worker does it."""
        self._meet_workers()
        for worker in self._workers:
            if worker.process.alive:
                await self._work(plane, worker, action, choice, ())

    async def heal(self) -> None:
        """Everything can be reached and works: then every job must end, and nothing may go on after it."""
        self.store.away = self.cluster.away = self.cluster.loses_answers = False
        while self._doing:
            await self.go_on(0, ())
        for number in range(_ROUNDS):
            for loop in LOOPS:
                await self.step(number % PLANES, loop, ())
            for action in ("heartbeat", "finish"):
                await self.all_work(number % PLANES, action, number)
            self.clock.pass_seconds(_ROUND_SECONDS)
            if not self._unfinished():
                break
        assert not self._unfinished(), f"after {_ROUNDS} rounds: {self._unfinished()}"
        self._check_promises()

    # How it happens.

    async def _work(
        self, plane: int, worker: Worker, action: str, choice: int, faults: Sequence[Fault], *, leave: bool = False
    ) -> None:
        def act() -> _Work:
            return worker.act(action, choice, self.planes[plane].worker)

        await self._do(plane, repr(worker), act, faults, leave=leave, worker=worker)

    async def _do(
        self,
        plane: int,
        what: str,
        work: Callable[[], _Work],
        faults: Sequence[Fault],
        *,
        leave: bool = False,
        worker: Worker | None = None,
    ) -> None:
        """Begins something, or goes on with it if it has begun: none of them happens twice at a time."""
        begun = [x for x in self._doing if x.what == what and (x.plane == plane or worker is not None)]
        if not begun:
            doing = Doing(plane, what, Activity(work()), worker)
            self._doing.append(doing)
            begun = [doing]
            await doing.activity.to_write()
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
        self._now = after = self._look()
        model_invariants.check_moment(after, self.store, self.clock.now)
        deletes = doing.what == "janitor" or doing.what.startswith("delete ")
        model_invariants.check_change(before, after, deletes=deletes)
        if doing.worker is not None and not before.is_live(doing.worker.attempt_uid):
            assert not before.differences(after), f"{doing.worker} is stale and changed {before.differences(after)}"

    def _look(self) -> model_invariants.Snapshot:
        return model_invariants.take(self.planes[0].db.engine)

    def _name(self, which: int) -> str | None:
        jobs = list(self._now.jobs.values())
        return str(JobName("p", jobs[which % len(jobs)].job_id)) if jobs else None

    def _meet_workers(self) -> None:
        for number in range(len(self._workers), len(self.cluster.processes)):
            process = self.cluster.processes[number]
            self._workers.append(Worker(process, number, self.store, self._folder, self._check_claim))

    # What users are told.

    async def _ask(self, call: Callable[..., _Work], request: Any) -> Any:
        try:
            return await call(request, Call())
        except ApiError as error:
            if error.code.name not in ("NOT_FOUND", "FAILED_PRECONDITION", "INVALID_ARGUMENT", "ALREADY_EXISTS"):
                raise
            return None

    async def _create(self, plane: int, request: job_pb2.CreateJobRequest) -> None:
        job = await self._ask(self.planes[plane].jobs.CreateJob, request)
        if job is None:
            return
        known = self._accepted.setdefault(request.request_id, job.uid)
        assert known == job.uid or known not in self._look().jobs, f"{request.request_id} made two jobs"
        self._accepted[request.request_id] = job.uid

    async def _cancel(self, servicer: JobServicer, request: job_pb2.CancelJobRequest) -> None:
        job = await self._ask(servicer.CancelJob, request)
        if job is not None:
            self._cancelled[job.uid] = len(self._look().events.get(job.uid, ()))

    # What must have come of it.

    def _check_claim(self, worker: Worker, answer: worker_pb2.ClaimAttemptResponse) -> None:
        """A claim is one runner's, and is told what to resume from."""
        holders = [x for x in self._workers if x.claimed and x.attempt_uid == worker.attempt_uid]
        assert not [x for x in holders if x is not worker], f"{worker} and {holders} hold the same lease"
        seen = self._look()
        attempt = seen.attempts.get(worker.attempt_uid)
        if attempt is None or attempt.end_us is not None:
            return  # the answer comes late
        job, events = seen.jobs[attempt.job_uid], seen.events[attempt.job_uid]
        scratch = max((x.time_us for x in events if x.details.get("from_scratch")), default=0)
        before = {x.uid for x in seen.attempts_of(job.uid)}
        committed = [
            step
            for other in self._workers
            if other.attempt_uid in before
            for time, step in other.committed
            if scratch < time
        ]
        told = [point.step for point in answer.checkpoints]
        assert told == sorted(told, reverse=True)
        assert max(told, default=0) >= max(committed, default=0), f"{worker} resumes from {told} of {committed}"
        for point in answer.checkpoints:
            assert seen.checkpoints[point.attempt_uid, point.step].create_us > scratch, "a forgotten checkpoint"
        assert answer.accumulation_factor == job.accumulation_factor

    def _unfinished(self) -> list[str]:
        jobs = [f"{job.job_id} is {job.state}" for job in self._now.jobs.values() if job.state not in TERMINAL]
        self._meet_workers()
        return jobs + [f"{worker} still runs" for worker in self._workers if worker.process.alive]

    def _check_promises(self) -> None:
        for uid, known in self._cancelled.items():
            later = self._now.events.get(uid, ())[known:]
            if uid in self._now.jobs and not any(event.type == Command.RETRY for event in later):
                assert self._now.jobs[uid].state in (JobState.CANCELLED, JobState.SUCCEEDED), "a cancel was lost"
