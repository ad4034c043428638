"""What happens to the first job of the queue: its quota, the nodes, and what is reserved."""

from __future__ import annotations

import pytest

from mvprune_service.domain.placement import GpuLimits, Placement, Reserved, Room
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
