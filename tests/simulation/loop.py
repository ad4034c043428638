"""An event loop on virtual time, and threads that run one at a time.

Nothing waits: when no callback is ready, the time becomes that of the next timer. Callbacks run in the order that
asyncio promises. What differs from seed to seed is when an answer comes, so which task goes on next.

A function that blocks runs on a thread of its own, but only while the loop stands still. Where it would wait for a
store or an executor it gives control back to the loop, so other tasks and threads go on between its calls.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
Answer = Callable[[Any, BaseException | None], None]
Ask = Callable[[Answer], None]


class Deadlock(AssertionError):
    """Tasks wait, and nothing that could end their wait will happen."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """An event loop whose clock jumps to the next timer."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._selector = self  # asked by the base class for events of sockets: there are none

    def time(self) -> float:
        """Virtual seconds since the start."""
        return self._now

    def select(self, timeout: float | None) -> list[Any]:
        """Lets the time pass."""
        if timeout is None:
            raise Deadlock("nothing goes on: every task waits, and no timer runs")
        self._now += timeout
        return []

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Runs a function that blocks, from the next moment on."""
        return asyncio.wrap_future(run_blocking(self, lambda: func(*args)), loop=self)

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody waits in select."""


class _Helper(threading.Thread):
    """A thread that runs functions. The loop waits while it runs."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.go = threading.Lock()
        self.go.acquire()
        self.function: Callable[[], Any] = lambda: None
        self.asked: Ask | None = None  # what it waits for; None: it has finished
        self.answer: tuple[Any, BaseException | None] = None, None
        self.start()

    def run(self) -> None:
        _here.helper = self
        while True:
            self.go.acquire()
            self.asked = None
            try:
                self.answer = self.function(), None
            except BaseException as error:
                self.answer = None, error
            _back.release()

    def wait(self, ask: Ask) -> Any:
        """Gives control back until there is an answer."""
        self.asked = ask
        _back.release()
        self.go.acquire()
        self.asked = None
        result, error = self.answer
        if error is not None:
            raise error
        return result


_here = threading.local()
_back = threading.Lock()
_back.acquire()
_idle: list[_Helper] = []


def is_blocking() -> bool:
    """Whether this code runs on such a thread."""
    return getattr(_here, "helper", None) is not None


def wait_for(ask: Ask) -> Any:
    """Waits, on such a thread, for what `ask` starts. `ask` is called on the loop's thread with a function that takes
    the answer, which it must call later. Raises the error of the answer."""
    return _here.helper.wait(ask)


def run_blocking(loop: asyncio.AbstractEventLoop, function: Callable[[], T]) -> Future[T]:
    """Runs a function that blocks, from the next moment on, in the caller's context."""
    future: Future[T] = Future()
    helper_function = contextvars.copy_context().run

    def begin() -> None:
        if not future.set_running_or_notify_cancel():
            return
        helper = _idle.pop() if _idle else _Helper()
        helper.function = lambda: helper_function(function)
        _go_on(helper, future)

    loop.call_soon(begin)
    return future


def _go_on(helper: _Helper, future: Future[Any]) -> None:
    helper.go.release()
    _back.acquire()
    ask = helper.asked
    if ask is None:
        result, error = helper.answer
        _idle.append(helper)
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)
        return

    def answer(result: Any, error: BaseException | None) -> None:
        helper.answer = result, error
        _go_on(helper, future)

    ask(answer)


class Awaited:
    """What `asyncio.run_coroutine_threadsafe` returns on such a thread: the result is waited for when it is asked
    for."""

    def __init__(self, work: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> None:
        context = contextvars.copy_context()

        def ask(answer: Answer) -> None:
            def ended(task: asyncio.Task[Any]) -> None:
                error = asyncio.CancelledError() if task.cancelled() else task.exception()
                answer(None if error else task.result(), error)

            context.run(loop.create_task, work).add_done_callback(ended)

        self._ask = ask

    def result(self) -> Any:
        """Waits for it. Raises what it raised."""
        return wait_for(self._ask)
