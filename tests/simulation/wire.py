"""Processes, and everything that passes between them: it takes time, and a fault can befall it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from enum import StrEnum
from random import Random
from typing import Any, NamedTuple, TypeVar

from .loop import Answer, Awaited, SimulatedLoop, is_blocking, wait_for

T = TypeVar("T")
_SLOWNESS = 0.02  # seconds, on average, that a request or an answer takes
_SOMETIMES_SLOW = 0.03  # of them take
_SLOW_SECONDS = 3.0  # up to so long
_LATE_SECONDS = 40.0


class Killed(BaseException):
    """The process that did this has ended."""


class FaultKind(StrEnum):
    """What can become of an operation."""

    REFUSED = "refused"  # it has no effect, and the caller gets an error
    LOST = "answer lost"  # it has its effect, and the caller gets an error
    LATE = "late"  # its effect and its answer take long
    TWICE = "twice"  # it arrives once more, later
    CRASH_BEFORE = "crash before"  # its process ends before its effect
    CRASH_AFTER = "crash after"  # its process ends after its effect, before its answer


class Fault(NamedTuple):
    """A fault that waits for an operation.

    Attributes:
        target: the kind of the operation: read, write, store, executor or call.
        after: how many operations of that kind pass before it strikes.
    """

    kind: FaultKind
    target: str
    after: int = 0


class Process:
    """What can be killed: a server, a worker, a user. `skew_us`: what its clock adds to the time."""

    def __init__(self, name: str, seed: str) -> None:
        self.name = name
        self.dead = False
        self.skew_us = 0
        self.chance = Random(f"{seed}/{name}")
        self.tasks: dict[asyncio.Task[Any], None] = {}  # in the order of their creation
        self.on_death: list[Callable[[], None]] = []
        self._faults: list[Fault] = []

    def arm(self, fault: Fault) -> None:
        """Lets a fault befall one of the next operations."""
        self._faults.append(fault)

    def disarm(self) -> None:
        """No armed fault strikes any more."""
        self._faults.clear()

    def fault_of(self, target: str) -> FaultKind | None:
        """The fault that befalls the operation that begins now."""
        found = next((fault for fault in self._faults if fault.target == target), None)
        if found is None:
            return None
        self._faults.remove(found)
        if found.after:
            self._faults.insert(0, found._replace(after=found.after - 1))
            return None
        return found.kind

    def delay(self) -> float:
        """How long a request or an answer takes."""
        if self.chance.random() < _SOMETIMES_SLOW:
            return self.chance.uniform(0.0, _SLOW_SECONDS)
        return self.chance.expovariate(1 / _SLOWNESS)

    def kill(self) -> None:
        """Ends it where it is: nothing that it has begun has an effect from now on."""
        if self.dead:
            return
        self.dead = True
        for task in [*self.tasks]:
            task.cancel()
        for call in self.on_death:
            call()


CURRENT: ContextVar[Process] = ContextVar("process")


class Wire:
    """Does what processes ask of others. `check` is called after each effect, with the kind and the name of it."""

    def __init__(self, loop: SimulatedLoop, seed: str, check: Callable[[str, str], None]) -> None:
        self.loop = loop
        self.seed = seed
        self.trace: list[str] = []
        self._check = check
        self.failure: BaseException | None = None
        loop.set_task_factory(_make_task)
        loop.set_exception_handler(self._report)

    def process(self, name: str) -> Process:
        """A new process."""
        return Process(name, self.seed)

    def say(self, text: str) -> None:
        """Adds a line to the trace."""
        self.trace.append(f"{self.loop.time():9.3f}  {text}")

    def fail(self, error: BaseException) -> None:
        """Ends the history: an invariant does not hold."""
        if self.failure is None:
            self.failure = error
            self.say(f"FAILED: {error}")
        self.loop.stop()

    def perform(
        self, target: str, name: str, effect: Callable[[], Any], done: Answer, away: Callable[[str], BaseException]
    ) -> None:
        """Begins an operation of the current process. Raises Killed if that has ended.

        Args:
            target: its kind: read, write, store or executor.
            name: for the trace.
            effect: does it, at one moment.
            done: gets the answer.
            away: makes the error for a caller whose request or answer is lost.
        """
        process = CURRENT.get()
        if process.dead:
            raise Killed
        fault = process.fault_of(target)

        def answer(result: Any, error: BaseException | None) -> None:
            done(*((None, Killed()) if process.dead else (result, error)))

        def take_effect() -> None:
            if process.dead:
                return answer(None, None)
            if fault is FaultKind.CRASH_BEFORE:
                self._crash(process, name, "before")
                return answer(None, None)
            if fault is FaultKind.REFUSED:
                self.say(f"{process.name}: {name}: refused")
                return answer(None, away("refused"))
            result, error = self._do(process, target, name, effect)
            if fault is FaultKind.CRASH_AFTER:
                self._crash(process, name, "after")
            if fault is FaultKind.LOST:
                self.say(f"{process.name}: {name}: its answer is lost")
                result, error = None, away("lost")
            self.loop.call_later(process.delay(), answer, result, error)
            return None

        late = process.chance.uniform(0, _LATE_SECONDS) if fault is FaultKind.LATE else 0.0
        self.loop.call_later(process.delay() + late, take_effect)

    def block(self, target: str, name: str, effect: Callable[[], T], away: Callable[[str], BaseException]) -> T:
        """The same, on a thread of the process, which waits for the answer."""
        if CURRENT.get().dead:
            raise Killed
        assert is_blocking(), f"{name} would stop the event loop"
        result: T = wait_for(lambda answer: self.perform(target, name, effect, answer, away))
        return result

    def block_on(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Waits, on a thread of the process, for what a coroutine returns."""
        if CURRENT.get().dead:
            raise Killed
        result: T = Awaited(work(), self.loop).result()
        return result

    def _do(
        self, process: Process, target: str, name: str, effect: Callable[[], Any]
    ) -> tuple[Any, BaseException | None]:
        try:
            result, error = effect(), None
        except Exception as raised:
            result, error = None, raised
        if target != "read":
            self.say(f"{process.name}: {name}" + (f": {type(error).__name__}: {error}"[:160] if error else ""))
            self.checked(target, name)
        return result, error

    def checked(self, target: str, name: str) -> None:
        """Checks the invariants."""
        if self.failure is None:
            try:
                self._check(target, name)
            except AssertionError as error:
                self.fail(error)

    def _crash(self, process: Process, name: str, when: str) -> None:
        self.say(f"{process.name}: killed {when} {name}")
        process.kill()

    def _report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and "handle" in context:  # a callback raised; tasks have their own watchers
            self.fail(error)

    def watch(self, task: asyncio.Task[Any]) -> None:
        """Ends the history if the task raises."""
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self.fail(error)


def _make_task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
    process = CURRENT.get(None)
    if process is not None:
        process.tasks[task] = None
        task.add_done_callback(process.tasks.pop)
    return task
