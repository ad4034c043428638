"""Processes that share a model: signals, ends, and numbers that are added up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.waiting import PATIENCE, until

PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from mvprune.serving.workers import WorkersEnded, run_workers, shared_metrics

folder, behaviour = Path(sys.argv[1]), sys.argv[2]

def serve():
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
    (folder / str(os.getpid())).touch()
    if behaviour == "fails":
        raise ValueError("no")
    while not ended:
        time.sleep(0.01)
    (folder / f"{os.getpid()}.ended").touch()

with shared_metrics():
    try:
        run_workers(serve, 2)
    except KeyboardInterrupt:
        sys.exit(130)
    except WorkersEnded:
        sys.exit(1)
assert "PROMETHEUS_MULTIPROC_DIR" not in os.environ
"""


def started(folder: Path, behaviour: str = "waits") -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, folder, behaviour], stderr=subprocess.PIPE, text=True)


def test_a_signal_ends_all_after_their_work(tmp_path: Path) -> None:
    for number, code in ((signal.SIGTERM, 0), (signal.SIGINT, 130)):
        folder = tmp_path / number.name
        folder.mkdir()
        with started(folder) as run:
            until(lambda folder=folder: len([*folder.iterdir()]) == 2)
            run.send_signal(number)
            assert run.wait(PATIENCE) == code
        if number is signal.SIGTERM:
            assert len([*folder.glob("*.ended")]) == 2


def test_a_worker_that_is_killed_is_started_again(tmp_path: Path) -> None:
    with started(tmp_path) as run:
        until(lambda: len([*tmp_path.iterdir()]) == 2)
        os.kill(int(next(tmp_path.iterdir()).name), signal.SIGKILL)
        until(lambda: len([*tmp_path.iterdir()]) == 3)
        run.send_signal(signal.SIGTERM)
        assert run.wait(PATIENCE) == 0
        assert "ended with -9; another one begins" in run.communicate()[1]


def test_workers_that_always_fail_end_the_server(tmp_path: Path) -> None:
    begin = time.monotonic()
    with started(tmp_path, "fails") as run:
        assert run.wait(PATIENCE) == 1
    assert len([*tmp_path.iterdir()]) > 10
    assert time.monotonic() - begin < PATIENCE
