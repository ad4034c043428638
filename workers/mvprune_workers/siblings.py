"""The other ranks of an attempt on this node: processes like the trainer, which it starts in its own process group.

They get the job through their standard input, as the trainer does from the supervisor, and end with it. Their output is
the attempt's log. They send no events but failures.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from mvprune_workers.exits import TRAINER_STOPPED

log = logging.getLogger(__name__)

GRACE = 5.0  # seconds in which a trainer that lost a rank can find out and report more about it


class Siblings:
    """Starts the ranks with these numbers by the command of this process, with the option --rank.

    If a signal ends one of them, it ends this process too, so that the attempt fails as if this one had been killed. If
    one ends with an error, and this process has not ended `GRACE` seconds later, `on_failure` is called in a thread.
    """

    def __init__(self, ranks: Sequence[int], events_fd: int, on_failure: Callable[[str], None]) -> None:
        self._on_failure = on_failure
        # A stop is for rank 0, which agrees on the step with the others. A blocked signal stays so in a new process.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        try:
            self._processes = [_start(rank, events_fd) for rank in ranks]
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        for rank, process in zip(ranks, self._processes, strict=True):
            threading.Thread(target=self._watch, args=(rank, process), name=f"rank-{rank}", daemon=True).start()

    def send_job(self, job: str) -> None:
        """Gives each of them the job: one line of JSON."""
        for process in self._processes:
            assert process.stdin is not None  # noqa: S101 - PIPE was asked for
            with suppress(BrokenPipeError):  # it has ended, and is watched
                process.stdin.write(job.encode())

    def _watch(self, rank: int, process: subprocess.Popen[bytes]) -> None:
        end_with(rank, process.wait(), self._on_failure)


def end_with(rank: int, code: int, on_failure: Callable[[str], None]) -> None:
    """The consequence of the end of another rank: none, if it has done its work or was stopped.

    If a signal ended it, the same signal ends this process. If it ended with an error, and this process has not ended
    `GRACE` seconds later, `on_failure` is called.
    """
    if code in (0, TRAINER_STOPPED):
        return
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    log.error("rank %d %s", rank, how)
    if code < 0:
        os.kill(os.getpid(), -code)
    time.sleep(GRACE)
    on_failure(f"rank {rank} {how}")


def _start(rank: int, events_fd: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, *sys.orig_argv[1:], "--rank", str(rank)],
        env={**os.environ, "TRANSFORMERS_VERBOSITY": "error"},  # rank 0 says it
        stdin=subprocess.PIPE,
        bufsize=0,
        pass_fds=(events_fd,),
    )
