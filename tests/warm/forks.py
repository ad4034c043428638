"""A warm process: it has imported what processes of one kind import, and each of these is a fork of it.

Run as `python -P forks.py SOCKET PID KIND` with the environment of such a process; it ends with the process PID. Each
connection is that of a relay, or of a test (see fork.py), which sends JSON and file descriptors. The answer is one
byte: whether there is a fork, whose number follows, and its end as a status of waitpid, or a process must be started.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import struct
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MOST_FDS = 32


@dataclass(frozen=True)
class Kind:
    """`libraries` are imported before any fork; of them `again` are run by each. The names of the variables that they
    read when they are imported start as in `early`: if other values are given, a process is started. `late` are not
    among them."""

    libraries: tuple[str, ...]
    again: str
    early: tuple[str, ...]
    late: tuple[str, ...] = ()

    def settings(self, environment: dict[str, str]) -> dict[str, str]:
        """What the libraries have read."""
        return {n: value for n, value in environment.items() if n.startswith(self.early) and n not in self.late}


KINDS = {
    "trainer": Kind(  # and commands of mvpctl that need torch
        libraries=(
            "sklearn.metrics",
            "transformers.models.bert.modeling_bert",
            "transformers.models.bert.tokenization_bert",
            "mvprune_workers.job",
            "mvprune_workers.trainer",
        ),
        again="mvprune_workers.trainer",
        early=("PYTHON", "HF_", "TORCH", "OMP_", "GOMP_", "MKL_", "RAYON_", "TOKENIZERS_", "LD_"),
        late=("TORCHINDUCTOR_CACHE_DIR",),  # set by torch in the tests' process as soon as that imports it
    ),
    "server": Kind(  # and supervisors
        libraries=(
            "mvprune_service.assembly.running",
            "mvprune_service.api.rest.app",
            "mvprune_service.api.rest.server",
            "mvprune_service.stores.s3",
            "mvprune_workers.supervisor",
            "mvprune_workers.attempt",
            "mvprune_workers.channel",
        ),
        again="mvprune_service.assembly.running",  # it sets variables
        early=("PYTHON", "LD_", "MVPRUNE_FAILPOINTS"),
        late=("PYTHONPATH",),
    ),
}
HIGH = 200  # the descriptors of this process and of relays are below


class Forks:
    """The forks of all connections."""

    def __init__(self, listener: socket.socket, owner: int, kind: Kind, settings: dict[str, str]) -> None:
        """`owner` is a pidfd of the process with which this one ends, `settings` are what the libraries have read."""
        self._kind, self._settings = kind, settings
        self._trainers: dict[socket.socket, int] = {}
        self._listener, self._owner = listener, owner
        self._ended, self._wakes = socket.socketpair()
        for end in (self._ended, self._wakes):
            end.setblocking(False)
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector = selectors.DefaultSelector()
        for source in (listener, owner, self._ended):
            self._selector.register(source, selectors.EVENT_READ)

    def serve(self) -> dict[str, Any] | None:
        """Returns what to run in each fork, and None when the owner has ended."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    relay, _ = self._listener.accept()
                    self._selector.register(relay, selectors.EVENT_READ)
                elif key.fileobj is self._ended:
                    self._ended.recv(4096)
                    self._reap()
                elif key.fileobj == self._owner:
                    for trainer in self._trainers.values():
                        send(trainer, signal.SIGKILL)
                    return None
                elif isinstance(key.fileobj, socket.socket) and (asked := self._read(key.fileobj)):
                    return asked

    def _read(self, relay: socket.socket) -> dict[str, Any] | None:
        """Forks a trainer, or gives it the signal that came. The end of its relay ends it too."""
        if trainer := self._trainers.get(relay):
            if data := relay.recv(1):
                send(trainer, data[0])
                return None
            del self._trainers[relay]
            send(trainer, signal.SIGKILL)
        elif (came := socket.recv_fds(relay, 1 << 20, MOST_FDS))[0]:
            return self._start(relay, json.loads(came[0]), came[1])
        self._close(relay)
        return None

    def _start(self, relay: socket.socket, asked: dict[str, Any], fds: list[int]) -> dict[str, Any] | None:
        if self._kind.settings(asked["environment"]) != self._settings:
            relay.send(b"0")
        elif trainer := os.fork():
            self._trainers[relay] = trainer
            relay.send(struct.pack("=ci", b"1", trainer))
        else:
            self._become(asked, fds)
            return asked
        for fd in fds:
            os.close(fd)
        return None

    def _become(self, asked: dict[str, Any], fds: list[int]) -> None:
        """Makes this fork what was to be started."""
        if asked["session"]:
            os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, asked["blocked"])
        sockets = [key.fileobj for key in self._selector.get_map().values()]
        self._selector.close()
        for own in (self._wakes, *sockets):
            if isinstance(own, socket.socket):
                own.detach()
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, HIGH) for fd in fds]
        os.closerange(3, HIGH)
        for fd, number in zip(high, asked["fds"], strict=True):
            os.dup2(fd, number)
            os.close(fd)
        os.chdir(asked["folder"])
        os.environ.clear()
        os.environ.update(asked["environment"])
        sys.executable, sys.orig_argv = asked["python"], [asked["python"], *asked["argv"]]

    def _reap(self) -> None:
        while (ended := _ended_child()) is not None:
            send(ended, signal.SIGKILL)  # to those that it leaves, as long as the number is not another's
            _, status = os.waitpid(ended, 0)
            for relay in [relay for relay, trainer in self._trainers.items() if trainer == ended]:
                del self._trainers[relay]
                with suppress(BrokenPipeError):
                    relay.send(struct.pack("i", status))
                self._close(relay)

    def _close(self, relay: socket.socket) -> None:
        self._selector.unregister(relay)
        relay.close()


def send(trainer: int, number: int) -> None:
    """Sends a signal to its process group, or to itself as long as it has not made one."""
    try:
        os.killpg(trainer, number)
    except ProcessLookupError:
        with suppress(ProcessLookupError):
            os.kill(trainer, number)


def _ended_child() -> int | None:
    try:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return ended and ended.si_pid


def _use_pythonpath() -> None:
    """As Python does before all else."""
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    with suppress(ModuleNotFoundError):
        importlib.import_module("sitecustomize")


def main() -> None:
    address, owner, kind = Path(sys.argv[1]), os.pidfd_open(int(sys.argv[2])), KINDS[sys.argv[3]]
    settings = kind.settings(dict(os.environ))
    sys.executable = str(address.with_name("bin") / "python")  # a supervisor starts its trainers with what it was then
    for library in kind.libraries:
        importlib.import_module(library)
    del sys.modules[kind.again]
    gc.freeze()
    threads = list(Path("/proc/self/task").iterdir())
    assert len(threads) == 1, "an import started a thread, which a fork would not have"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"{address}.new")
        listener.listen(64)
        Path(f"{address}.new").rename(address)
        asked = Forks(listener, owner, kind, settings).serve()
    if asked is None:
        shutil.rmtree(address.parent, ignore_errors=True)  # another one does so too
        return
    level, transformers = os.environ.get("TRANSFORMERS_VERBOSITY"), sys.modules.get("transformers")
    if level and transformers:  # read once
        transformers.logging.set_verbosity(transformers.logging.log_levels[level])
    if "PYTHONPATH" in kind.late:
        _use_pythonpath()
    argv = asked["argv"][asked["argv"][0] == "-P" :]
    if argv[0] == "-m":
        sys.argv = ["", *argv[2:]]
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = argv
        runpy.run_path(argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
