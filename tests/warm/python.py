"""A Python for --worker-python whose trainers and supervisors import nothing: forks of two processes a session.

    supervisor ── starts ──▶ bin/python -P -m mvprune_workers.trainer: relay.py ── asks ──▶ forks.py ──▶ trainer

It is a Python as any other for all else, and for a trainer whose libraries would be imported under other settings.
Beside it is an mvpctl, of which the commands that need torch are such forks too. Servers that tests start are forks
as well, without a relay: see fork.py.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path

from mvprune_workers.settings import trainer_environment

from ..waiting import until
from .forks import KINDS

_HERE = Path(__file__).parent
NEED_TORCH = ("benchmark", "evaluate", "export", "push")
"""Commands of mvpctl."""


@functools.cache
def warm_python() -> Path:
    """Its path. Starts the processes of which its trainers and supervisors are forks, unless this session has them."""
    in_worker = "PYTEST_XDIST_WORKER" in os.environ
    session = os.environ["PYTEST_XDIST_TESTRUNUID"] if in_worker else uuid.uuid4().hex
    owner = os.getppid() if in_worker else os.getpid()
    folder = Path(tempfile.gettempdir()) / f"mvprune-warm-{session}"
    folder.mkdir(mode=0o700, exist_ok=True)
    python = folder / "bin" / "python"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not python.exists():
            environment = trainer_environment(os.environ, folder, 1, folder)
            environment["JE_ARROW_MALLOC_CONF"] = "background_thread:false"  # a fork has no threads
            server = {name: value for name, value in os.environ.items() if name not in KINDS["server"].late}
            started = [_start(folder, "trainer", owner, environment), _start(folder, "server", owner, server)]
            for address, process in started:
                until(lambda: address.exists() or process.poll() is not None, "the warm process listens")  # noqa: B023
            if not all(address.exists() for address, _ in started):
                log = (folder / "log").read_text()
                shutil.rmtree(folder)
                raise AssertionError(log)
            _make_python(python, KINDS["trainer"].settings(environment))
    return python


def _start(folder: Path, kind: str, owner: int, environment: Mapping[str, str]) -> tuple[Path, subprocess.Popen[bytes]]:
    """A process that forks, and where it will listen."""
    address = folder / kind
    with (folder / "log").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", _HERE / "forks.py", address, str(owner), kind],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    return address, process


def warm_server() -> Path:
    """The socket of the process whose forks are servers and supervisors."""
    return warm_python().parents[1] / "server"


def warm_mvpctl() -> Path:
    """An mvpctl beside `warm_python`: what it computes with torch is a fork, which has torch's settings of a test."""
    return warm_python().with_name("mvpctl")


def _make_python(python: Path, settings: Mapping[str, str]) -> None:
    """Beside what makes its folder an environment like that of the tests. `settings` are those of trainers."""
    python.parent.mkdir()
    folder, environment = python.parents[1], Path(sys.prefix)
    (folder / "lib").symlink_to(environment / "lib")
    (folder / "pyvenv.cfg").write_text((environment / "pyvenv.cfg").read_text())
    real, mvpctl = sys.executable, str(Path(sys.executable).with_name("mvpctl"))

    def relay(kind: str, shown: str) -> str:
        return shlex.join((real, "-I", "-S", str(_HERE / "relay.py"), str(folder / kind), real, shown))

    given = shlex.join(f"{name}={value}" for name, value in settings.items())
    _write_program(
        python.with_name("mvpctl"),
        f"case $1 in {'|'.join(NEED_TORCH)})\n"
        f"    unset {' '.join(f'${{!{start}@}}' for start in KINDS['trainer'].early)}\n"
        f"    export {given}\n"
        f'    exec {relay("trainer", real)} -P {shlex.quote(mvpctl)} "$@" ;;\n'
        f'esac\nexec {shlex.quote(mvpctl)} "$@"\n',
    )
    _write_program(
        python,
        f'if [[ "$1 $2 $3" = "-P -m mvprune_workers.trainer" ]]; then exec {relay("trainer", str(python))} "$@"; fi\n'
        f'if [[ "$1 $2" = "-m mvprune_workers" ]]; then exec {relay("server", str(python))} "$@"; fi\n'
        f'exec -a "$0" {shlex.quote(real)} "$@"\n',
    )


def _write_program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/bash\n{text}")
    path.chmod(0o755)
