"""The next runs of a study of lottery tickets: domain/tickets.py on the points of a sweep."""

from __future__ import annotations

from collections.abc import Sequence

from mvprune.sweep.tickets.study import key_of
from mvprune.v1 import sweep_pb2
from mvprune_service.db.tables.sweeps import PointRow
from mvprune_service.domain.tickets import next_runs
from mvprune_service.sweeps.points import Proposal
from mvprune_service.sweeps.tickets import point_of, study_of


def next_points(spec: sweep_pb2.SweepSpec, policy: sweep_pb2.SweepPolicy, points: Sequence[PointRow]) -> Proposal:
    """The points to add now: runs are known by their cells, as the job of a mask may have another id after a retry."""
    known = {key_of(point.cell): point for point in points}
    found = next_runs(study_of(spec).runs(), {key: point.state for key, point in known.items()})
    jobs = (known[run.mask.key].job_id if run.mask else "" for run in found.runs)
    return Proposal([point_of(spec, run, job) for run, job in zip(found.runs, jobs, strict=True)], found.is_complete)
