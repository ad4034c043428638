"""The points that a strategy adds to a sweep once results are there. Other strategies have all points at the start."""

from __future__ import annotations

from collections.abc import Sequence

from mvprune.v1 import sweep_pb2
from mvprune_service.db import descents, search, tickets
from mvprune_service.db.tables.sweeps import PointRow
from mvprune_service.sweeps.descents import is_descent
from mvprune_service.sweeps.points import Proposal

_STRATEGIES = {"search": search.next_points, "tickets": tickets.next_points}


def propose(
    spec: sweep_pb2.SweepSpec, policy: sweep_pb2.SweepPolicy, points: Sequence[PointRow], elapsed: float
) -> Proposal:
    """The points to add now.

    Args:
        points: all of the sweep, with the results of jobs that have SUCCEEDED.
        elapsed: seconds for which the sweep has been active.
    """
    if is_descent(spec):
        return descents.next_points(spec, policy, points, elapsed)
    next_points = _STRATEGIES.get(str(spec.WhichOneof("strategy")))
    return Proposal([], is_complete=True) if next_points is None else next_points(spec, policy, points)
