"""The parent of one LocalExecutor process: `python -m mvprune_service.executors.keeper STATE_FD GRACE ARGV...`

It outlives the control plane. It passes SIGTERM on to the process, sends SIGKILL after the grace, kills processes that
the process leaves behind, and records the exit code. STATE_FD is the ref's locked state file (see local.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import FrameType

from mvprune_service.executors import processes

MARK = "MVPRUNE_LOCAL_PROCESS"
_CANNOT_START = 127  # as in a shell


def keep(state: int, grace: float, argv: list[str]) -> None:
    """Runs `argv` to its end. Writes `pid N` (its own) and `exit CODE` (-N after signal N) to `state`."""
    child: subprocess.Popen[bytes] | None = None
    stopping = False

    def stop() -> None:
        if child is not None:
            child.terminate()
            signal.setitimer(signal.ITIMER_REAL, grace)

    def terminated(number: int, frame: FrameType | None) -> None:
        nonlocal stopping
        if not stopping:
            stopping = True
            stop()

    def too_late(number: int, frame: FrameType | None) -> None:
        processes.kill_marked(MARK, os.environ[MARK])

    signal.signal(signal.SIGTERM, terminated)
    signal.signal(signal.SIGALRM, too_late)
    os.write(state, f"pid {os.getpid()}\n".encode())
    try:
        # The child holds the lock too: if only this process dies, the ref still counts as running.
        child = subprocess.Popen(argv, pass_fds=(state,))
    except OSError as error:
        print(f"cannot start {argv[0]}: {error.strerror}", file=sys.stderr)
        code = _CANNOT_START
    else:
        if stopping:
            stop()
        code = child.wait()
    signal.setitimer(signal.ITIMER_REAL, 0)
    processes.kill_marked(MARK, os.environ[MARK])
    os.write(state, f"exit {code}\n".encode())


if __name__ == "__main__":
    keep(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])
