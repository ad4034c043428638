"""A Python for --worker-python whose trainers import nothing: they are forks of one process a session.

    supervisor ── starts ──▶ bin/python -P -m mvprune_workers.trainer: relay.py ── asks ──▶ forks.py ──▶ trainer

It is a Python as any other for all else, and for a trainer whose libraries would be imported under other settings.
Beside it is an mvpctl, of which the commands that need torch are such forks too.
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
from .forks import READ_EARLY, early

_HERE = Path(__file__).parent
NEED_TORCH = ("benchmark", "evaluate", "export", "push")
"""Commands of mvpctl."""


@functools.cache
def warm_python() -> Path:
    """Its path. Starts the process of which its trainers are forks, unless another one of this session has."""
    in_worker = "PYTEST_XDIST_WORKER" in os.environ
    session = os.environ["PYTEST_XDIST_TESTRUNUID"] if in_worker else uuid.uuid4().hex
    owner = os.getppid() if in_worker else os.getpid()
    folder = Path(tempfile.gettempdir()) / f"mvprune-warm-{session}"
    folder.mkdir(mode=0o700, exist_ok=True)
    address, python = folder / "socket", folder / "bin" / "python"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not address.exists():
            environment = trainer_environment(os.environ, folder, 1, folder)
            environment["JE_ARROW_MALLOC_CONF"] = "background_thread:false"  # a fork has no threads
            _make_python(python, address, early(environment))
            with (folder / "log").open("w") as log:
                process = subprocess.Popen(
                    [sys.executable, "-P", _HERE / "forks.py", address, str(owner)],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            until(lambda: address.exists() or process.poll() is not None, "the warm process listens")
            if not address.exists():
                log = (folder / "log").read_text()
                shutil.rmtree(folder)
                raise AssertionError(log)
    return python


def warm_mvpctl() -> Path:
    """An mvpctl beside `warm_python`: what it computes with torch is a fork, which has torch's settings of a test."""
    return warm_python().with_name("mvpctl")


def _make_python(python: Path, address: Path, settings: Mapping[str, str]) -> None:
    """Beside what makes its folder an environment like that of the tests. `settings` are those of the warm process."""
    python.parent.mkdir()
    environment = Path(sys.prefix)
    (python.parents[1] / "lib").symlink_to(environment / "lib")
    (python.parents[1] / "pyvenv.cfg").write_text((environment / "pyvenv.cfg").read_text())
    real, mvpctl = sys.executable, str(Path(sys.executable).with_name("mvpctl"))

    def relay(shown: str) -> str:
        return shlex.join((real, "-I", "-S", str(_HERE / "relay.py"), str(address), real, shown))

    given = shlex.join(f"{name}={value}" for name, value in settings.items())
    _write_program(
        python,
        f'if [[ "$1 $2 $3" = "-P -m mvprune_workers.trainer" ]]; then exec {relay(str(python))} "$@"; fi\n'
        f'exec -a "$0" {shlex.quote(real)} "$@"\n',
    )
    _write_program(
        python.with_name("mvpctl"),
        f"case $1 in {'|'.join(NEED_TORCH)})\n"
        f"    unset {' '.join(f'${{!{start}@}}' for start in READ_EARLY)}\n"
        f"    export {given}\n"
        f'    exec {relay(real)} -P {shlex.quote(mvpctl)} "$@" ;;\n'
        f'esac\nexec {shlex.quote(mvpctl)} "$@"\n',
    )


def _write_program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/bash\n{text}")
    path.chmod(0o755)
