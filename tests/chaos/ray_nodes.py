"""A Ray cluster of a head without CPUs and nodes, each of which can be killed and started again."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from mvprune_service.executors import processes
from mvprune_service.executors.base import ExecutorUnavailable, Node
from mvprune_service.executors.ray_jobs import RayExecutor

from ..neighbours import free_ports
from .harness import STAND_IN, eventually

_MARK = "CHAOS_RAY"  # without MVPRUNE_: such settings travel to the ranks on other nodes
_TRIES = 4  # a part of Ray that is not up in 15 s is given up by the others, as happens on a busy machine
# So that the loss of a node is noticed within seconds.
_QUICK = {"initial_delay_ms": "500", "period_ms": "500", "timeout_ms": "1000", "failure_threshold": "3"}


class RayNodes:
    """Use it in a `with`: the head runs then, no node does yet.

    Args:
        python: interpreter of the nodes.
        stand_in: whether trainers only wait, instead of training.
        head_cpus: of the head, which runs workers if it has any.
        quick: whether the loss of a node is noticed within seconds, as a busy machine may be too slow for.
    """

    def __init__(
        self,
        log: Path,
        *,
        python: str = sys.executable,
        stand_in: bool = True,
        head_cpus: int = 0,
        quick: bool = True,
    ) -> None:
        self._head_cpus = head_cpus
        self._python = python
        self._path = str(STAND_IN) if stand_in else ""
        self._nodes: set[str] = set()
        self._quick = quick
        self._log = log
        self._folder = tempfile.mkdtemp(prefix="mvp-", dir="/tmp")
        self._mark = secrets.token_hex(8)
        (dashboard,) = free_ports(1)
        self.address = f"http://127.0.0.1:{dashboard}"
        self.token = secrets.token_hex(32)

    def __enter__(self) -> Self:
        self.start_head()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for what in (*self._nodes, "head"):
            self.kill(what)
        shutil.rmtree(self._folder, ignore_errors=True)

    def start_head(self) -> None:
        """Returns when it answers, at the same address for clients. It takes no port that a node of an old one uses."""
        self._port, client_port = free_ports(2)
        self._start(
            "head",
            "--head",
            f"--port={self._port}",
            f"--ray-client-server-port={client_port}",
            "--dashboard-host=127.0.0.1",
            f"--dashboard-port={self.address.rpartition(':')[2]}",
            f"--temp-dir={self._folder}/r",
            "--no-monitor",
            f"--num-cpus={self._head_cpus}",
            until=lambda: bool(self._ids()),
        )

    def start_node(self, *flags: str, name: str = "node") -> None:
        """Starts a node, of two CPUs unless `flags` of `ray start` say otherwise. Returns when the cluster has it."""
        before = self._ids()
        self._nodes.add(name)
        address = f"--address=127.0.0.1:{self._port}"
        self._start(
            name,
            address,
            *(flags or ("--num-cpus=2",)),
            until=lambda: bool(self._ids() - before),
        )

    @property
    def environment(self) -> dict[str, str]:
        """Of a process that uses this cluster as a job of it does."""
        address = Path(self._folder) / "r" / "ray_current_cluster"  # written last
        eventually(address.exists, 60, self._log.read_text)
        return {"RAY_ADDRESS": address.read_text(), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token}

    def kill(self, what: str) -> None:
        """Kills the head, or a node with the workers on it."""
        processes.kill_marked(_MARK, f"{self._mark}-{what}")

    def processes(self, name: str) -> set[int]:
        """The processes of a node, workers and trainers among them."""
        return processes.marked(_MARK, f"{self._mark}-{name}")

    def nodes(self) -> tuple[Node, ...] | None:
        """Those that run workers; None while the head is away."""
        with contextlib.suppress(ExecutorUnavailable):
            return RayExecutor(self.address, token=self.token, timeout=5).capacity().nodes
        return None

    def _ids(self) -> set[str]:
        """Of all nodes, the head among them. A node that was killed is one of them until its loss is noticed, so a new
        node is known by its id, not by their number."""
        with contextlib.suppress(ExecutorUnavailable):
            return {node.uid for node in RayExecutor(self.address, token=self.token, timeout=5).nodes()}
        return set()

    def _start(self, what: str, *flags: str, until: Callable[[], bool]) -> None:
        for _ in range(_TRIES):
            started = self._launch(what, *flags)
            eventually(lambda: started.poll() is not None or until(), 240, self._log.read_text)  # noqa: B023
            if started.poll() is None:
                return
            self.kill(what)
        raise AssertionError(self._log.read_text())

    def _launch(self, what: str, *flags: str) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            **{f"RAY_health_check_{name}": value for name, value in _QUICK.items() if self._quick},
            _MARK: f"{self._mark}-{what}",
            "PYTHONPATH": os.pathsep.join(filter(None, (self._path, os.environ.get("PYTHONPATH")))),
            "RAY_agent_register_timeout_ms": "150000",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self.token,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_prestart_worker_first_driver": "false",
        }
        python = sys.executable if what == "head" else self._python
        command = [python, "-P", "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
        # With ports that are given, a node does not give up agents that have none after 15 s.
        agents = ("dashboard-agent-listen", "dashboard-agent-grpc", "metrics-export", "runtime-env-agent")
        ports = [f"--{agent}-port={port}" for agent, port in zip(agents, free_ports(len(agents)), strict=True)]
        common = ["--object-store-memory=100000000", *ports]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [*command, *common, *flags],
                env=environment,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
