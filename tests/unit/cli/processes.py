"""mvpctl in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.unit.client.scripted_server import Fake

# A shell's background jobs ignore SIGINT, and so would whatever the tests start in one.
_HEARD = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)"


def started(fake: Fake, *argv: str) -> subprocess.Popen[str]:
    """mvpctl in a process of its own, which is interrupted by SIGINT wherever the tests run."""
    command = [sys.executable, "-c", f"{_HEARD}; from mvprune.cli import main; sys.exit(main())", *argv]
    env = {**os.environ, "MVPRUNE_ADDRESS": fake.address}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
