"""One suite for every Executor; then what only one of them can do."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mvprune_service.executors import processes
from mvprune_service.executors.base import (
    OUTPUT_BYTES,
    Executor,
    ExecutorNotOpened,
    ExecutorUnavailable,
    Launch,
    LaunchRefused,
    Observation,
    Phase,
    Refs,
)
from mvprune_service.executors.embedded_ray import MARK, EmbeddedRay
from mvprune_service.executors.local import LocalExecutor
from mvprune_service.executors.ray_jobs import RayExecutor

from ..waiting import until


@pytest.fixture(params=["local", "ray"])
def executor(request: pytest.FixtureRequest, tmp_path: Path) -> Executor:
    if request.param == "local":
        return LocalExecutor(tmp_path / "executor", cpus=2)
    return request.getfixturevalue("ray_cluster").executor()


@pytest.fixture
def prefix() -> str:
    """Of refs that no other test uses."""
    return f"t{uuid.uuid4().hex[:8]}-"


def python(ref: str, script: str, *args: str, env: dict[str, str] | None = None, grace: int = 30) -> Launch:
    return Launch(ref, (sys.executable, "-c", script, *args), env or {}, cpus=0.5, grace_seconds=grace)


def wait_for(executor: Executor, ref: str, phase: Phase) -> Observation:
    """What is seen of it once it is in a phase."""
    seen: list[Observation] = []

    def is_there() -> bool:
        seen.append(executor.observe(ref))
        return seen[-1].phase is phase

    until(is_there, lambda: f"{ref} is {seen[-1]}, not {phase}")
    return seen[-1]


def wait_for_lines(path: Path, count: int) -> list[str]:
    until(lambda: path.exists() and path.read_text().count("\n") >= count, f"{path} has {count} lines")
    return path.read_text().splitlines()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for_end(*pids: int) -> None:
    """Of processes that have been killed: they let go of their files a moment before they are dead."""
    until(lambda: not any(map(is_alive, pids)), f"{pids} are dead")


# --- every executor

RECORD = """
import json, os, sys
with open(sys.argv[1], "a") as file:
    print(json.dumps([sys.argv[2:], os.environ["GREETING"]]), file=file)
sys.exit(7)
"""


def test_a_ref_runs_once_and_gets_what_it_was_given(executor: Executor, prefix: str, tmp_path: Path) -> None:
    record = tmp_path / "record"
    given = ["two words", "", "$HOME", "a'b\"c", "--flag=ü"]
    launch = python(f"{prefix}a", RECORD, str(record), *given, env={"GREETING": "good day; x"})
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(executor.submit, [launch] * 8))
    assert wait_for(executor, launch.ref, Phase.EXITED).exit_code == 7
    executor.submit(launch)
    assert executor.observe(launch.ref) == Observation(Phase.EXITED, 7)
    assert executor.list(prefix).live == ()
    assert [json.loads(line) for line in record.read_text().splitlines()] == [[given, "good day; x"]]


def test_exit_codes(executor: Executor, prefix: str) -> None:
    endings = {"good": ("pass", 0), "killed": ("import os; os.kill(os.getpid(), 9)", -9)}
    for name, (script, _) in endings.items():
        executor.submit(python(prefix + name, script))
    executor.submit(Launch(f"{prefix}no", ("/no/such/program",), {}, cpus=0.5))
    for name, (_, code) in endings.items():
        assert wait_for(executor, prefix + name, Phase.EXITED).exit_code == code
    assert wait_for(executor, f"{prefix}no", Phase.EXITED).exit_code == 127


STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(sys.argv[1], "a") as file:
    print(os.getpid(), file=file)
if len(sys.argv) > 2:  # a descendant in a session of its own
    subprocess.Popen([sys.executable, *sys.orig_argv[1:-1]], start_new_session=True)
time.sleep(1000)
"""
OBEDIENT = """
import signal, sys, time
def save(*_):
    with open(sys.argv[1], "a") as file:
        print("saved", file=file)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
with open(sys.argv[1], "a") as file:
    print("ready", file=file)
time.sleep(1000)
"""


def test_stop_does_not_wait(executor: Executor, prefix: str, tmp_path: Path) -> None:
    stubborn = python(f"{prefix}stubborn", STUBBORN, str(tmp_path / "pid"), grace=3600)
    executor.submit(stubborn)
    (pid,) = (int(line) for line in wait_for_lines(tmp_path / "pid", 1))
    executor.stop(stubborn.ref)
    assert executor.observe(stubborn.ref).phase is Phase.RUNNING
    os.kill(pid, signal.SIGKILL)
    wait_for(executor, stubborn.ref, Phase.EXITED)


def test_stop_gives_grace_then_kills_with_all_descendants(executor: Executor, prefix: str, tmp_path: Path) -> None:
    stubborn = python(f"{prefix}stubborn", STUBBORN, str(tmp_path / "pids"), "parent", grace=1)
    obedient = python(f"{prefix}obedient", OBEDIENT, str(tmp_path / "saved"), grace=3600)
    executor.submit(stubborn)
    executor.submit(obedient)
    pids = [int(line) for line in wait_for_lines(tmp_path / "pids", 2)]
    wait_for_lines(tmp_path / "saved", 1)
    assert all(map(is_alive, pids))
    assert executor.observe(stubborn.ref).phase is Phase.RUNNING
    assert executor.list(prefix).live == (obedient.ref, stubborn.ref)

    started = time.monotonic()
    executor.stop(stubborn.ref)
    executor.stop(obedient.ref)
    assert wait_for(executor, stubborn.ref, Phase.EXITED).exit_code in (-signal.SIGKILL, None)
    assert time.monotonic() - started >= 1
    wait_for_end(*pids)
    assert wait_for(executor, obedient.ref, Phase.EXITED).exit_code in (0, None)
    assert (tmp_path / "saved").read_text() == "ready\nsaved\n"
    assert executor.list(prefix).live == ()
    executor.stop(stubborn.ref)


def test_unknown_refs(executor: Executor, prefix: str) -> None:
    assert executor.observe(f"{prefix}never").phase is Phase.GONE
    assert executor.list(prefix).live == ()
    executor.stop(f"{prefix}never")
    executor.forget(f"{prefix}never")
    assert executor.output(f"{prefix}never") == b""


def test_the_output_of_a_process(executor: Executor, prefix: str) -> None:
    executor.submit(python(f"{prefix}a", "import sys; print('x' * 100_000); print('the end', file=sys.stderr)"))
    ended = wait_for(executor, f"{prefix}a", Phase.EXITED)
    assert ended.exit_code == 0, f"{ended}, {executor.output(f'{prefix}a')[-99:]!r}"
    until(lambda: executor.output(f"{prefix}a").endswith(b"x\nthe end\n"), lambda: executor.output(f"{prefix}a")[-99:])
    assert len(executor.output(f"{prefix}a")) == OUTPUT_BYTES


def test_a_live_process_is_not_forgotten(executor: Executor, prefix: str, tmp_path: Path) -> None:
    obedient = python(f"{prefix}a", OBEDIENT, str(tmp_path / "saved"))
    executor.submit(obedient)
    wait_for_lines(tmp_path / "saved", 1)
    executor.forget(obedient.ref)
    assert executor.list(prefix).live == (obedient.ref,)
    assert executor.observe(obedient.ref).phase is Phase.RUNNING
    executor.stop(obedient.ref)
    wait_for(executor, obedient.ref, Phase.EXITED)


def test_capacity(executor: Executor) -> None:
    capacity = executor.capacity()
    (node,) = capacity.nodes
    assert (node.cpus, capacity.cpus, capacity.largest_cpus) == (2, 2, 2)
    assert node.gpus >= 0
    assert node.memory_bytes > 100 << 20
    executor.close()


@pytest.mark.parametrize("ref", ["", "../up", "a/b", "a b", ".hidden", "é", "a" * 129])
def test_bad_refs(ref: str) -> None:
    with pytest.raises(ValueError, match="ref"):
        Launch(ref, ("true",), {})


def test_a_launch_hides_its_credentials() -> None:
    assert "very-secret" not in repr(Launch("a", ("true",), {"MVPRUNE_ATTEMPT_SECRET": "very-secret"}))
    with pytest.raises(ValueError, match="argv"):
        Launch("a", (), {})


# --- processes of this machine

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


# --- Ray


def test_a_ray_job_that_does_not_fit_is_pending(ray_cluster: EmbeddedRay, prefix: str) -> None:
    executor = ray_cluster.executor()
    executor.submit(Launch(f"{prefix}big", ("true",), {}, cpus=3))
    assert executor.observe(f"{prefix}big").phase is Phase.PENDING
    assert executor.list(prefix).live == (f"{prefix}big",)


def test_ray_keeps_a_job_until_it_is_forgotten(ray_cluster: EmbeddedRay, prefix: str) -> None:
    executor = ray_cluster.executor()
    executor.submit(python(f"{prefix}a", "pass"))
    wait_for(executor, f"{prefix}a", Phase.EXITED)
    ended = executor.list(prefix).ended
    assert ended.keys() == {f"{prefix}a"}
    assert abs(ended[f"{prefix}a"] - time.time() * 1e6) < 60e6
    executor.forget(f"{prefix}a")
    assert executor.list(prefix) == Refs()
    assert executor.observe(f"{prefix}a").phase is Phase.GONE


def assert_away(executor: RayExecutor, reason: str) -> None:
    seen = executor.observe("a")
    assert seen.phase is Phase.UNKNOWN
    assert reason in seen.detail
    launch = Launch("a", ("true",), {"MVPRUNE_ATTEMPT_SECRET": "very-secret"})
    for call in (
        executor.capacity,
        lambda: executor.submit(launch),
        lambda: executor.stop("a"),
        lambda: executor.list(""),
        lambda: executor.output("a"),
        lambda: executor.forget("a"),
    ):
        with pytest.raises(ExecutorUnavailable, match=reason) as caught:
            call()
        assert "very-secret" not in str(caught.value)


def test_a_ray_that_is_away(closed_port: int) -> None:
    assert_away(RayExecutor(f"http://127.0.0.1:{closed_port}", token="very-secret"), "refused")


def test_a_ray_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        executor = RayExecutor(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.2)
        assert "timed out" in executor.observe("a").detail
        with pytest.raises(ExecutorUnavailable, match="timed out"):
            executor.capacity()


class NoRoute(BaseHTTPRequestHandler):
    """What stands before a Ray, and leads nowhere."""

    def do_GET(self) -> None:
        self.send_error(404)

    do_POST = do_DELETE = do_GET


def test_a_404_that_is_not_rays_says_nothing_about_a_job() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), NoRoute) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            assert_away(RayExecutor(f"http://127.0.0.1:{server.server_port}"), "Ray")
        finally:
            server.shutdown()


def test_a_ray_that_refuses_the_token(ray_cluster: EmbeddedRay) -> None:
    assert_away(RayExecutor(ray_cluster.address, token="very-secret"), "token")
    assert_away(RayExecutor(ray_cluster.address), "token")


@pytest.mark.parametrize("address", ["", "auto", "127.0.0.1:8265", "ray://host:10001", "http://u:very-secret@host"])
def test_bad_ray_addresses(address: str) -> None:
    with pytest.raises(
        ValueError, match=r"^address must be http://HOST:PORT or https://HOST:PORT of a Ray dashboard, got "
    ):
        RayExecutor(address)


@pytest.mark.slow
def test_an_embedded_ray_is_taken_over_and_leaves_nothing(tmp_path: Path, ray_cluster: EmbeddedRay) -> None:
    """Beside another Ray: ray_cluster runs."""
    ray = EmbeddedRay(tmp_path / "ray", cpus=1)
    ray.start()
    address = ray.address
    assert address != ray_cluster.address
    ray.executor().submit(python("a", STUBBORN, str(tmp_path / "pids"), "parent"))
    pids = [int(line) for line in wait_for_lines(tmp_path / "pids", 2)]

    after_a_crash = EmbeddedRay(tmp_path / "ray")
    after_a_crash.start()
    assert after_a_crash.address == address
    assert after_a_crash.executor().observe("a").phase is Phase.RUNNING

    state = json.loads((tmp_path / "ray/ray.json").read_text())
    assert (tmp_path / "ray/ray.json").stat().st_mode & 0o077 == 0
    assert Path(state["temporary"]).stat().st_mode & 0o077 == 0
    after_a_crash.stop()
    after_a_crash.stop()
    wait_for_end(*pids)
    assert not processes.marked(MARK, state["mark"])
    assert not Path(state["temporary"]).exists()
    assert [path.name for path in (tmp_path / "ray").iterdir()] == ["ray.log"]
    assert ray_cluster.executor().capacity().cpus == 2


@pytest.mark.slow
def test_an_embedded_ray_that_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(ExecutorNotOpened, match=r"ended at its start.*ray\.log(.*\n)*.*1\.5"):
        EmbeddedRay(tmp_path / "ray", cpus=1.5).start()
    assert [path.name for path in (tmp_path / "ray").iterdir()] == ["ray.log"]
