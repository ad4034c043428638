"""What happens to the first job of the queue: its quota, the nodes, and what is reserved."""

from __future__ import annotations

from typing import Any

import pytest

from mvprune.v1 import job_pb2
from mvprune_service.domain.placement import GpuLimits, Placement, Reserved, Room, resolve
from mvprune_service.executors.base import Capacity, Node

NODES = Capacity((Node(8, 2, 16), Node(4, 0, 8)))
START, OVER_QUOTA, TOO_LARGE, NO_ROOM = Placement


@pytest.mark.parametrize(
    ("running", "wanted", "expected"),
    [
        ((), Reserved(4, 0, 0), START),
        ((), Reserved(8, 2, 16), START),
        ((), Reserved(9, 0, 0), TOO_LARGE),
        ((), Reserved(5, 0, 17), TOO_LARGE),
        ((), Reserved(1, 3, 0), OVER_QUOTA),
        ((), Reserved(9, 3, 0), OVER_QUOTA),
        ([("p", Reserved(1, 1, 0), 2)], Reserved(1, 0.5, 0), OVER_QUOTA),
        ([("other", Reserved(1, 1, 0), 2)], Reserved(1, 0.5, 0), NO_ROOM),
        ([("other", Reserved(1, 0.5, 0), 2)], Reserved(1, 1, 0), START),
        ([("other", Reserved(1, 0.5, 0), 1)], Reserved(1, 2, 0), NO_ROOM),
        ([("other", Reserved(8, 0, 0), 1)], Reserved(4, 0, 0), START),
        ([("other", Reserved(8, 0, 0), 1)], Reserved(5, 0, 0), NO_ROOM),
        ([("other", Reserved(4, 0, 0), 2)], Reserved(4, 0, 0), START),
        ([("other", Reserved(4, 0, 0), 3)], Reserved(1, 0, 0), NO_ROOM),
        ([("other", Reserved(12, 0, 0), 1)], Reserved(1, 0, 0), NO_ROOM),  # it is on no node, and yet it runs
        ([("other", Reserved(0, 0, 24), 1)], Reserved(1, 0, 1), NO_ROOM),
    ],
)
def test_every_placement(running: list[tuple[str, Reserved, int]], wanted: Reserved, expected: Placement) -> None:
    room = Room(NODES, running, GpuLimits({"p": 2.0}, None))
    assert room.place("p", wanted) is expected


def test_parts_start_together_or_not_at_all() -> None:
    nodes = Capacity((Node(2, 1, 8), Node(2, 1, 8), Node(1, 0, 8)))
    room = Room(nodes, (), GpuLimits({}, None))
    assert room.place("p", Reserved(6, 0, 0, parts=3)) is TOO_LARGE, "the third node has one CPU"
    assert room.place("p", Reserved(4, 2, 8, parts=2)) is START
    assert room.place("p", Reserved(1, 1, 0)) is NO_ROOM
    room = Room(nodes, [("q", Reserved(3, 0, 0, parts=3), 1)], GpuLimits({}, None))  # two on the first: nodes of CPUs
    assert room.place("p", Reserved(4, 0, 0, parts=2)) is NO_ROOM, "only one part would fit"
    assert room.place("p", Reserved(2, 0, 0, parts=2)) is START


def test_parts_that_run_leave_each_node_what_is_left_of_it() -> None:
    room = Room(Capacity((Node(3, 0, 8), Node(3, 0, 8))), [("q", Reserved(4, 0, 0, parts=2), 1)], GpuLimits({}, None))
    assert room.place("p", Reserved(2, 0, 0)) is NO_ROOM, "one CPU is free on each node"
    assert room.place("p", Reserved(2, 0, 0, parts=2)) is START


def test_a_quota_counts_all_parts() -> None:
    room = Room(Capacity((Node(4, 2, 8), Node(4, 2, 8))), (), GpuLimits({"p": 3.0}, None))
    assert room.place("p", Reserved(4, 4, 0, parts=2)) is OVER_QUOTA
    assert room.place("q", Reserved(4, 4, 0, parts=4)) is START


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"cpus": 2, "gpus": 0, "workers": 2}, Reserved(4, 0, 0)),
        ({"cpus": 4, "gpus": 0, "workers": 2}, Reserved(8, 0, 0, parts=2)),
        ({"gpus": 1, "workers": 2}, Reserved(8, 2, 0, parts=2)),  # one GPU a node
        ({"cpus": 3, "workers": 2, "memory_bytes": 9}, Reserved(6, 2, 18, parts=2)),
    ],
)
def test_workers_are_parts_where_no_node_has_them_all(asked: dict[str, Any], expected: Reserved) -> None:
    nodes = Capacity((Node(4, 1, 16), Node(4, 1, 16)))
    assert resolve(job_pb2.Resources(**asked), nodes) == expected


def test_what_starts_is_reserved() -> None:
    room = Room(NODES, (), GpuLimits({}, 1.0))
    assert [room.place("p", Reserved(1, 0.5, 0)) for _ in range(3)] == [START, START, OVER_QUOTA]
    assert [room.place("q", Reserved(3, 1, 0)) for _ in range(2)] == [START, OVER_QUOTA]
    assert [room.place("r", Reserved(3, 0, 0)) for _ in range(3)] == [START, START, NO_ROOM]
    assert room.place("r", Reserved(1, 0, 0)) is START


def test_nodes_that_are_not_there_come_last() -> None:
    nodes = Capacity((Node(2, 0, 8, absent="cpu"), Node(4, 0, 8), Node(8, 1, 8, absent="gpu"), Node(16, 1, 8)))
    room = Room(nodes, (), GpuLimits({}, None))
    waits = []
    for cpus in (4, 16, 2, 8):
        assert room.place("p", Reserved(cpus, 0, 0)) is START
        waits.append(room.waits_for)
    assert waits == ["", "", "cpu", "gpu"]
    assert nodes.absent == {"cpu", "gpu"}
    assert nodes.without({"gpu"}).nodes == (nodes.nodes[0], nodes.nodes[1], nodes.nodes[3])
