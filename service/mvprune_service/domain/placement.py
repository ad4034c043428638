"""Which queued job starts next, and on what: the capacity of the cluster beside what is reserved.

Jobs are taken in the order of their rank (times.py). All jobs grow older at the same rate, so none waits for ever.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter

from mvprune.v1 import job_pb2
from mvprune_service.executors.base import Capacity, Node

_CPUS_BESIDE_A_GPU = 4.0
_CPUS_WITHOUT_GPU = 8.0
_ROUNDING = 1e-6  # of sums of shares


@dataclass(frozen=True)
class Reserved:
    """The resources that are reserved for an attempt.

    Attributes:
        parts: how many equal parts it consists of. Each part is of one node; parts may be of different nodes.
    """

    cpus: float
    gpus: float
    memory_bytes: int
    parts: int = 1

    @property
    def part(self) -> Reserved:
        """One of its parts."""
        return Reserved(self.cpus / self.parts, self.gpus / self.parts, self.memory_bytes // self.parts)


@dataclass(frozen=True)
class GpuLimits:
    """How many GPUs each project may have reserved at a time; None: as many as there are."""

    own: Mapping[str, float]
    default: float | None

    def of(self, project: str) -> float | None:
        """The limit of one project."""
        return self.own.get(project, self.default)


class Placement(Enum):
    """The decision on the first job of the queue."""

    START = "START"
    OVER_QUOTA = "OVER_QUOTA"  # it waits, and with it all jobs of its project
    TOO_LARGE = "TOO_LARGE"  # empty nodes could not run it: it waits, the others go on
    NO_ROOM = "NO_ROOM"  # it waits, and all jobs behind it, or it might wait for ever


class _Free:
    """The resources of a node that are not reserved."""

    def __init__(self, node: Node) -> None:
        self.absent = node.absent
        self._cpus = node.cpus
        self._memory_bytes = node.memory_bytes
        self._gpus = [1.0] * int(node.gpus)  # free share of each, in ascending order

    def take(self, wanted: Reserved) -> bool:
        """Reserves resources if they are free: whole GPUs, or a share of the fullest GPU that has it."""
        share, number = min(wanted.gpus, 1.0), math.ceil(wanted.gpus)
        first = bisect_left(self._gpus, share - _ROUNDING)
        if (
            wanted.cpus > self._cpus + _ROUNDING
            or wanted.memory_bytes > self._memory_bytes
            or first + number > len(self._gpus)
        ):
            return False
        self._cpus -= wanted.cpus
        self._memory_bytes -= wanted.memory_bytes
        for index in range(first, first + number):
            self._gpus[index] -= share
        self._gpus.sort()
        return True


class Room:
    """The free resources of the cluster, and of each project's share of its GPUs.

    The database does not say on which node the executor put a running attempt. So running attempts are packed here, the
    largest first, each on the first node that has room, nodes with the fewest GPUs first. If the executor packed them
    differently, an attempt may be started too late, after another has ended, or too early: then it waits in the
    executor, which uses up none of its job's attempts. Nodes that are not there come last.

    Args:
        running: the project of live attempts, what each of them has reserved, and their number; the largest first.
    """

    def __init__(self, capacity: Capacity, running: Iterable[tuple[str, Reserved, int]], gpu_limits: GpuLimits) -> None:
        self._capacity = capacity
        self._limits = gpu_limits
        by_size = sorted(capacity.nodes, key=attrgetter("gpus", "cpus", "memory_bytes"))
        self._nodes = [_Free(node) for node in sorted(by_size, key=lambda node: bool(node.absent))]
        self.waits_for = ""
        self._used = Reserved(0.0, 0.0, 0)
        self._gpus: dict[str, float] = {}
        for project, reserved, number in running:
            self._pack(reserved, number)
            self._count(project, reserved, number)

    def place(self, project: str, wanted: Reserved) -> Placement:
        """Decides about the first job of the queue. START reserves what it wants; `waits_for` is then the type of the
        node that has to be added for it, or ""."""
        limit = self._limits.of(project)
        if limit is not None and wanted.gpus and self._gpus.get(project, 0.0) + wanted.gpus > limit + _ROUNDING:
            return Placement.OVER_QUOTA
        if not can_hold(self._capacity, wanted):
            return Placement.TOO_LARGE
        # The sum must fit too: attempts that were packed on no node, as after the loss of one, run somewhere.
        if not (self._is_left(wanted) and self._pack(wanted, 1)):
            return Placement.NO_ROOM
        self._count(project, wanted, 1)
        return Placement.START

    def _is_left(self, wanted: Reserved) -> bool:
        used, capacity = self._used, self._capacity
        return (
            used.cpus + wanted.cpus <= capacity.cpus + _ROUNDING
            and used.gpus + wanted.gpus <= capacity.gpus + _ROUNDING
            and used.memory_bytes + wanted.memory_bytes <= capacity.memory_bytes
        )

    def _pack(self, given: Reserved, number: int) -> bool:
        """Packs a number of equal attempts onto nodes. Returns whether all parts of all of them fit."""
        left, part = number * given.parts, given.part
        for node in self._nodes:
            while left and node.take(part):
                left -= 1
                self.waits_for = node.absent
        return not left

    def _count(self, project: str, given: Reserved, number: int) -> None:
        used, gpus = self._used, number * given.gpus
        memory_bytes = used.memory_bytes + number * given.memory_bytes
        self._used = Reserved(used.cpus + number * given.cpus, used.gpus + gpus, memory_bytes)
        self._gpus[project] = self._gpus.get(project, 0.0) + gpus


def can_hold(capacity: Capacity, wanted: Reserved) -> bool:
    """Whether the nodes have room for all parts while nothing else runs on them."""
    left, part = wanted.parts, wanted.part
    for node in capacity.nodes:
        free = _Free(node)
        while left and free.take(part):
            left -= 1
        if not left:
            return True
    return False


def resolve(asked: job_pb2.Resources, capacity: Capacity) -> Reserved:
    """The resources for a job, of all its workers. They run on one node if any has so much, and each of them is a part
    by itself otherwise. What the job leaves open is taken from the nodes that have the rest: a GPU for each worker if
    any of these nodes has so many, only CPUs otherwise."""
    workers, least = workers_of(asked), together(asked)
    nodes = [node for node in capacity.nodes if node.has(least.cpus, least.gpus, least.memory_bytes)]
    if workers > 1 and not nodes:
        each = job_pb2.Resources()
        each.CopyFrom(asked)
        each.workers = 1
        one = resolve(each, capacity)
        return Reserved(workers * one.cpus, workers * one.gpus, workers * one.memory_bytes, workers)
    gpus = least.gpus if asked.HasField("gpus") else workers * float(any(node.gpus >= workers for node in nodes))
    usual = _CPUS_BESIDE_A_GPU * max(workers, gpus) if gpus else _CPUS_WITHOUT_GPU * workers
    most = max((node.cpus for node in nodes if node.gpus >= gpus), default=0.0)
    cpus = least.cpus if asked.HasField("cpus") else min(usual, most)
    return Reserved(cpus=cpus, gpus=gpus, memory_bytes=least.memory_bytes)


def workers_of(asked: job_pb2.Resources) -> int:
    """How many workers a job has."""
    return max(1, asked.workers)


def ranks_of(asked: job_pb2.Resources) -> int:
    """How many processes train together: one for each whole GPU, or for each worker without one."""
    return workers_of(asked) * max(1, math.floor(asked.gpus))


def together(asked: job_pb2.Resources) -> Reserved:
    """The resources that all workers of a job ask for; 0 if it is left open."""
    workers = workers_of(asked)
    return Reserved(workers * asked.cpus, workers * asked.gpus, workers * asked.memory_bytes)
