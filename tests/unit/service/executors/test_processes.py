"""Processes are found by the mark in their environment until all of their threads have ended."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

from tests.waiting import until

from mvprune_service.executors.processes import kill_marked, marked

# Its first thread ends, the other one goes on: so are, for a moment, processes that are killed.
LEADERLESS = """
import ctypes, signal, threading
threading.Thread(target=signal.pause).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_is_found_whose_first_thread_has_ended() -> None:
    mark = uuid.uuid4().hex
    with subprocess.Popen([sys.executable, "-c", LEADERLESS], env={**os.environ, "MARK": mark}) as process:
        try:
            status = Path(f"/proc/{process.pid}/status")
            until(lambda: "State:\tZ" in status.read_text(), status.read_text)
            assert process.poll() is None, "the other thread lives"
            assert marked("MARK", mark) == {process.pid}
            kill_marked("MARK", mark)
            assert marked("MARK", mark) == set()
            assert process.wait() == -9
        finally:
            process.kill()
