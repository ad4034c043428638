"""Several processes that serve one model: forked once it is loaded, so that they share the memory of its weights."""

from __future__ import annotations

import logging
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

log = logging.getLogger(__name__)

_MOST_ENDS = 5
"""Workers that may end by themselves, for each worker, within `_SPAN`: more, and the server ends."""
_SPAN = 60.0  # seconds
FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable of prometheus_client; it must be set before that is imported."""


@contextmanager
def shared_metrics() -> Iterator[None]:
    """A context in which what workers count is added up. It must be open before the application is imported."""
    with tempfile.TemporaryDirectory(prefix="mvpctl-metrics-") as folder:
        os.environ[FOLDER] = folder
        try:
            yield
        finally:
            del os.environ[FOLDER]


class WorkersEnded(Exception):
    """Workers ended again and again, of themselves."""


def run_workers(serve: Callable[[], None], count: int) -> None:
    """Runs `serve` in so many forked processes until SIGTERM or Ctrl-C, which they get too. One that ends of itself is
    started again: the model is still here as it was loaded. Within `shared_metrics`.

    Args:
        serve: serves until SIGTERM.
        count: of processes.

    Raises:
        KeyboardInterrupt: Ctrl-C.
        WorkersEnded: they ended too often.
    """
    children: set[int] = set()
    asked: list[int] = []
    ends: list[float] = []

    def pass_on(number: int, _: FrameType | None) -> None:
        asked.append(number)
        for child in children:
            os.kill(child, number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        while not asked or children:
            while len(children) < count and not asked:
                children.add(_fork(serve))
            child, status = os.wait()
            children.discard(child)
            _forget(child)
            if not asked:
                log.error("worker %d ended with %d; another one begins", child, os.waitstatus_to_exitcode(status))
                ends = [end for end in ends if end > time.monotonic() - _SPAN] + [time.monotonic()]
                if len(ends) > _MOST_ENDS * count:
                    pass_on(signal.SIGTERM, None)
                    raise WorkersEnded
    finally:
        for child in children:
            os.waitpid(child, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
    if signal.SIGINT in asked:
        raise KeyboardInterrupt


def _fork(serve: Callable[[], None]) -> int:
    """Runs `serve` in a child. Returns its number."""
    # Signals that come between the fork and the child's own handlers wait until it has them.
    both = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, both)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for number in both:
                signal.signal(number, signal.default_int_handler)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, both)
            serve()
            code = 0
        except KeyboardInterrupt:
            code = 0
        except Exception as error:
            log.critical("a worker failed", exc_info=error)
        finally:
            os._exit(code)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, both)
    return child


def _forget(child: int) -> None:
    """What it counted stays; that it had anything waiting does not."""
    from prometheus_client.multiprocess import mark_process_dead  # late: it reads the variable

    mark_process_dead(child)  # type: ignore[no-untyped-call]
