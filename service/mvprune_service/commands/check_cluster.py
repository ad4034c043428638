"""Runs a small job on each node of the Ray cluster, for `mvpctl server check-cluster`."""

from __future__ import annotations

import contextlib
import json
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mvprune
from mvprune_service.api.access.ports import worker_environment
from mvprune_service.assembly.service import STATUS_FILE
from mvprune_service.command_line import CommandFailed, command_settings
from mvprune_service.config import Settings
from mvprune_service.domain.leases import version_problem
from mvprune_service.executors import node_probe, ray
from mvprune_service.executors.base import ExecutorNotOpened, ExecutorUnavailable, Launch, LaunchRefused, Phase
from mvprune_service.executors.embedded_ray import EmbeddedRay
from mvprune_service.executors.ray_jobs import RayExecutor, RayNode

_POLL_SECONDS = 0.5
_FORGETS = 10
_REFUSED_PYTHON = (126, 127)  # exit codes of a shell that cannot start a program


@dataclass(frozen=True)
class NodeReport:
    """The equipment of a node. `gpus` is what Ray counts, `gpu_names` what its driver shows; a version is None if the
    package is missing.

    Attributes:
        store: why the node cannot read the store, "" if it can.
        server: why it cannot connect to the workers' port of the server, "" if it can.
        problems: all that would make a job fail there.
    """

    node: str
    address: str
    cpus: float
    gpus: float
    gpu_names: list[str]
    python: str | None
    torch: str | None
    ray: str | None
    mvprune: str | None
    store: str
    server: str
    problems: list[str]


@dataclass(frozen=True)
class ClusterReport:
    """The nodes that run workers, beside the server's version of mvprune."""

    cluster: str
    version: str
    nodes: list[NodeReport]
    problems: list[str]


def check_cluster(seconds: float, **given: str) -> ClusterReport:
    """Asks all nodes at once.

    Args:
        seconds: how long to wait for them.
        given: settings of the server, in place of those that it would have.

    Raises:
        CommandFailed: there is no Ray to ask, or it does not answer.
    """
    settings = command_settings(**given)
    executor = _executor(settings)
    try:
        nodes = [node for node in executor.nodes() if node.resources.cpus > 0]
        answers = _ask(executor, settings, nodes, seconds)
    except ExecutorUnavailable as error:
        raise CommandFailed(f"the cluster cannot be checked: {error}") from None
    reports = [_report(node, answers[node.uid]) for node in nodes]
    problems = [f"{one.address}: {problem}" for one in reports for problem in one.problems]
    if not nodes:
        problems.append(f"{executor.description} has no node with CPUs now")
    return ClusterReport(executor.description, mvprune.__version__, reports, problems)


def _executor(settings: Settings) -> RayExecutor:
    if settings.executor != "ray":
        raise CommandFailed(f"--executor must be ray, got {settings.executor}; only Ray has nodes to check")
    try:
        found = ray.cluster(settings) if settings.ray_address else EmbeddedRay(settings.home).running()
    except ExecutorNotOpened as error:
        raise CommandFailed(str(error)) from None
    if found is None:
        raise CommandFailed(
            f"--ray-address must be given, or a server with a Ray of its own must run in {settings.home}, got neither"
        )
    return found


def _ask(
    executor: RayExecutor, settings: Settings, nodes: list[RayNode], seconds: float
) -> dict[str, dict[str, Any] | str]:
    """The answer of each node by its uid, or why there is none."""
    script = Path(node_probe.__file__).read_text()
    argv = (str(settings.worker_python or sys.executable), "-c", script)
    environment = {**worker_environment(settings, _worker_address(settings)), "MVPRUNE_STORE": settings.store_url}
    deadline, run = time.monotonic() + seconds, uuid.uuid4().hex[:12]
    answers: dict[str, dict[str, Any] | str] = {}
    waiting = {node.uid: f"mvprune-check-{run}-{number}" for number, node in enumerate(nodes)}
    try:
        for uid, ref in list(waiting.items()):
            try:
                executor.submit_to(uid, Launch(ref, argv, environment, cpus=0.0, grace_seconds=1))
            except LaunchRefused as error:
                answers[uid] = str(error)
                del waiting[uid]
        while waiting and time.monotonic() < deadline:
            for uid, ref in list(waiting.items()):
                if (answer := _answer(executor, ref, argv[0])) is not None:
                    answers[uid] = answer
                    del waiting[uid]
            time.sleep(_POLL_SECONDS if waiting else 0)
    finally:
        for ref in waiting.values():
            with contextlib.suppress(ExecutorUnavailable):
                executor.stop(ref)
        with contextlib.suppress(ExecutorUnavailable):  # a server deletes what is left, after a day
            _forget(executor, f"mvprune-check-{run}-")
    late = f"the node did not run a job within {seconds:g} s; see whether it is healthy, or give it a longer --timeout"
    return {**dict.fromkeys(waiting, late), **answers}


def _forget(executor: RayExecutor, prefix: str) -> None:
    """Deletes jobs that have ended. Ray may write one again that was deleted while it ended."""
    for _ in range(_FORGETS):
        time.sleep(_POLL_SECONDS)
        ended = executor.list(prefix).ended
        if not ended:
            return
        for ref in ended:
            executor.forget(ref)


def _worker_address(settings: Settings) -> str:
    """Where workers reach the server: the port of one that runs in this home folder, else what the settings say."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        return str(json.loads((settings.home / STATUS_FILE).read_text())["worker_address"])
    return settings.worker_address


def _answer(executor: RayExecutor, ref: str, python: str) -> dict[str, Any] | str | None:
    """A node's report on itself, or the reason why there is none; None: it has not ended yet."""
    seen = executor.observe(ref)
    if seen.phase not in (Phase.EXITED, Phase.GONE):
        return None
    output = executor.output(ref).decode(errors="replace")
    for line in output.splitlines():
        if line.startswith(node_probe.MARK):
            found: dict[str, Any] = json.loads(line.removeprefix(node_probe.MARK))
            return found
    if seen.exit_code in _REFUSED_PYTHON:
        return f"there is no Python at {python}; --worker-python names the one of the nodes"
    last = output.strip().rpartition("\n")[2] or seen.detail or "no output"
    return f"the job ended without an answer (exit code {seen.exit_code}): {last[:300]}"


def _report(node: RayNode, answer: dict[str, Any] | str) -> NodeReport:
    silent = isinstance(answer, str)
    found: dict[str, Any] = {} if isinstance(answer, str) else answer
    problems = [answer] if isinstance(answer, str) else _problems(found)
    return NodeReport(
        node=node.uid,
        address=node.address,
        cpus=node.resources.cpus,
        gpus=node.resources.gpus,
        gpu_names=found.get("gpu_names", []),
        python=found.get("python"),
        torch=found.get("torch"),
        ray=found.get("ray"),
        mvprune=found.get("mvprune"),
        store="not asked" if silent else found["store"],
        server="not asked" if silent else found["server"],
        problems=problems,
    )


def _problems(found: dict[str, Any]) -> list[str]:
    problems = []
    if found["mvprune"] is None:
        problems.append("mvprune is missing; install 'mvprune[worker]', or let the server send it (--ray-wheel)")
    elif problem := version_problem(found["mvprune"], mvprune.__version__, ""):
        problems.append(problem)
    if found["torch"] is None:
        problems.append("torch is missing; install 'mvprune[worker]'")
    if found["store"] and found["mvprune"] is not None:
        problems.append(f"the store cannot be read: {found['store']}")
    if found["server"]:
        problems.append(f"the server cannot be reached: {found['server']}; --worker-target is what workers call")
    return problems
