"""Workers as jobs of a Ray cluster, over the REST interface of Ray Jobs.

This module uses HTTP directly. Ray's own client has no time limits, takes address and credentials from the process's
environment, and imports all of Ray into the control plane. The interface is documented and stable:
https://docs.ray.io/en/latest/cluster/running-applications/job-submission/api.html
"""

from __future__ import annotations

import http.client
import json
import re
import shlex
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

from mvprune_service.executors.base import (
    OUTPUT_BYTES,
    Capacity,
    ExecutorUnavailable,
    Launch,
    LaunchRefused,
    Node,
    Observation,
    Phase,
    Refs,
    check_ref,
)
from mvprune_service.executors.ray_wheel import RayWheel

_LIVE = {"PENDING": Phase.PENDING, "RUNNING": Phase.RUNNING}
_ALIVE_NODES = "/api/v0/nodes?" + urlencode(
    {"limit": 10_000, "filter_keys": "state", "filter_predicates": "=", "filter_values": "ALIVE"}
)
_NODE_TYPE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*):(\d{1,5}):(\d+(?:\.\d+)?):(\d+(?:\.\d+)?):(\d+)")
# What Ray calls a job that it gave up while it was PENDING, after the RAY_JOB_START_TIMEOUT_SECONDS of its head (900).
_NO_ROOM = "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"
_SUBMIT_SECONDS = 30.0  # the first job of a cluster starts what starts jobs


@dataclass(frozen=True)
class NodeType:
    """Nodes that an autoscaler adds to the cluster when jobs wait for them.

    Attributes:
        resource: a custom resource that all nodes of this type have, and no others.
        most: how many nodes there may be.
        node: what each of them has.
    """

    resource: str
    most: int
    node: Node

    @classmethod
    def parse(cls, text: str) -> Self:
        """A type written as RESOURCE:NODES:CPUS:GPUS:MEMORY_BYTES. Raises ValueError."""
        match = _NODE_TYPE.fullmatch(text)
        if match is None:
            raise ValueError(
                f"node-types must be RESOURCE:NODES:CPUS:GPUS:MEMORY_BYTES, such as gpu-node:4:16:1:68719476736, "
                f"got {text!r}"
            )
        resource, most, cpus, gpus, memory = match.groups()
        return cls(resource, int(most), Node(float(cpus), float(gpus), int(memory), absent=resource))


@dataclass(frozen=True)
class RayNode:
    """A live node: its id in Ray, its IP address, what it has, and the names of its resources."""

    uid: str
    address: str
    resources: Node
    names: frozenset[str]


class RayExecutor:
    """An Executor on a Ray cluster, by the address of its dashboard (http://host:8265).

    A ref is a Ray Jobs submission id. The worker is the job's entrypoint. Ray reserves the launch's CPUs, GPUs and
    memory for it; a job that does not fit now is PENDING. When Ray's head dies, its jobs are GONE.

    `stop` makes Ray send SIGTERM to the worker and its descendants, and SIGKILL after the launch's grace. A PENDING job
    stays pending and is stopped as soon as it starts.

    Args:
        token: the cluster's RAY_AUTH_TOKEN.
        node_types: nodes that the cluster's autoscaler may add.
        wheel: sent to the cluster, for nodes that have third-party packages only.
        timeout: seconds after which a call without an answer fails (submit: 30).

    Raises:
        ValueError: `address` is not the URL of a dashboard.
    """

    name = "ray"
    private_folders: tuple[Path, ...] = ()

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        timeout: float = 10.0,
        node_types: Sequence[NodeType] = (),
        wheel: RayWheel | None = None,
    ) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise ValueError(
                f"address must be http://HOST:PORT or https://HOST:PORT of a Ray dashboard, got {address!r}"
            )
        self._parts = parts
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._timeout = timeout
        self._node_types = tuple(node_types)
        self._wheel = wheel
        self.description = f"Ray at {address}"

    def capacity(self) -> Capacity:
        """See Executor.capacity. Counts the nodes that are alive now, without a head that has no CPUs, and those that
        the autoscaler may add: a job that is submitted for one of them is PENDING, which makes the autoscaler add it.
        """
        live_nodes = self.nodes()
        nodes = [each.resources for each in live_nodes]
        for kind in self._node_types:
            live = sum(kind.resource in each.names for each in live_nodes)
            nodes += [kind.node] * (kind.most - live)
        return Capacity(tuple(node for node in nodes if node.cpus > 0))

    def nodes(self) -> tuple[RayNode, ...]:
        """The nodes that are alive now, the head included. Raises ExecutorUnavailable."""
        answer = self._json("GET", _ALIVE_NODES)
        try:
            return tuple(
                RayNode(
                    each["node_id"],
                    each["node_ip"],
                    Node(total.get("CPU", 0.0), total.get("GPU", 0.0), int(total.get("memory", 0))),
                    frozenset(total),
                )
                for each in answer["data"]["result"]["result"]
                for total in [each["resources_total"]]
            )
        except (KeyError, TypeError):
            raise ExecutorUnavailable(f"Ray does not list its nodes: {str(answer)[:300]}") from None

    def submit(self, launch: Launch) -> None:
        """See Executor.submit."""
        self._submit(launch)

    def submit_to(self, node: str, launch: Launch) -> None:
        """As `submit`, on the node with this id."""
        self._submit(launch, entrypoint_label_selector={"ray.io/node-id": node})

    def _submit(self, launch: Launch, **more: Any) -> None:
        environment: dict[str, Any] = {
            # The grace is read by Ray's process beside the worker, from this same environment.
            "env_vars": {**launch.env, "RAY_JOB_STOP_WAIT_TIME_S": str(launch.grace_seconds)}
        }
        if self._wheel is not None:
            self._send(self._wheel)
            environment["py_modules"] = [self._wheel.uri]
        job = {
            "submission_id": launch.ref,
            "entrypoint": f"exec {shlex.join(launch.argv)}",  # Ray starts it in a shell
            "entrypoint_num_cpus": launch.cpus,
            "entrypoint_num_gpus": launch.gpus,
            "entrypoint_memory": launch.memory_bytes,
            "runtime_env": environment,
            **more,
        }
        status, body = self._call("POST", "/api/jobs/", job, timeout=_SUBMIT_SECONDS)
        if status != http.client.OK and self._job(launch.ref) is None:
            raise LaunchRefused(f"Ray refuses the job: {_last_line(body)}")

    def observe(self, ref: str) -> Observation:
        """See Executor.observe."""
        try:
            job = self._job(check_ref(ref))
        except ExecutorUnavailable as error:
            return Observation(Phase.UNKNOWN, detail=str(error))
        if job is None:
            return Observation(Phase.GONE, detail="Ray has no such job")
        code = job.get("driver_exit_code")
        detail = (job.get("message") or "").partition("\n")[0] if code is None else ""  # else it repeats the log
        started = job.get("error_type") != _NO_ROOM
        return Observation(_LIVE.get(job["status"], Phase.EXITED), code, detail, started)

    def stop(self, ref: str) -> None:
        """See Executor.stop."""
        status, body = self._call("POST", f"/api/jobs/{check_ref(ref)}/stop")
        if status != http.client.OK and not _has_no_job(status, body):
            raise ExecutorUnavailable(f"Ray cannot stop {ref}: {_last_line(body)}")

    def list(self, prefix: str) -> Refs:
        """See Executor.list. Ray keeps each job until `forget`, and sends all of them with each list."""
        jobs = self._json("GET", "/api/jobs/")
        ours = [job for job in jobs if job["type"] == "SUBMISSION" and job["submission_id"].startswith(prefix)]
        return Refs(
            tuple(sorted(job["submission_id"] for job in ours if job["status"] in _LIVE)),
            {job["submission_id"]: _end_us(job) for job in ours if job["status"] not in _LIVE},
        )

    def output(self, ref: str) -> bytes:
        """See Executor.output. Ray cannot read that of a node that is gone."""
        status, body = self._call("GET", f"/api/jobs/{check_ref(ref)}/logs")
        if _has_no_job(status, body) or status == http.client.INTERNAL_SERVER_ERROR:
            return b""
        return str(_parse(status, body)["logs"]).encode()[-OUTPUT_BYTES:]

    def forget(self, ref: str) -> None:
        """See Executor.forget. Ray keeps the file with the job's output on the node."""
        status, body = self._call("DELETE", f"/api/jobs/{check_ref(ref)}")
        if status != http.client.OK and not _has_no_job(status, body) and not self._is_live(ref):
            raise ExecutorUnavailable(f"Ray cannot delete {ref}: {_last_line(body)}")

    def close(self) -> None:
        """Nothing to release: each call has its own connection."""

    def _send(self, wheel: RayWheel) -> None:
        """Sends the wheel if the cluster does not have it. Asking keeps what it has for ten minutes more."""
        status, body = self._call("GET", wheel.path)
        if status == http.client.NOT_FOUND and wheel.name in body:
            status, body = self._call("PUT", wheel.path, wheel.content, timeout=_SUBMIT_SECONDS)
        if status != http.client.OK:
            raise ExecutorUnavailable(f"Ray does not take the wheel ({status}): {_last_line(body)}")

    def _is_live(self, ref: str) -> bool:
        job = self._job(ref)
        return job is not None and job["status"] in _LIVE

    def _job(self, ref: str) -> Any:
        status, body = self._call("GET", f"/api/jobs/{ref}")
        return None if _has_no_job(status, body) else _parse(status, body)

    def _json(self, method: str, path: str) -> Any:
        return _parse(*self._call(method, path))

    def _call(self, method: str, path: str, body: Any = None, timeout: float | None = None) -> tuple[int, str]:
        """One request, never through a proxy of the environment. Raises ExecutorUnavailable unless it is answered."""
        host, port = self._parts.hostname or "", self._parts.port
        seconds = timeout or self._timeout
        connection = (
            http.client.HTTPSConnection(host, port, timeout=seconds, context=ssl.create_default_context())
            if self._parts.scheme == "https"
            else http.client.HTTPConnection(host, port, timeout=seconds)
        )
        data = body if body is None or isinstance(body, bytes) else json.dumps(body)
        try:
            connection.request(method, self._parts.path.rstrip("/") + path, data, self._headers)
            response = connection.getresponse()
            return response.status, response.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            raise ExecutorUnavailable(f"Ray at {self._parts.netloc}: {error or type(error).__name__}") from error
        finally:
            connection.close()


def _end_us(job: dict[str, Any]) -> int:
    """When a job ended; of one that never ran, when it was submitted."""
    return 1000 * int(job["end_time"] or job["start_time"] or 0)


def _has_no_job(status: int, body: str) -> bool:
    """Whether it is Ray that does not know the job: what stands before a Ray that is away may answer 404 too."""
    return status == http.client.NOT_FOUND and "does not exist" in body


def _parse(status: int, body: str) -> Any:
    if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
        raise ExecutorUnavailable(f"Ray refuses the token: {_last_line(body)}")
    if status != http.client.OK:
        raise ExecutorUnavailable(f"Ray answers {status}: {_last_line(body)}")
    try:
        return json.loads(body)
    except ValueError as error:
        raise ExecutorUnavailable(f"Ray's answer is not JSON: {error}") from error


def _last_line(body: str) -> str:
    """The reason at the end of a traceback."""
    return body.strip().rpartition("\n")[2][:300]
