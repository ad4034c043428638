"""A Python for --worker-python whose trainers import nothing: they are forks of one process a session.

    supervisor ── starts ──▶ bin/python -P -m mvprune_workers.trainer: relay.py ── asks ──▶ forks.py ──▶ trainer

It is a Python as any other for all else, and for a trainer whose libraries would be imported under other settings.
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
from pathlib import Path

from mvprune_workers.settings import trainer_environment

from ..waiting import until

_HERE = Path(__file__).parent


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
            _make_python(python, address)
            environment = trainer_environment(os.environ, folder, 1, folder)
            environment["JE_ARROW_MALLOC_CONF"] = "background_thread:false"  # a fork has no threads
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


def _make_python(python: Path, address: Path) -> None:
    """Beside what makes its folder an environment like that of the tests."""
    python.parent.mkdir()
    environment = Path(sys.prefix)
    (python.parents[1] / "lib").symlink_to(environment / "lib")
    (python.parents[1] / "pyvenv.cfg").write_text((environment / "pyvenv.cfg").read_text())
    real = shlex.quote(sys.executable)
    relay = shlex.join((sys.executable, "-I", "-S", str(_HERE / "relay.py"), str(address), sys.executable, str(python)))
    python.write_text(
        "#!/bin/bash\n"
        f'if [[ "$1 $2 $3" = "-P -m mvprune_workers.trainer" ]]; then exec {relay} "$@"; fi\n'
        f'exec -a "$0" {real} "$@"\n'
    )
    python.chmod(0o755)
