"""What only the local executor can do: its processes outlive the server, and leave nothing behind."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.integration.launches import OBEDIENT, STUBBORN, python, wait_for, wait_for_end, wait_for_lines

from mvprune_service.executors.base import (
    Launch,
    LaunchRefused,
    Phase,
)
from mvprune_service.executors.local import LocalExecutor

from ..waiting import until

SERVER = """
import os, sys
from pathlib import Path
from mvprune_service.executors.base import Launch
from mvprune_service.executors.local import LocalExecutor
LocalExecutor(Path(sys.argv[1])).submit(Launch("a", tuple(sys.argv[2:]), {}))
os.kill(os.getpid(), 9)
"""


def test_local_processes_outlive_the_server(tmp_path: Path) -> None:
    folder, saved = tmp_path / "executor", tmp_path / "saved"
    subprocess.run([sys.executable, "-c", SERVER, folder, sys.executable, "-c", OBEDIENT, saved])
    wait_for_lines(saved, 1)
    executor = LocalExecutor(folder)
    assert executor.list("a").live == ("a",)
    executor.stop("a")
    assert wait_for(executor, "a", Phase.EXITED).exit_code == 0
    assert wait_for_lines(saved, 2) == ["ready", "saved"]


def test_a_local_process_whose_keeper_is_killed(tmp_path: Path) -> None:
    executor = LocalExecutor(tmp_path / "executor")
    executor.submit(python("a", STUBBORN, str(tmp_path / "pids")))
    child = int(wait_for_lines(tmp_path / "pids", 1)[0])
    keeper = int((tmp_path / "executor/refs/a").read_text().split()[1])
    os.kill(keeper, signal.SIGKILL)
    wait_for_end(keeper)
    assert executor.observe("a").phase is Phase.RUNNING
    executor.stop("a")  # there is nobody left who would wait for the grace
    wait_for(executor, "a", Phase.GONE)
    wait_for_end(child)
    executor.submit(python("a", "pass"))
    assert executor.observe("a").phase is Phase.GONE


LEAVES = """
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", *sys.argv[1:]], start_new_session=True)
while not os.path.exists(sys.argv[2]) or not os.path.getsize(sys.argv[2]):
    time.sleep(0.01)
"""


def test_what_a_local_process_leaves_behind_is_killed(tmp_path: Path) -> None:
    executor = LocalExecutor(tmp_path / "executor")
    executor.submit(python("a", LEAVES, STUBBORN, str(tmp_path / "pids")))
    assert wait_for(executor, "a", Phase.EXITED).exit_code == 0
    wait_for_end(int((tmp_path / "pids").read_text()))


def test_local_processes_leave_no_zombies_and_a_log(tmp_path: Path) -> None:
    executor = LocalExecutor(tmp_path / "executor")
    executor.submit(python("a", "import sys; print('out'); print('err', file=sys.stderr)"))
    wait_for(executor, "a", Phase.EXITED)
    keeper = Path("/proc", (tmp_path / "executor/refs/a").read_text().split()[1])
    until(lambda: not keeper.exists(), "the keeper is gone")
    assert sorted((tmp_path / "executor/logs/a.log").read_text().split()) == ["err", "out"]


def test_what_is_known_of_local_processes_is_forgotten_long_after_their_end(tmp_path: Path) -> None:
    """A log may have hundreds of megabytes."""
    executor, folder = LocalExecutor(tmp_path / "executor"), tmp_path / "executor"
    executor.submit(python("runs", "import signal; print('here', flush=True); signal.pause()"))
    wait_for_lines(folder / "logs/runs.log", 1)  # one that is stopped before it has a keeper has no exit code
    for ref in ("old", "new"):
        executor.submit(python(ref, "print('hello')"))
        wait_for(executor, ref, Phase.EXITED)
    week_ago = time.time() - 7 * 86_400 - 1
    for ref in ("runs", "old"):
        os.utime(folder / "refs" / ref, (week_ago, week_ago))
    executor.submit(python("next", ""))
    assert {path.name for path in (folder / "refs").iterdir()} == {"runs", "new", "next"}
    assert {path.stem for path in (folder / "logs").iterdir()} == {"runs", "new", "next"}
    assert executor.observe("old").phase is Phase.GONE
    executor.stop("runs")
    wait_for(executor, "runs", Phase.EXITED)


def test_a_local_executor_without_room(tmp_path: Path) -> None:
    executor = LocalExecutor(tmp_path / "executor")
    with pytest.raises(LaunchRefused, match="too long"):
        executor.submit(Launch("a", ("true", "x" * 200_000), {}))
    assert executor.observe("a").phase is Phase.GONE
    executor.submit(python("a", "pass"))
    assert wait_for(executor, "a", Phase.EXITED).exit_code == 0


def test_a_local_executor_whose_disk_is_full_holds_no_files_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = LocalExecutor(tmp_path / "executor")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    with pytest.raises(LaunchRefused, match="No space left on device"):
        executor.submit(python("a", "pass"))
    held = [os.path.realpath(descriptor) for descriptor in Path("/proc/self/fd").iterdir()]
    assert not [path for path in held if path.startswith(str(tmp_path))]
