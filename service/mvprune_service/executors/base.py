"""The one seam that knows where workers run.

An executor starts one supervisor process per attempt. SQL is the truth; what an executor says about a
process is an observation, and an executor that cannot be asked answers UNKNOWN, never GONE.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol


class ExecutorUnavailable(Exception):
    """The executor cannot be reached now. Nothing is known about its processes."""


@dataclass(frozen=True)
class Launch:
    """What to start: the same `ref` always means the same attempt."""

    ref: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)  # holds the attempt's credential
    cpus: float = 1.0
    gpus: float = 0.0
    memory_bytes: int = 0  # 0: not reserved


@dataclass(frozen=True)
class Capacity:
    """Resources of all nodes together, and of the largest node (what one attempt can get at most)."""

    cpus: float
    gpus: float
    memory_bytes: int
    largest_cpus: float
    largest_gpus: float
    largest_memory_bytes: int


class Phase(Enum):
    """What is known about one started process."""

    PENDING = "PENDING"  # accepted, not running yet
    RUNNING = "RUNNING"
    EXITED = "EXITED"
    GONE = "GONE"  # the executor can be asked and has no such process
    UNKNOWN = "UNKNOWN"  # the executor cannot be asked; decides nothing


@dataclass(frozen=True)
class Observation:
    """One look at a process; `exit_code` only with EXITED, and only where the executor knows it."""

    phase: Phase
    exit_code: int | None = None
    detail: str = ""  # for people


class Executor(Protocol):
    """Starts, observes and stops supervisors. Methods block: call them from a thread."""

    @property
    def name(self) -> str:
        """Short name for logs and events: `ray`, `local`."""

    def capacity(self) -> Capacity:
        """Total resources. Raises ExecutorUnavailable."""

    def submit(self, launch: Launch) -> None:
        """Starts `launch`, once: a second call with the same ref changes nothing. Raises ExecutorUnavailable."""

    def observe(self, ref: str) -> Observation:
        """Looks at one process. Never raises for an executor that is away: UNKNOWN."""

    def stop(self, ref: str, grace: float) -> None:
        """SIGTERM to the process, SIGKILL to its group after `grace` seconds. Returns at once; unknown refs are
        ignored. Raises ExecutorUnavailable."""

    def list(self, prefix: str) -> list[str]:
        """The refs that are pending or running and start with `prefix`. Raises ExecutorUnavailable."""

    def close(self) -> None:
        """Releases what this object holds. Processes it started on a cluster go on."""
