"""One suite for every Executor; then what only Ray can do."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.integration.launches import OBEDIENT, STUBBORN, is_alive, python, wait_for, wait_for_end, wait_for_lines

from mvprune_service.executors import processes
from mvprune_service.executors.base import (
    OUTPUT_BYTES,
    Executor,
    ExecutorNotOpened,
    ExecutorUnavailable,
    Launch,
    Observation,
    Phase,
    Refs,
)
from mvprune_service.executors.embedded_ray import MARK, EmbeddedRay
from mvprune_service.executors.local import LocalExecutor
from mvprune_service.executors.ray_jobs import RayExecutor

from ..waiting import until


@pytest.fixture(scope="module")
def ray_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRay]:
    """A Ray of two CPUs on this machine; `ray_cluster.executor()` submits to it. It ends with these tests: idle it
    still takes a part of a core."""
    ray = EmbeddedRay(tmp_path_factory.mktemp("ray"), cpus=2)
    ray.start()
    try:
        yield ray
    finally:
        ray.stop()


@pytest.fixture(params=["local", pytest.param("ray", marks=pytest.mark.slow)])
def executor(request: pytest.FixtureRequest, tmp_path: Path) -> Executor:
    if request.param == "local":
        return LocalExecutor(tmp_path / "executor", cpus=2)
    return request.getfixturevalue("ray_cluster").executor()


@pytest.fixture
def prefix() -> str:
    """Of refs that no other test uses."""
    return f"t{uuid.uuid4().hex[:8]}-"


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

    def said() -> bytes:
        """Without the line that Ray writes first, but which may be stored after all that a fast process writes."""
        return re.sub(rb"Running entrypoint for job .*\n", b"", executor.output(f"{prefix}a"))

    until(lambda: said().endswith(b"x\nthe end\n"), lambda: said()[-99:])
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


# --- Ray


@pytest.mark.slow
def test_a_ray_job_that_does_not_fit_is_pending(ray_cluster: EmbeddedRay, prefix: str) -> None:
    executor = ray_cluster.executor()
    executor.submit(Launch(f"{prefix}big", ("true",), {}, cpus=3))
    assert executor.observe(f"{prefix}big").phase is Phase.PENDING
    assert executor.list(prefix).live == (f"{prefix}big",)


@pytest.mark.slow
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


@pytest.mark.slow
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
