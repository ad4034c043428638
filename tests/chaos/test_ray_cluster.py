"""A Ray cluster whose node has the third-party packages, and no mvprune."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import mvprune
from mvprune_service.executors.base import Phase
from mvprune_service.executors.ray_jobs import RayExecutor

from .harness import TERMINAL, Client, Server, eventually
from .ray_nodes import RayNodes

ROOT = Path(__file__).parents[2]
MVPCTL = Path(sys.executable).with_name("mvpctl")


@dataclass(frozen=True)
class Bare:
    """A running cluster, the interpreter of its node, and a wheel of this version."""

    ray: RayNodes
    python: Path
    wheel: Path


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bare]:
    folder = tmp_path_factory.mktemp("bare")
    python, wheel = _interpreter(folder / "venv"), _wheel(folder / "wheels")
    with RayNodes(folder / "ray.log", python=str(python), quick=False) as ray:
        ray.start_node()
        yield Bare(ray, python, wheel)


def _interpreter(folder: Path) -> Path:
    """One that finds every package of this one, except mvprune."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    (site,) = folder.glob("lib/python*/site-packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "mvprune" not in entry.name and entry.suffix != ".pth":
            (site / entry.name).symlink_to(entry)
    found = subprocess.run([python, "-c", "import torch, ray, grpc; import mvprune"], capture_output=True, text=True)
    assert "No module named 'mvprune'" in found.stderr
    return python


def _wheel(folder: Path) -> Path:
    uv = Path(sys.executable).with_name("uv")
    environment = {**os.environ, "SETUPTOOLS_SCM_PRETEND_VERSION": mvprune.__version__}
    command = [uv, "build", "-q", "--wheel", "--out-dir", folder, ROOT]
    built = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


def check(bare: Bare, home: Path, port: int, *options: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "MVPRUNE_HOME": str(home),
        "MVPRUNE_RAY_ADDRESS": bare.ray.address,
        "MVPRUNE_WORKER_PYTHON": str(bare.python),
        "MVPRUNE_WORKER_ADDRESS": f"127.0.0.1:{port}",
        "RAY_AUTH_TOKEN": bare.ray.token,
        **{f"MVPRUNE_{name.upper()}": value for name, value in settings.items()},
    }
    command = [MVPCTL, "server", "check-cluster", "--timeout", "300", *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@pytest.mark.timeout(1200)
def test_the_wheel_is_sent_to_nodes_without_it(bare: Bare, tmp_path: Path) -> None:
    server = Server(tmp_path, executor="ray", ray_address=bare.ray.address, worker_python=str(bare.python))
    server.set(ray_wheel=str(bare.wheel))
    server.start(environment={"RAY_AUTH_TOKEN": bare.ray.token})
    client = Client(server)
    ray = RayExecutor(bare.ray.address, token=bare.ray.token)
    try:
        job = client.create("a", 300, resources={"cpus": 1.0})
        eventually(lambda: client.get(job.name).state in TERMINAL, 240, server.tail)
        ended = client.get(job.name)
        assert ended.State.Name(ended.state) == "SUCCEEDED", f"{ended}\n{server.tail()}"
        eventually(lambda: not ray.list("mvprune-").ended, 60, lambda: str(ray.list("mvprune-")))
        found = check(bare, server.home, 1, "-o", "json", ray_wheel=str(bare.wheel), store=server.store)
        (node,) = json.loads(found.stdout)["nodes"]
        assert (found.returncode, node["problems"]) == (0, []), found
        assert (node["mvprune"], node["store"], node["server"]) == (mvprune.__version__, "", "")
        assert (node["cpus"], node["gpus"]) == (2.0, 0.0)
        assert ray.list("mvprune-check-").ended == {}
    finally:
        client.close()
        server.kill()


@pytest.mark.timeout(1200)
def test_check_cluster_says_what_a_node_lacks(bare: Bare, tmp_path: Path, closed_port: int) -> None:
    found = check(bare, tmp_path, closed_port, "-o", "json")
    assert found.returncode == 1, found.stderr
    report = json.loads(found.stdout)
    (node,) = report["nodes"]  # the head has no CPUs
    assert node["mvprune"] is None
    assert node["torch"]
    assert node["problems"][0].startswith("mvprune is missing; install 'mvprune[worker]', or")
    assert f"127.0.0.1:{closed_port}: [Errno 111]" in node["problems"][1]
    assert [line.partition(": ")[2] for line in report["problems"]] == node["problems"]

    nowhere = check(bare, tmp_path, closed_port, worker_python="/no/such/python")
    assert nowhere.returncode == 1
    assert "there is no Python at /no/such/python; --worker-python names the one of the nodes" in nowhere.stdout
    assert "\n1 nodes, 1 problems\n" in nowhere.stdout


@pytest.mark.timeout(1200)
def test_a_job_makes_the_cluster_grow_each_time(bare: Bare, tmp_path: Path) -> None:
    """The job waits in Ray, as an autoscaler needs it, until its node is there. The next one does too when the node
    has been removed."""
    server = Server(tmp_path, executor="ray", ray_address=bare.ray.address, worker_python=str(bare.python))
    server.set(ray_wheel=str(bare.wheel), ray_node_types="large:1:3:0:1000000")
    server.start(environment={"RAY_AUTH_TOKEN": bare.ray.token})
    client = Client(server)
    try:
        job = client.create("a", 300, resources={"cpus": 3.0})
        eventually(lambda: client.get(job.name).state_reason == "WAITING_FOR_NODE", 60, server.tail)
        ray = RayExecutor(bare.ray.address, token=bare.ray.token)
        eventually(lambda: ray.list("mvprune-").live, 60, server.tail)
        (ref,) = ray.list("mvprune-").live
        assert ray.observe(ref).phase is Phase.PENDING
        bare.ray.start_node('--resources={"large": 1}', "--num-cpus=3", name="large")
        eventually(lambda: client.get(job.name).state in TERMINAL, 240, server.tail)
        ended = client.get(job.name)
        assert (ended.State.Name(ended.state), ended.state_reason) == ("SUCCEEDED", ""), server.tail()
        eventually(lambda: not ray.list("mvprune-").live, 60, server.tail)  # nothing of ours keeps the node
        bare.ray.kill("large")
        eventually(lambda: len(bare.ray.nodes() or ()) == 1, 240, server.tail)
        again = client.create("b", 300, resources={"cpus": 3.0})
        eventually(lambda: client.get(again.name).state_reason == "WAITING_FOR_NODE", 120, server.tail)
    finally:
        client.close()
        server.kill()


def test_a_wheel_of_another_version_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "mvprune-9.9.9-py3-none-any.whl"
    wheel.write_bytes(b"")
    found = subprocess.run(
        [MVPCTL, "server", "start", "--home", tmp_path, "--ray-address", "http://127.0.0.1:1", "--ray-wheel", wheel],
        capture_output=True,
        text=True,
    )
    assert found.returncode != 0
    wanted = f"--ray-wheel must be the wheel of the server's version, mvprune-{mvprune.__version__}-….whl, got {wheel}"
    assert wanted in found.stderr
