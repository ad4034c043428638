"""A server that is a fork of the warm process is, for a test, as one that is started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ..waiting import PATIENCE
from ..warm.fork import start
from .servers import SERVER, Server

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("words", "code"), [(("--help",), 0), (("--no-such-option",), 2)])
def test_what_it_prints_and_its_exit_code(tmp_path: Path, words: tuple[str, ...], code: int) -> None:
    started = subprocess.run([SERVER, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    output = tmp_path / "output"
    with output.open("wb") as file:
        forked = start(sys.executable, [SERVER, *words], os.environ, (0, file.fileno(), file.fileno()))
    assert forked is not None
    assert (forked.wait(PATIENCE), output.read_bytes()) == (started.returncode, started.stdout)
    assert forked.poll() == code


def test_it_is_killed_and_starts_again_at_once(tmp_path: Path) -> None:
    server = Server(tmp_path / "home")
    try:
        for number, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 0)):
            process = server.start(drain_seconds=0)
            assert b"forks.py" in Path(f"/proc/{process.pid}/cmdline").read_bytes()
            assert process.poll() is None
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.01)
            process.send_signal(number)
            assert process.wait(PATIENCE) == code
            assert not Path(f"/proc/{process.pid}").exists()
    finally:
        server.close()


def test_modules_of_its_environment_are_its_own(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.stdout.write(f'{sys.orig_argv[1:]}\\n')")
    output = tmp_path / "output"
    with output.open("wb") as file:
        words, environment = ["-m", "tests.no_such_module"], {**os.environ, "PYTHONPATH": str(tmp_path)}
        forked = start(sys.executable, words, environment, (0, file.fileno(), file.fileno()))
    assert forked is not None
    assert forked.wait(PATIENCE) == 1
    assert output.read_text().startswith(f"{words}\n")


def test_settings_that_are_read_at_the_import_need_a_process_of_their_own() -> None:
    environment = {**os.environ, "MVPRUNE_FAILPOINTS": "claim.before_commit=error"}
    assert start(sys.executable, [SERVER, "--help"], environment, (0, 1, 2)) is None
