"""The trainer process: a session of its own, pipes for output and events, standard input as its lifeline."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from mvprune_workers.events import TrainerEvent, parse

_DRAIN_SECONDS = 5.0


class TrainerProcess:
    """Starts the process in `folder`. `command` gets one more option: --events-fd NUMBER, a pipe for events.

    A thread of its own passes the output (stdout and stderr together) to `on_output`, and another one events to
    `on_event`, so that the trainer never waits. `on_end` is called once, after the process group is dead and all its
    output has been passed on.
    """

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        folder: Path,
        *,
        on_output: Callable[[bytes], None],
        on_event: Callable[[TrainerEvent], None],
        on_end: Callable[[], None],
    ) -> None:
        self.returncode: int | None = None
        self._reap_lock = threading.Lock()
        self._on_end = on_end
        read_end, write_end = os.pipe()
        try:
            self._process = subprocess.Popen(
                [*command, "--events-fd", str(write_end)],
                cwd=folder,
                env=dict(env),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                pass_fds=(write_end,),
                start_new_session=True,
            )
        except OSError:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        assert self._process.stdout is not None  # noqa: S101 - PIPE was asked for
        self._pumps = [
            _thread("trainer-output", _pump, self._process.stdout.fileno(), on_output),
            _thread("trainer-events", _pump, read_end, _line_splitter(on_event)),
        ]
        self._waiter = _thread("trainer-exit", self._wait)

    def send_job(self, job: str) -> None:
        """Gives the trainer its job: one line of JSON. Standard input stays open."""
        assert self._process.stdin is not None  # noqa: S101 - PIPE was asked for
        with suppress(BrokenPipeError):  # it has ended; its return code says why
            self._process.stdin.write(job.encode() + b"\n")

    def signal(self, number: signal.Signals) -> None:
        """Signals the whole process group, unless it has ended."""
        with self._reap_lock:
            if self.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """Kills the whole process group and waits until it is dead."""
        self.signal(signal.SIGKILL)
        self._waiter.join(2 * _DRAIN_SECONDS)

    def _wait(self) -> None:
        # It stays a zombie until its group is dead, so that its process id is not reused.
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        self.signal(signal.SIGKILL)
        with self._reap_lock:
            self.returncode = self._process.wait()
        for pump in self._pumps:
            pump.join(_DRAIN_SECONDS)  # a descendant in a session of its own may never close the pipes
        self._on_end()


def _thread(name: str, target: Callable[..., None], *args: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=args, name=name, daemon=True)
    thread.start()
    return thread


def _pump(fd: int, sink: Callable[[bytes], None]) -> None:
    while data := os.read(fd, 1 << 16):
        sink(data)


def _line_splitter(on_event: Callable[[TrainerEvent], None]) -> Callable[[bytes], None]:
    rest = b""

    def take(data: bytes) -> None:
        nonlocal rest
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            # An event with a value of a wrong type is skipped: if this thread ended, the trainer would block.
            with suppress(TypeError, ValueError):
                if event := parse(line):
                    on_event(event)

    return take
