"""What must be true of sweeps and uploads at every moment, and of every change to them."""

from __future__ import annotations

from typing import Any

from mvprune.v1 import sweep_pb2
from mvprune_service.domain.machine import TERMINAL, JobState
from mvprune_service.domain.sweeping import ENDED, LIVE, PointState, SweepState, point_state
from mvprune_service.stores.layout import upload_key

from .neighbours import Objects
from .snapshot import Snapshot


def check_sweeps(seen: Snapshot) -> None:
    """What must be true of every state of sweeps."""
    known = [point.job_uid for own in seen.points.values() for point in own if point.job_uid and not point.reused]
    assert len(known) == len(set(known)), "two points have one job"
    orphans = [job.job_id for job in seen.jobs.values() if job.sweep_id is not None and job.uid not in known]
    assert not orphans, f"{orphans} are of no point"
    for uid, sweep in seen.sweeps.items():
        own = seen.points[uid]
        assert [point.number for point in own] == list(range(1, len(own) + 1))
        sequences = [event.sequence for event in seen.sweep_events[uid]]
        assert sequences == list(range(1, sweep.last_sequence + 1)), "a sweep's events have gaps"
        assert (sweep.end_us is not None) == (sweep.state in ENDED)
        if sweep.state in ENDED:
            live = _live_of(seen, sweep)
            assert not live, f"{sweep.sweep_id} is {sweep.state}, and {live} live"
            states = {_state(point, seen) for point in own}
            assert not states & {*LIVE, PointState.PENDING}, f"{sweep.sweep_id} is {sweep.state}: {sorted(states)}"


def check_sweep_change(before: Snapshot, after: Snapshot, *, expands: bool) -> None:
    """What must be true of every change; `expands`: made by a sweep controller."""
    for uid, old in before.sweeps.items():
        if uid not in after.sweeps:
            assert not expands, f"{old.sweep_id} is lost"
            assert old.state in ENDED, f"{old.sweep_id} was deleted while {old.state}"
            continue
        for point, later in zip(before.points[uid], after.points[uid], strict=False):
            assert (later.cell, later.spec_sha256) == (point.cell, point.spec_sha256), "a point changed"
            if point.result is not None:
                assert later.result == point.result, "a point's result changed"
                assert not later.again, "a point that has a result runs again"
        if expands:
            parallel = sweep_pb2.SweepPolicy.FromString(old.policy).parallel
            live, now = len(_live_of(before, old)), len(_live_of(after, old))
            assert now <= max(live, parallel), f"{now} jobs live, of {parallel} that may"
            assert old.state == SweepState.ACTIVE or now <= live, f"a job was created while {old.state}"


def check_uploads(seen: Snapshot, store: Objects) -> None:
    """What is ready is in the store; what a job uses is there. The objects of a client's chunk that have just been
    deleted with their row do not matter."""
    for chunk in seen.chunks.values():
        if chunk.is_ready:
            assert store.holds(upload_key(chunk.uid), chunk.size_bytes), f"the chunk {chunk.uid} is ready and not there"
    for (project, digest), upload in seen.uploads.items():
        ready = [seen.chunks[project, part.sha256].is_ready for part in seen.parts.get(digest, ())]
        assert upload.ready_us is None or all(ready), f"upload {digest[:8]} is ready and lacks chunks"
    for uid, uses in seen.uses.items():
        for use in uses:
            assert (use.project, use.digest) in seen.uploads, f"the upload of {uid} was deleted"


def _live_of(seen: Snapshot, sweep: Any) -> list[str]:
    jobs = seen.jobs.values()
    return [job.job_id for job in jobs if job.sweep_id == sweep.sweep_id and job.state not in TERMINAL]


def _state(point: Any, seen: Snapshot) -> PointState:
    job = seen.jobs.get(point.job_uid or "")
    return point_state(
        job=JobState(job.state) if job is not None else None,
        had_job=bool(point.job_id),
        again=bool(point.again),
        skipped=bool(point.skip_reason),
        has_result=point.result is not None,
    )
