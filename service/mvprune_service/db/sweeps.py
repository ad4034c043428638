"""Commands of users on a sweep: one function for each command, inside the caller's transaction.

All changes to sweeps, those of expansion.py too, go through `touch` and `record`: the version, the event and the
announcement are in one place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, exists, func, insert, select, update

from mvprune.v1 import sweep_pb2
from mvprune_service.db import lifecycle, outbox, sweep_records
from mvprune_service.db.engine.database import Tx
from mvprune_service.db.engine.statements import fetch_one
from mvprune_service.db.lifecycle import EtagMismatch, NotTerminal, canonical
from mvprune_service.db.tables.jobs import JOBS, JobColumns
from mvprune_service.db.tables.sweeps import POINTS, SWEEP_EVENTS, SWEEP_REQUESTS, SWEEPS, SweepRow
from mvprune_service.db.upload_uses import use_in_sweep
from mvprune_service.domain.leases import StaleLease
from mvprune_service.domain.machine import TERMINAL
from mvprune_service.domain.sweeping import ENDED, REPEATABLE, Reason, SweepCommand, SweepState, transition
from mvprune_service.ids import SweepName, new_uid
from mvprune_service.sweeps.points import NewPoint

_NO_DETAILS: Mapping[str, str] = {}


@dataclass(frozen=True)
class NewSweep:
    """The content of a new sweep.

    Attributes:
        spec: its job policy includes the defaults.
        policy: includes the defaults.
        model_sizes: model to its ModelSize, in base64.
        inputs_us: when the newest of its input files was modified.
        uploads: references to the uploads that its jobs need.
    """

    project: str
    sweep_id: str
    spec: sweep_pb2.SweepSpec
    policy: sweep_pb2.SweepPolicy
    creator: str
    display_name: str
    labels: Mapping[str, str]
    notes: Sequence[str]
    model_sizes: Mapping[str, str]
    inputs_us: int
    points: Sequence[NewPoint]
    uploads: Collection[str] = ()


def create(tx: Tx, new: NewSweep, *, actor: str) -> SweepRow:
    """∅ → ACTIVE, with the rows of its points. Raises NoUpload."""
    uid = new_uid(tx.now)
    tx.conn.execute(
        insert(SWEEPS).values(
            uid=uid,
            project=new.project,
            sweep_id=new.sweep_id,
            display_name=new.display_name,
            spec=canonical(new.spec),
            policy=canonical(new.policy),
            labels=dict(new.labels),
            notes=list(new.notes),
            model_sizes=dict(new.model_sizes),
            creator=new.creator,
            inputs_us=new.inputs_us,
            state=SweepState.ACTIVE,
            state_reason="",
            front=[],
            create_us=tx.now,
            active_us=tx.now,
            update_us=tx.now,
            version=1,
            last_sequence=0,
        )
    )
    sweep = _reload(tx, uid)
    use_in_sweep(tx, uid, new.project, new.uploads)
    add_points(tx, sweep, new.points)
    record(tx, sweep, "SWEEP_CREATED", actor, {"points": str(len(new.points))})
    return _reload(tx, uid)


def remember_request(tx: Tx, sweep: SweepRow, request_id: str, body_sha256: str) -> None:
    """From now on a request with this id returns this sweep."""
    tx.conn.execute(
        insert(SWEEP_REQUESTS).values(
            project=sweep.project,
            request_id=request_id,
            body_sha256=body_sha256,
            sweep_uid=sweep.uid,
            create_us=tx.now,
        )
    )


def lock_sweep(tx: Tx, uid: str) -> SweepRow | None:
    """The row of a sweep, locked until the transaction ends; None if it is not there, or is locked already."""
    found = select(SWEEPS).where(SWEEPS.c.uid == uid)
    return fetch_one(tx.conn, SweepRow, found.with_for_update(skip_locked=True))


def lock_sweep_named(tx: Tx, name: SweepName) -> SweepRow | None:
    """The row of a sweep, locked until the transaction ends."""
    found = select(SWEEPS).where(SWEEPS.c.project == name.project, SWEEPS.c.sweep_id == name.sweep)
    return fetch_one(tx.conn, SweepRow, found.with_for_update())


def add_points(tx: Tx, sweep: SweepRow, points: Iterable[NewPoint]) -> int:
    """Appends the points that the sweep does not have yet. Returns how many."""
    of_sweep = POINTS.c.sweep_uid == sweep.uid
    known = set(tx.conn.execute(select(POINTS.c.spec_sha256).where(of_sweep)).scalars())
    last = tx.conn.execute(select(func.max(POINTS.c.number)).where(of_sweep)).scalar() or 0
    rows = list[dict[str, Any]]()
    for point in points:
        digest = point.sha256
        if digest in known:
            continue
        known.add(digest)
        rows.append(
            {
                "sweep_uid": sweep.uid,
                "number": last + len(rows) + 1,
                "cell": dict(point.cell),
                "spec": point.serialized,
                "spec_sha256": digest,
                "job_id": "",
                "reused": False,
                "again": False,
                "skip_reason": "",
            }
        )
    if rows:
        tx.conn.execute(insert(POINTS), rows)
    return len(rows)


def cancel(tx: Tx, sweep: SweepRow, *, reason: str, actor: str, etag: str = "") -> SweepRow:
    """ACTIVE, PAUSED → CANCELLING. Raises EtagMismatch, and IllegalSweepCommand for SUCCEEDED and FAILED."""
    return _command(tx, sweep, SweepCommand.CANCEL, actor, etag, {"reason": reason} if reason else {})


def pause(tx: Tx, sweep: SweepRow, *, actor: str, etag: str = "") -> SweepRow:
    """ACTIVE → PAUSED. Raises EtagMismatch, IllegalSweepCommand."""
    return _command(tx, sweep, SweepCommand.PAUSE, actor, etag)


def resume(tx: Tx, sweep: SweepRow, *, actor: str, etag: str = "") -> SweepRow:
    """PAUSED → ACTIVE. Raises EtagMismatch, IllegalSweepCommand."""
    return _command(tx, sweep, SweepCommand.RESUME, actor, etag)


def retry(tx: Tx, sweep: SweepRow, *, actor: str, etag: str = "") -> SweepRow:
    """Marks what has no result to run again. Raises EtagMismatch, and IllegalSweepCommand for CANCELLING."""
    transition(sweep.state, SweepCommand.RETRY)
    _check_etag(sweep, etag)
    missing = [
        point
        for point in sweep_records.points_of(tx.conn, sweep.uid)
        if point.state in REPEATABLE and point.skip_reason != Reason.EARLY
    ]
    if not missing:
        return sweep
    for point in missing:
        changed: dict[str, Any] = {"again": True} if point.job_uid is not None else {"job_id": "", "reused": False}
        set_point(tx, sweep, point.number, skip_reason="", **changed)
    return _command(tx, sweep, SweepCommand.RETRY, actor, "", {"points": str(len(missing))}, active_us=tx.now)


def extend(
    tx: Tx,
    sweep: SweepRow,
    points: Iterable[NewPoint],
    *,
    actor: str,
    etag: str = "",
    uploads: Collection[str] = (),
    **values: Any,
) -> SweepRow:
    """Appends points. Raises EtagMismatch, IllegalSweepCommand, NoUpload.

    Args:
        uploads: references to the uploads that their jobs need.
        values: columns that change with it.
    """
    check_extensible(sweep, etag)
    use_in_sweep(tx, sweep.uid, sweep.project, uploads)
    added = add_points(tx, sweep, points)
    if not added and values.get("spec", sweep.spec) == sweep.spec:  # a study takes values whose points come later
        return sweep
    details = {"points": str(added)}
    again = {"active_us": tx.now} if sweep.state in ENDED else {}
    return _command(tx, sweep, SweepCommand.EXTEND, actor, "", details, **again, **values)


def check_extensible(sweep: SweepRow, etag: str) -> None:
    """Raises EtagMismatch, IllegalSweepCommand for a sweep that takes no further points."""
    transition(sweep.state, SweepCommand.EXTEND)
    _check_etag(sweep, etag)


def update_policy(tx: Tx, sweep: SweepRow, policy: sweep_pb2.SweepPolicy, *, actor: str, etag: str = "") -> SweepRow:
    """Replaces the policy. Raises EtagMismatch."""
    _check_etag(sweep, etag)
    stored = canonical(policy)
    if stored == sweep.policy:
        return sweep
    record(tx, sweep, "POLICY_UPDATED", actor, {}, policy=stored)
    return _reload(tx, sweep.uid)


def remove(tx: Tx, sweep: SweepRow, *, etag: str = "") -> None:
    """Deletes a sweep that has ended, with the jobs that it created. Raises EtagMismatch, and NotTerminal where the
    sweep or one of its jobs has not ended."""
    _check_etag(sweep, etag)
    own = (JOBS.c.project == sweep.project, JOBS.c.sweep_id == sweep.sweep_id)
    if (
        sweep.state not in ENDED
        or tx.conn.execute(select(exists().where(*own, JOBS.c.state.not_in(TERMINAL)))).scalar()
    ):
        raise NotTerminal
    tx.changed.update(tx.conn.execute(delete(JOBS).where(*own).returning(JOBS.c.uid)).scalars())
    tx.conn.execute(delete(SWEEPS).where(SWEEPS.c.uid == sweep.uid))
    tx.changed.add(sweep.uid)


def set_point(tx: Tx, sweep: SweepRow, number: int, **values: Any) -> None:
    """Changes a point."""
    is_it = (POINTS.c.sweep_uid == sweep.uid, POINTS.c.number == number)
    tx.conn.execute(update(POINTS).where(*is_it).values(**values))


def record(tx: Tx, sweep: SweepRow, kind: str, actor: str, details: Mapping[str, str], **values: Any) -> None:
    """Changes a sweep, with an event. Raises StaleLease."""
    sequence = sweep.last_sequence + 1
    touch(tx, sweep, last_sequence=sequence, **values)
    tx.conn.execute(
        insert(SWEEP_EVENTS).values(
            sweep_uid=sweep.uid, sequence=sequence, time_us=tx.now, type=kind, actor=actor, details=dict(details)
        )
    )
    outbox.sweep_changed(tx, sweep, sequence, values)


def touch(tx: Tx, sweep: SweepRow, **values: Any) -> None:
    """Changes a sweep. Raises StaleLease."""
    is_it = (SWEEPS.c.uid == sweep.uid, SWEEPS.c.version == sweep.version)
    result = tx.conn.execute(update(SWEEPS).where(*is_it).values(version=sweep.version + 1, update_us=tx.now, **values))
    if result.rowcount != 1:
        raise StaleLease("the sweep changed meanwhile")
    tx.changed.add(sweep.uid)


def cancel_baselines(tx: Tx, sweep: SweepRow, teachers: Iterable[str], *, actor: str, grace_us: int) -> bool:
    """Cancels those of the dense jobs that were created for students and that no other job waits for. Returns whether
    one of these has not ended yet."""
    is_live = False
    for uid in sorted(set(teachers)):
        student = JOBS.alias("student").with_cols(JobColumns)
        awaited = exists().where(student.c.teacher_uid == uid, student.c.state.not_in(TERMINAL))
        job = lifecycle.lock_job(tx, uid)
        if job is None or job.teacher_key is None or job.state in TERMINAL or tx.conn.execute(select(awaited)).scalar():
            continue
        reason = f"no job of the sweep {sweep.sweep_id} waits for it any more"
        is_live |= lifecycle.cancel(tx, job, reason=reason, grace_us=grace_us, actor=actor).state not in TERMINAL
    return is_live


def _command(
    tx: Tx,
    sweep: SweepRow,
    command: SweepCommand,
    actor: str,
    etag: str,
    details: Mapping[str, str] = _NO_DETAILS,
    **values: Any,
) -> SweepRow:
    state = transition(sweep.state, command)
    _check_etag(sweep, etag)
    if state is sweep.state and not (details or values):
        return sweep
    if state is sweep.state and command is SweepCommand.CANCEL:
        return sweep
    end = {"end_us": None} if sweep.state in ENDED and state not in ENDED else {}
    record(tx, sweep, command.value, actor, details, state=state, state_reason="", **end, **values)
    return _reload(tx, sweep.uid)


def _check_etag(sweep: SweepRow, etag: str) -> None:
    if etag and etag != str(sweep.version):
        raise EtagMismatch


def _reload(tx: Tx, uid: str) -> SweepRow:
    found = sweep_records.sweep_by_uid(tx.conn, uid)
    if found is None:
        raise StaleLease("the sweep was deleted meanwhile")
    return found
