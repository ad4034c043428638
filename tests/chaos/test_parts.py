"""An attempt of two parts, each with one rank, on a real Ray: the loss of one ends it, and a drain stops it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mvprune.v1 import job_pb2
from mvprune_service.executors.ray_jobs import RayExecutor
from mvprune_workers.exits import ExitCode

from ..integration.worker import conftest as supervisors
from ..integration.worker import test_parts as parts
from ..integration.worker.test_real_trainer import real_job
from .ray_nodes import RayNodes

_QUICKLY = 60.0  # seconds on a busy machine; torch itself would wait for 30 minutes
worker, ray = supervisors.worker, parts.ray  # fixtures
pytestmark = pytest.mark.timeout(900)


def actors(ray: RayNodes) -> list[int]:
    """The processes that run other parts."""
    return [pid for pid in ray.processes("head") if b"PartActor" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_the_loss_of_a_part_ends_the_attempt(worker: Any, tiny: Any, ray: RayNodes) -> None:
    worker.service.spec = real_job(tiny)
    worker.service.spec.training.max_steps = 100_000
    parts.start(worker, tiny, ray)
    worker.service.wait(lambda: any(beat.progress.step > 1 for beat in worker.service.heartbeats))
    [actor] = actors(ray)
    began = time.monotonic()
    os.kill(actor, signal.SIGKILL)
    assert worker.wait() is ExitCode.FAILED
    assert time.monotonic() - began < _QUICKLY
    [outcome] = worker.service.outcomes
    assert outcome.failure.reason == job_pb2.Failure.WORKER_LOST
    assert outcome.failure.message.startswith(("The attempt has lost rank 1", "A rank on another node was lost"))


def test_a_node_that_is_drained_is_left_with_a_checkpoint(worker: Any, tiny: Any, tmp_path: Path) -> None:
    with RayNodes(tmp_path / "ray.log", stand_in=False, head_cpus=1, quick=False) as ray:
        ray.start_node("--num-cpus=1")
        executor = RayExecutor(ray.address, token=ray.token)
        worker.service.spec = real_job(tiny)
        worker.service.spec.training.max_steps = 100_000
        parts.start(worker, tiny, ray)
        worker.service.wait(lambda: any(beat.progress.step > 1 for beat in worker.service.heartbeats))
        homes = [node for node in executor.nodes() if node.resources.cpus]
        drain(ray, [node.uid for node in homes])
        assert worker.wait() is ExitCode.PREEMPTED, worker.service.log.decode()
        [outcome], [commit] = worker.service.outcomes, worker.service.committed
        assert outcome.failure.reason == job_pb2.Failure.PREEMPTED
        assert commit.step > 1
        assert b"stopping, with a checkpoint" in worker.service.log
        worker.assert_clean()


def drain(ray: RayNodes, nodes: list[str]) -> None:
    """Tells Ray that these nodes will be taken away."""
    for node in nodes:
        words = ["--node-id", node, "--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "spot"]
        command = [sys.executable, "-m", "ray.scripts.scripts", "drain-node", *words]
        address = ray.environment["RAY_ADDRESS"]
        argv = [*command, "--address", address, "--deadline-remaining-seconds", "600"]
        subprocess.run(argv, env={**os.environ, **ray.environment}, check=True, timeout=120)
