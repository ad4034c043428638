"""The trainer's connection to its supervisor, standard input: it carries the job and ends if the supervisor dies."""

from __future__ import annotations

import os
import queue
import signal
import threading
from contextlib import suppress

from mvprune_workers.event_queue import SIGNAL_SECONDS


class Lifeline:
    """Reads the job from standard input, then waits for its end and kills the process group with it.

    A thread reads, so that slow imports can run before the job arrives, and so that the trainer also ends if the
    supervisor is killed before it has sent the job.
    """

    def __init__(self) -> None:
        self._job: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._watch, name="lifeline", daemon=True).start()

    def job(self) -> str:
        """Waits for the job: one line of JSON."""
        while True:
            with suppress(queue.Empty):
                return self._job.get(timeout=SIGNAL_SECONDS)

    def _watch(self) -> None:
        # Unbuffered: a thread that waits inside sys.stdin holds its lock, which the interpreter needs to shut down.
        received = b""
        waiting = True
        while data := os.read(0, 1 << 16):
            if waiting:
                received += data
                if received.endswith(b"\n"):
                    self._job.put(received.decode())
                    waiting = False
        os.killpg(0, signal.SIGKILL)
