"""A trainer that is a fork of the warm process is, for whoever starts it, as one that is started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mvprune_workers.exits import TRAINER_STOPPED
from mvprune_workers.settings import trainer_environment

from ...waiting import PATIENCE
from ...warm.python import warm_python
from .test_real_trainer import FOLDERS

pytestmark = pytest.mark.slow
PYTHONS: dict[str, Callable[[], str | Path]] = {"started": lambda: sys.executable, "forked": warm_python}


class Started:
    """A trainer that waits for its job, and the pipe of its events."""

    def __init__(self, python: str | Path, folder: Path) -> None:
        words = ["--threads=1", "--device=cpu", *(f"--{name}={folder / name}" for name in FOLDERS)]
        self.events, write_end = os.pipe()
        self.process = subprocess.Popen(
            command(python, *words, f"--events-fd={write_end}"),
            env=trainer_environment(os.environ, folder, 1, folder),
            stdin=subprocess.PIPE,
            pass_fds=(write_end,),
            start_new_session=True,
        )
        os.close(write_end)
        assert os.read(self.events, 1 << 16), "it says that it is alive"
        is_fork = b"relay.py" in Path(f"/proc/{self.process.pid}/cmdline").read_bytes()
        assert is_fork == (python != sys.executable)

    def end(self) -> int:
        """Waits until nobody has the pipe any more; returns the exit code."""
        code = self.process.wait(PATIENCE)
        while os.read(self.events, 1 << 16):
            pass
        os.close(self.events)
        return code


def command(python: str | Path, *words: str) -> list[str | Path]:
    return [python, "-P", "-m", "mvprune_workers.trainer", *words]


@pytest.fixture(params=PYTHONS)
def python(request: pytest.FixtureRequest) -> str | Path:
    return PYTHONS[request.param]()


@pytest.mark.parametrize(("words", "code"), [(("--help",), 0), (("--no-such-option",), 2)])
def test_what_it_prints_and_its_exit_code(tmp_path: Path, words: tuple[str, ...], code: int) -> None:
    def run(python: str | Path) -> Any:
        environment = trainer_environment(os.environ, tmp_path, 1, tmp_path)
        return subprocess.run(command(python, *words), env=environment, capture_output=True, text=True, check=False)

    started, forked = run(sys.executable), run(warm_python())
    assert (forked.returncode, forked.stdout, forked.stderr) == (code, started.stdout, started.stderr)


def test_a_signal_to_its_group(python: str | Path, tmp_path: Path) -> None:
    trainer = Started(python, tmp_path)
    os.killpg(trainer.process.pid, signal.SIGTERM)
    assert trainer.end() == TRAINER_STOPPED


def test_when_it_is_killed_nothing_is_left(python: str | Path, tmp_path: Path) -> None:
    trainer = Started(python, tmp_path)
    trainer.process.kill()
    assert trainer.end() == -signal.SIGKILL


def test_it_ends_with_its_supervisor(python: str | Path, tmp_path: Path) -> None:
    trainer = Started(python, tmp_path)
    assert trainer.process.stdin is not None
    trainer.process.stdin.close()
    assert trainer.end() == -signal.SIGKILL
