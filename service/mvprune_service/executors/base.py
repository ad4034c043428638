"""The one seam that knows where workers run.

An executor starts one supervisor process per attempt. SQL is the truth; what an executor says about a
process is an observation, and an executor that cannot be asked answers UNKNOWN, never GONE.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

_REF = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class ExecutorUnavailable(Exception):
    """The executor cannot be reached now, or refuses to talk. Nothing is known about its processes."""


class LaunchRefused(Exception):
    """The executor can be reached and does not start this launch now; it may start others."""


@dataclass(frozen=True)
class Launch:
    """What to start: the same `ref` always means the same attempt.

    `grace_seconds` is fixed at the start because whoever watches the process needs it when the control plane is
    away: it is the time between SIGTERM and SIGKILL of a `stop`.
    """

    ref: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)  # holds the attempt's credential
    cpus: float = 1.0
    gpus: float = 0.0
    memory_bytes: int = 0  # 0: not reserved
    grace_seconds: int = 30

    def __post_init__(self) -> None:
        check_ref(self.ref)
        if not self.argv:
            raise ValueError("argv is empty: give the program to start")


def check_ref(ref: str) -> str:
    """Returns `ref`. Raises ValueError unless it can name a file and stand in a URL."""
    if not _REF.fullmatch(ref):
        raise ValueError(f"ref {ref!r}: letters, digits, '.', '_' and '-' only, at most 128, a letter or digit first")
    return ref


@dataclass(frozen=True)
class Node:
    """Resources of one machine that runs workers. An attempt runs on one node, and a share of a GPU is of one GPU."""

    cpus: float
    gpus: float
    memory_bytes: int

    def has(self, cpus: float, gpus: float, memory_bytes: int) -> bool:
        """Whether it has so much, were it empty."""
        return cpus <= self.cpus and gpus <= self.gpus and memory_bytes <= self.memory_bytes


@dataclass(frozen=True)
class Capacity:
    """All live nodes that run workers."""

    nodes: tuple[Node, ...]

    @property
    def cpus(self) -> float:
        """Of all nodes together, as `gpus` and `memory_bytes`."""
        return sum(node.cpus for node in self.nodes)

    @property
    def gpus(self) -> float:
        """See cpus."""
        return sum(node.gpus for node in self.nodes)

    @property
    def memory_bytes(self) -> int:
        """See cpus."""
        return sum(node.memory_bytes for node in self.nodes)

    @property
    def largest_cpus(self) -> float:
        """The most of any one node, as `largest_gpus` and `largest_memory_bytes`."""
        return max((node.cpus for node in self.nodes), default=0.0)

    @property
    def largest_gpus(self) -> float:
        """See largest_cpus."""
        return max((node.gpus for node in self.nodes), default=0.0)

    @property
    def largest_memory_bytes(self) -> int:
        """See largest_cpus."""
        return max((node.memory_bytes for node in self.nodes), default=0)


class Phase(Enum):
    """What is known about one started process."""

    PENDING = "PENDING"  # accepted, not running yet
    RUNNING = "RUNNING"
    EXITED = "EXITED"
    GONE = "GONE"  # the executor can be asked and has no such process
    UNKNOWN = "UNKNOWN"  # the executor cannot be asked; decides nothing


@dataclass(frozen=True)
class Observation:
    """One look at a process. `exit_code` only with EXITED, and only where the executor knows it: -N after signal N,
    None where it was stopped or its node was lost."""

    phase: Phase
    exit_code: int | None = None
    detail: str = ""  # for people


class Executor(Protocol):
    """Starts, observes and stops supervisors. Methods block: call them from a thread."""

    @property
    def name(self) -> str:
        """Short name for logs and events: `ray`, `local`."""

    def capacity(self) -> Capacity:
        """The nodes that run workers, whatever runs on them now. Raises ExecutorUnavailable."""

    def submit(self, launch: Launch) -> None:
        """Starts `launch`, once: a second call with the same ref changes nothing. Raises ExecutorUnavailable,
        LaunchRefused."""

    def observe(self, ref: str) -> Observation:
        """Looks at one process. Never raises for an executor that is away: UNKNOWN."""

    def stop(self, ref: str) -> None:
        """SIGTERM to the process (Ray: to its descendants too), and after the launch's grace SIGKILL to it and all
        its descendants. Returns at once; unknown refs are ignored. Raises ExecutorUnavailable."""

    def list(self, prefix: str) -> list[str]:
        """The refs that are pending or running and start with `prefix`. Raises ExecutorUnavailable."""

    def close(self) -> None:
        """Releases what this object holds. Processes it started on a cluster go on."""
