"""The interface of executors.

An executor starts one supervisor process per attempt. The database decides what a job's state is. What an executor
reports about a process is an observation, and an executor that cannot be reached reports UNKNOWN, never GONE.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol

OUTPUT_BYTES = 64 << 10  # of `Executor.output`
_REF = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class ExecutorUnavailable(Exception):
    """The executor cannot be reached now, or refuses the server's credential. Nothing is known about its processes."""


class LaunchRefused(Exception):
    """The executor can be reached and does not start this launch now; it may start others."""


class ExecutorNotOpened(Exception):
    """The executor cannot be opened with these settings; the text says why."""


class StartCancelled(Exception):
    """The server's start was cancelled while the executor was being opened. Nothing of the executor is left running."""


@dataclass(frozen=True)
class Launch:
    """A process to start. The same `ref` always means the same attempt.

    `grace_seconds` is the time between SIGTERM and SIGKILL of a `stop`. It is fixed at the start: the process that
    watches the worker needs it also while the control plane is down.
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
            raise ValueError("argv must start with the program to run, got ()")


def check_ref(ref: str) -> str:
    """Returns `ref`. Raises ValueError unless it can name a file and stand in a URL."""
    if not _REF.fullmatch(ref):
        raise ValueError(
            f"ref must be at most 128 letters, digits, '.', '_' and '-', with a letter or digit first, got {ref!r}"
        )
    return ref


@dataclass(frozen=True)
class Node:
    """Resources of one machine that runs workers. An attempt runs on one node; a share of a GPU is of one GPU.

    Attributes:
        absent: the type of a node that is added when a job waits for it; "" for one that is there.
    """

    cpus: float
    gpus: float
    memory_bytes: int
    absent: str = ""

    def has(self, cpus: float, gpus: float, memory_bytes: int) -> bool:
        """Whether these resources fit on the node while nothing else runs there."""
        return cpus <= self.cpus and gpus <= self.gpus and memory_bytes <= self.memory_bytes


@dataclass(frozen=True)
class Capacity:
    """All nodes that run workers: the live ones, and those that are added when jobs wait for them."""

    nodes: tuple[Node, ...]

    @property
    def absent(self) -> frozenset[str]:
        """The types of the nodes that are not there."""
        return frozenset(node.absent for node in self.nodes) - {""}

    def without(self, types: Collection[str]) -> Capacity:
        """The same without absent nodes of these types."""
        return Capacity(tuple(node for node in self.nodes if node.absent not in types)) if types else self

    @property
    def cpus(self) -> float:
        """Sum over all nodes, as `gpus` and `memory_bytes`."""
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
        """Maximum over the nodes, as `largest_gpus` and `largest_memory_bytes`."""
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
    """The record of one started process."""

    PENDING = "PENDING"  # accepted, not running yet
    RUNNING = "RUNNING"
    EXITED = "EXITED"
    GONE = "GONE"  # the executor can be asked and has no such process
    UNKNOWN = "UNKNOWN"  # the executor cannot be asked; decides nothing


@dataclass(frozen=True)
class Observation:
    """The executor's report about a process at one moment. `exit_code` comes only with EXITED: -N after signal N,
    None if the executor does not know it, as after a `stop` or the loss of a node. `started` is False, with EXITED, if
    no node had room for the process and the executor gave it up."""

    phase: Phase
    exit_code: int | None = None
    detail: str = ""  # for people
    started: bool = True


@dataclass(frozen=True)
class Refs:
    """The refs that an executor knows.

    Attributes:
        live: those that are pending or running.
        ended: those that it keeps until `forget`, and when their process ended, in microseconds since the epoch.
    """

    live: tuple[str, ...] = ()
    ended: Mapping[str, int] = field(default_factory=dict)


class Executor(Protocol):
    """Starts, observes and stops supervisors. Methods block: call them from a thread."""

    @property
    def name(self) -> str:
        """Short name for logs and events: `ray`, `local`."""

    @property
    def description(self) -> str:
        """Where its processes run, for people."""

    @property
    def private_folders(self) -> tuple[Path, ...]:
        """Folders of this machine with credentials, which clients must not read."""

    def capacity(self) -> Capacity:
        """The nodes that run workers, whatever runs on them now. Raises ExecutorUnavailable."""

    def submit(self, launch: Launch) -> None:
        """Starts `launch`, once: a second call with the same ref changes nothing. Raises ExecutorUnavailable,
        LaunchRefused."""

    def observe(self, ref: str) -> Observation:
        """Reports one process. An executor that cannot be reached reports UNKNOWN; it does not raise."""

    def stop(self, ref: str) -> None:
        """SIGTERM to the process (Ray: to its descendants too), and after the launch's grace SIGKILL to it and all
        its descendants. Returns at once; unknown refs are ignored. Raises ExecutorUnavailable."""

    def list(self, prefix: str) -> Refs:
        """The refs that start with `prefix`. Raises ExecutorUnavailable."""

    def output(self, ref: str) -> bytes:
        """The end of what a process wrote to stdout and stderr; b"" if the executor cannot read it any more. Raises
        ExecutorUnavailable."""

    def forget(self, ref: str) -> None:
        """Deletes what the executor keeps of a process that has ended. One that is live is kept; unknown refs are
        ignored. Raises ExecutorUnavailable."""

    def close(self) -> None:
        """Releases what the executor holds. Processes on a cluster continue."""
