"""The points that a strategy adds to a sweep once results are there. Other strategies have all points at the start."""

from __future__ import annotations

from collections.abc import Sequence

from mvprune.sweep.tickets.study import key_of
from mvprune.v1 import sweep_pb2
from mvprune_service.db import descents, search
from mvprune_service.db.tables.sweeps import PointRow
from mvprune_service.domain.tickets import next_runs
from mvprune_service.sweeps.descents import is_descent
from mvprune_service.sweeps.points import Proposal
from mvprune_service.sweeps.tickets import point_of, study_of


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
    if spec.HasField("search"):
        return search.next_points(spec, policy, points)
    return _next_runs(spec, points) if spec.HasField("tickets") else Proposal([], is_complete=True)


def _next_runs(spec: sweep_pb2.SweepSpec, points: Sequence[PointRow]) -> Proposal:
    """The next runs of a study of lottery tickets. They are known by their cells, as the job of a mask may have another
    id after a retry."""
    known = {key_of(point.cell): point for point in points}
    found = next_runs(study_of(spec).runs(), {key: point.state for key, point in known.items()})
    jobs = (known[run.mask.key].job_id if run.mask else "" for run in found.runs)
    return Proposal([point_of(spec, run, job) for run, job in zip(found.runs, jobs, strict=True)], found.is_complete)
