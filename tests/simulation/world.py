"""One history: servers, workers and users, on virtual time, with the invariants checked after every effect."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from mvprune.v1 import worker_pb2
from mvprune_service.control import collector
from mvprune_service.db import attempt_logs
from mvprune_service.domain.machine import TERMINAL, AttemptState
from mvprune_service.domain.sweeping import ENDED
from mvprune_service.executors.base import Launch
from mvprune_service.outbound import Outbound

from . import invariants, neighbours, other_invariants
from .database import Storage, engine
from .happenings import OFTEN, SERVERS, Happening
from .loop import SimulatedLoop
from .neighbours import Cluster, Objects, Running, SimulatedStore
from .patches import simulated
from .servers import ACTING, Channel, Complaints, Server
from .snapshot import Snapshot, take, touched
from .users import Users
from .webhooks import Receiver
from .wire import CURRENT, Fault, FaultKind, Wire
from .workers import Worker

_HEALED_SECONDS = 4_000.0  # in which everything must end
_LOOK_SECONDS = 10.0
_SECOND = 1_000_000
_COLLECTED = {"GRACE_US": 600 * _SECOND, "_EVERY_US": 300 * _SECOND}  # half the grace is FRESH_US
_SHORT_LOGS = {"KEPT_BYTES": 4, "LONG_BYTES": 8, "CHUNK_BYTES": 16}  # the logs of the simulation are long


@dataclass(frozen=True)
class Outcome:
    """What became of a history.

    Attributes:
        failure: what does not hold; None if all does.
        trace: the effects, in order.
    """

    failure: BaseException | None
    trace: Sequence[str]


class World:
    """Everything that a history has."""

    def __init__(self, loop: SimulatedLoop, seed: str) -> None:
        self.wire = Wire(loop, seed, self._check)
        self.storage = Storage(engine())
        self.objects = Objects()
        self.cluster = Cluster(self._launch)
        self.servers = [
            Server(number, self.storage, self.objects, self.cluster, self.wire) for number in range(SERVERS)
        ]
        for server in self.servers:
            server.announced = self._announced(server)
        self.channel = Channel(self.wire, self.servers)
        self.receiver = Receiver(self.wire, lambda: self._now)
        self.channel.began = lambda method, requests: self._beating(method, requests, 1)
        self.channel.ended = lambda method, requests: self._beating(method, requests, -1)
        self._can_be_away: Mapping[str, Objects | Cluster | Channel | Receiver] = {
            "store": self.objects,
            "cluster": self.cluster,
            "workers": self.channel,
            "receiver": self.receiver,
        }
        self.workers: list[Worker] = []
        self._used: list[Server] = []  # servers that have been started
        self._beats: Counter[str] = Counter()  # heartbeats under way, by attempt
        self._changed: Counter[tuple[int, str]] = Counter()  # commits not announced yet, by server and job
        self._is_well = False
        self._changes = self.storage.changes
        self._now = take(self.storage.driver)
        self.user = self.wire.process("user")
        self._context = contextvars.copy_context()
        self._context.run(CURRENT.set, self.user)
        self.users = Users(self.channel, lambda: self._now)

    # What can happen.

    def start(self, server: int, cleans: str) -> None:
        """A server starts; `cleans`: how often it has a janitor's step."""
        self.servers[server].cleans = cleans
        self._used.append(self.servers[server])
        self.servers[server].start()

    def crash(self, server: int, seconds: float) -> None:
        """A server ends, and starts again after a while."""
        one = self.servers[server]
        self.wire.say(f"{one.process.name} is killed")
        one.process.kill()
        self._restart(one, seconds)

    def server_fault(self, server: int, kind: str, target: str, after: int, times: int) -> None:
        """A fault befalls what a server does."""
        for number in range(times):
            self.servers[server].process.arm(Fault(FaultKind(kind), target, after if number == 0 else 0))

    def worker_fault(self, which: int, kind: str, target: str, after: int) -> None:
        """A fault befalls what a worker does."""
        for worker in self._chosen(which):
            worker.process.arm(Fault(FaultKind(kind), target, after))

    def user_fault(self, kind: str, after: int) -> None:
        """A fault befalls a call of a user."""
        self.user.arm(Fault(FaultKind(kind), "call", after))

    def kill_worker(self, which: int) -> None:
        """A worker ends."""
        for worker in self._chosen(which):
            self.wire.say(f"{worker.process.name} is killed")
            worker.process.kill()

    def forget(self) -> None:
        """The cluster forgets its processes, which go on."""
        self.wire.say("the cluster forgets its processes")
        self.cluster.forget_all()

    def away(self, part: str, seconds: float) -> None:
        """The store or the cluster cannot be reached for a while, or workers cannot reach the servers."""
        self.wire.say(f"the {part} cannot be reached for {seconds} s")
        parts = [one for name, one in self._can_be_away.items() if name in part]
        for one in parts:
            one.away = True
            self.wire.loop.call_later(seconds, setattr, one, "away", False)

    def turn_clock(self, server: int, seconds: int) -> None:
        """The clock of a server is turned."""
        one = self.servers[server]
        self.wire.say(f"the clock of {one.process.name} is turned by {seconds} s")
        one.skew_us += seconds * 1_000_000
        one.process.skew_us = one.skew_us

    # How it happens.

    def happen(self, happening: Happening) -> None:
        """Begins it."""
        own: Callable[..., None] | None = getattr(self, happening.what, None)
        if own is not None:
            return own(**happening.given)
        work = getattr(self.users, happening.what)
        task = self._context.run(contextvars.copy_context).run(self.wire.loop.create_task, work(**happening.given))
        self.wire.watch(task)
        return None

    async def run(self, happenings: Sequence[Happening]) -> None:
        """All of it: in the end everything can be reached and works, and every job must end."""
        loop = self.wire.loop
        self._has_webhook = any(one.what == "webhook" for one in happenings)
        for server in self.servers:
            server.sends = self._has_webhook
        for one in happenings:
            loop.call_at(one.at, self.happen, one)
        last = max((one.at for one in happenings), default=0.0)
        while loop.time() < last:
            await asyncio.sleep(_LOOK_SECONDS)
            self._revive(_LOOK_SECONDS)
        self._heal()
        until = loop.time() + _HEALED_SECONDS
        while unfinished := self._unfinished():
            if loop.time() > until:
                return self.wire.fail(AssertionError(f"after {_HEALED_SECONDS:g} s: {'; '.join(unfinished)}"))
            self._revive(0.0)
            await asyncio.sleep(_LOOK_SECONDS)
        try:
            self.users.check_promises(self._now)
        except AssertionError as error:
            self.wire.fail(error)
        return None

    def _heal(self) -> None:
        self.wire.say("everything is well from now on")
        for part in self._can_be_away.values():
            part.away = False
        self._is_well = True
        for process in (*(server.process for server in self.servers), *(worker.process for worker in self.workers)):
            process.disarm()
        self.user.disarm()
        for worker in self.workers:
            worker.is_well = True
        if not self._used:
            self.start(0, cleans="seldom")
        self.receiver.is_well = True
        self.happen(Happening(0.0, "resume_sweeps", {}))
        if self._has_webhook:
            self.happen(Happening(0.0, "nudge_webhook", {}))

    def _revive(self, seconds: float) -> None:
        """Servers that faults have killed are started again."""
        for server in self._used:
            if not server.alive:
                self._restart(server, seconds)

    def _restart(self, server: Server, seconds: float) -> None:
        def start() -> None:
            if not server.alive:
                server.start()

        self.wire.loop.call_later(seconds, start)

    def _unfinished(self) -> list[str]:
        now = self._now
        jobs = [f"{job.job_id} is {job.state}" for job in now.jobs.values() if job.state not in TERMINAL]
        sweeps = [f"{sweep.sweep_id} is {sweep.state}" for sweep in now.sweeps.values() if sweep.state not in ENDED]
        workers = [f"{worker} still runs" for worker in self.workers if worker.alive]
        return jobs + sweeps + workers + self.receiver.unfinished()

    def _chosen(self, which: int) -> Iterable[Worker]:
        alive = [worker for worker in self.workers if worker.alive]
        return (alive[which % len(alive)],) if alive else ()

    def _launch(self, launch: Launch) -> Running:
        number = len(self.workers)
        store = SimulatedStore(self.objects, self.wire)
        worker = Worker(launch, number, store, self.channel, self.wire, self._claimed)
        worker.is_well = self._is_well
        self.workers.append(worker)
        return worker.running

    # What must hold.

    def _check(self, target: str, name: str) -> None:
        if target == "store":
            return
        if self._changes == self.storage.changes:
            return
        self._changes = self.storage.changes
        before, self._now = self._now, take(self.storage.driver)
        after = self._now
        self._note_changes(before, after)
        invariants.check_moment(after, self.objects)
        invariants.check_store(after, self.objects)
        other_invariants.check_sweeps(after)
        other_invariants.check_uploads(after, self.objects)
        self.receiver.check(before, after)
        gone = before.jobs.keys() - after.jobs.keys()
        may = name.startswith("janitor.") or all(map(self.users.may_delete, gone))
        invariants.check_change(before, after, deletes=may)
        other_invariants.check_sweep_change(before, after, expands=name == "expansion.expand")
        self._check_lost(before, after)
        if name == "heartbeats.heartbeats":  # of several workers
            self._check_beats(before, after)
        elif token := ACTING.get():
            tokens = {one.fencing_token for one in before.attempts.values() if before.is_live(one.uid)}
            changed = "" if token in tokens else before.differences(after)
            assert not changed, f"a worker whose lease is over changed {', '.join(changed)}"

    def _check_lost(self, before: Snapshot, after: Snapshot) -> None:
        """An attempt is given up only when its process has ended, or the cluster has forgotten it."""
        for uid, attempt in after.attempts.items():
            if attempt.state == AttemptState.LOST and before.is_live(uid):
                found = self.cluster.known.get(attempt.executor_ref)
                assert found is None or not found.alive, f"attempt {uid} is LOST, and its process runs"

    def _check_beats(self, before: Snapshot, after: Snapshot) -> None:
        for uid, attempt in after.attempts.items():
            if attempt != before.attempts.get(uid):
                assert self._beats[uid], f"the lease of attempt {uid} was extended, whose worker did not ask"

    def _beating(self, method: str, requests: Sequence[Any], change: int) -> None:
        if method.endswith("/Heartbeat"):
            lease = requests[0].lease
            for uid, attempt in self._now.attempts.items():
                name = f"projects/p/jobs/{self._job_id(attempt.job_uid)}/attempts/{attempt.number}"
                if (name, attempt.fencing_token) == (lease.attempt, lease.fencing_token):
                    self._beats[uid] += change

    def _job_id(self, uid: str) -> str:
        return self._now.jobs[uid].job_id if uid in self._now.jobs else ""

    def _note_changes(self, before: Snapshot, after: Snapshot) -> None:
        server = next((one.number for one in self.servers if one.process is CURRENT.get(None)), -1)
        for uid in touched(before, after):
            self._changed[server, uid] += 1

    def _announced(self, server: Server) -> Callable[[set[str] | None], None]:
        def announced(uids: set[str] | None) -> None:
            for uid in uids or ():
                if self._changed[server.number, uid] < 1:
                    self.wire.fail(AssertionError(f"job {uid} was announced before its change was committed"))
                self._changed[server.number, uid] -= 1

        return announced

    def _claimed(self, worker: Worker, answer: worker_pb2.ClaimAttemptResponse) -> None:
        try:
            self._check_claim(worker, answer)
        except AssertionError as error:
            self.wire.fail(error)

    def _check_claim(self, worker: Worker, answer: worker_pb2.ClaimAttemptResponse) -> None:
        """A claim is one runner's, and is told what to resume from."""
        holders = [one for one in self.workers if one.claimed and one.attempt_uid == worker.attempt_uid]
        assert not holders, f"{worker} and {holders} hold the same lease"
        seen = self._now
        attempt = seen.attempts.get(worker.attempt_uid)
        if attempt is None or attempt.end_us is not None:
            return  # the answer comes late
        events = seen.events[attempt.job_uid]
        scratch = max((event.sequence for event in events if "from_scratch" in event.details), default=0)
        before = {one.uid for one in seen.attempts_of(attempt.job_uid)}
        committed = [
            step for one in self.workers if one.attempt_uid in before for _, step in one.committed if not scratch
        ]
        told = [point.step for point in answer.checkpoints]
        assert max(told, default=0) >= max(committed, default=0), f"{worker} resumes from {told} of {committed}"


def tell(seed: str, happenings: Sequence[Happening]) -> Outcome:
    """Runs a history."""
    engine()  # made before chance is the history's
    loop = SimulatedLoop()
    asyncio.set_event_loop(loop)
    logger = logging.getLogger("mvprune_service")
    with simulated(loop, seed), _short_times(happenings), ExitStack() as posting:
        world = World(loop, seed)
        complaints = Complaints(world.wire)
        logger.addHandler(complaints)
        posting.enter_context(patch.multiple(Outbound, check=_any_url, post=staticmethod(world.receiver.post)))
        try:
            task = loop.create_task(world.run(happenings))
            task.add_done_callback(lambda _: loop.stop())
            loop.run_forever()
            if world.wire.failure is None and task.done() and not task.cancelled():
                world.wire.failure = task.exception()
        except AssertionError as error:
            world.wire.fail(error)
        finally:
            logger.removeHandler(complaints)
            outcome = Outcome(world.wire.failure, world.wire.trace)
            _end(loop, world)
    return outcome


async def _any_url(outbound: Outbound, url: str) -> None:
    """In place of `Outbound.check`."""


def _end(loop: SimulatedLoop, world: World) -> None:
    """Ends what is left: nothing has an effect any more."""
    for process in (*(one.process for one in world.servers), *(one.process for one in world.workers)):
        process.kill()
    left = [task for task in asyncio.all_tasks(loop) if not task.done()]
    for task in left:
        task.cancel()
    world.wire.failure = world.wire.failure or AssertionError("over")  # no invariant is checked any more
    for _ in range(1_000):
        if not [task for task in left if not task.done()] and not loop._ready:  # type: ignore[attr-defined]
            break
        loop.call_soon(loop.stop)
        loop.run_forever()
    loop.close()
    world.storage.close()


@contextmanager
def _short_times(happenings: Sequence[Happening]) -> Iterator[None]:
    """Logs move soon. In long histories objects are soon so old that they may be deleted."""
    with ExitStack() as patches:
        patches.enter_context(patch.multiple(attempt_logs, **_SHORT_LOGS))
        if any(one.given.get("cleans") == OFTEN for one in happenings):
            patches.enter_context(patch.multiple(collector, **_COLLECTED))
            patches.enter_context(patch.object(neighbours, "FRESH_US", _COLLECTED["GRACE_US"] // 2))
        yield
