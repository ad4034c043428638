"""Reads of single rows and pages, and metrics, which are only appended."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, bindparam, func, insert, literal, or_, select

from mvprune_service.db.engine.database import Tx
from mvprune_service.db.engine.statements import Query, fetch_all, fetch_one
from mvprune_service.db.job_order import LabelOrder, Order
from mvprune_service.db.list_page import ListPage
from mvprune_service.db.tables.artifacts import ARTIFACTS, ArtifactRow
from mvprune_service.db.tables.attempts import ATTEMPTS, METRICS, AttemptRow, Live, MetricRow
from mvprune_service.db.tables.jobs import EVENTS, JOBS, REQUESTS, EventRow, JobRow, RequestRow
from mvprune_service.db.tables.sweeps import SWEEPS
from mvprune_service.domain.curves import thin
from mvprune_service.domain.dispatch import DUE_ATTEMPT, DUE_JOB
from mvprune_service.domain.machine import LIVE_ATTEMPTS, JobState
from mvprune_service.ids import ArtifactName, AttemptName, JobName

_JOB_NAMED = Query(
    JobRow, select(JOBS).where(JOBS.c.project == bindparam("in_project"), JOBS.c.job_id == bindparam("named"))
)
_JOB_BY_UID = Query(JobRow, select(JOBS).where(JOBS.c.uid == bindparam("by_uid")))
IS_LIVE = ATTEMPTS.c.state.in_([literal(state) for state in LIVE_ATTEMPTS])
_REQUEST = Query(
    RequestRow,
    select(REQUESTS).where(REQUESTS.c.project == bindparam("in_project"), REQUESTS.c.request_id == bindparam("id")),
)


def job_named(conn: Connection, name: JobName) -> JobRow | None:
    """One job."""
    return _JOB_NAMED.first(conn, {"in_project": name.project, "named": name.job})


def request(conn: Connection, project: str, request_id: str) -> RequestRow | None:
    """The request that made a job under this request id."""
    return _REQUEST.first(conn, {"in_project": project, "id": request_id})


def job_by_uid(conn: Connection, uid: str) -> JobRow | None:
    """One job."""
    return _JOB_BY_UID.first(conn, {"by_uid": uid})


def page_of_jobs(
    conn: Connection,
    project: str,
    wanted: ColumnElement[bool] | None,
    order: Order | LabelOrder,
    after: Sequence[Any] | None,
    size: int,
) -> list[JobRow]:
    """Jobs of a project that match `wanted` (None: all), from just after a key of `order`."""
    every = select(JOBS).where(JOBS.c.project == project)
    if wanted is not None:
        every = every.where(wanted)
    found: list[JobRow] = []
    for part in order.parts(after):
        limited = every.where(*part.where).order_by(*part.order_by).limit(size - len(found))
        found += fetch_all(conn, JobRow, limited)
        if len(found) == size:
            break
    return found


class Changed(NamedTuple):
    """Jobs of a project that have changed: those that match a filter, the names of others by their uids, and the uids
    of jobs that are in no project any more."""

    matching: list[JobRow]
    others: dict[str, JobName]
    gone: set[str]


def changed_jobs(conn: Connection, project: str, uids: Collection[str], wanted: ColumnElement[bool] | None) -> Changed:
    """What became of these jobs; None for `wanted`: all match."""
    known = conn.execute(select(JOBS.c.uid, JOBS.c.project, JOBS.c.job_id).where(JOBS.c.uid.in_(uids)))
    owners = {row.uid: JobName(row.project, row.job_id) for row in known}
    own = {uid: name for uid, name in owners.items() if name.project == project}
    found = select(JOBS).where(JOBS.c.uid.in_(list(own)))
    matching = fetch_all(conn, JobRow, (found if wanted is None else found.where(wanted)).order_by(JOBS.c.uid))
    for row in matching:
        del own[row.uid]
    sweeps = conn.execute(select(SWEEPS.c.uid).where(SWEEPS.c.uid.in_(set(uids) - set(owners)))).scalars()
    return Changed(matching, own, set(uids) - set(owners) - set(sweeps))


def attempts_of(conn: Connection, job_uid: str, after: int, size: int) -> list[AttemptRow]:
    """Attempts of a job, by number."""
    found = select(ATTEMPTS).where(ATTEMPTS.c.job_uid == job_uid, ATTEMPTS.c.number > after)
    return fetch_all(conn, AttemptRow, found.order_by(ATTEMPTS.c.number).limit(size))


def attempt_named(conn: Connection, name: AttemptName) -> AttemptRow | None:
    """One attempt; number None means the job's newest."""
    number = JOBS.c.attempt if name.number is None else name.number
    found = select(ATTEMPTS).join(JOBS, ATTEMPTS.c.job_uid == JOBS.c.uid)
    is_it = JOBS.c.project == name.project, JOBS.c.job_id == name.job, ATTEMPTS.c.number == number
    return fetch_one(conn, AttemptRow, found.where(*is_it))


class _LiveQuery:
    """Attempts that have or may get resources, with their jobs. A server may have ten thousand, so each caller reads
    only those that it does something about."""

    def __init__(self, *where: ColumnElement[bool]) -> None:
        pairs = JOBS.join(ATTEMPTS, ATTEMPTS.c.job_uid == JOBS.c.uid)
        self._jobs = Query(JobRow, select(JOBS).select_from(pairs).where(IS_LIVE, *where))
        self._attempts = Query(AttemptRow, select(ATTEMPTS).select_from(pairs).where(IS_LIVE, *where))

    def all(self, conn: Connection, values: Mapping[str, int] = MappingProxyType({})) -> list[Live]:
        """Those of one moment."""
        jobs = {job.uid: job for job in self._jobs.all(conn, values)}
        return [Live(jobs[row.job_uid], row) for row in self._attempts.all(conn, values)]


_LIVE = _LiveQuery()
_TO_SUBMIT = _LiveQuery(JOBS.c.state == DUE_JOB, ATTEMPTS.c.state == DUE_ATTEMPT)
_OFFERED = _LiveQuery(ATTEMPTS.c.manifest_sha256.is_not(None))
_NOT_OFFERED = _LiveQuery(ATTEMPTS.c.manifest_sha256.is_(None))
_WITHOUT_LEASE = _LiveQuery(
    ATTEMPTS.c.manifest_sha256.is_(None),
    or_(
        JOBS.c.state != JobState.RUNNING,
        func.coalesce(ATTEMPTS.c.lease_expire_us, 0) < bindparam("now_us"),
        ATTEMPTS.c.lease_expire_us > bindparam("latest_us"),
    ),
)


def live_attempts(conn: Connection) -> list[Live]:
    """All of them."""
    return _LIVE.all(conn)


def attempts_to_submit(conn: Connection) -> list[Live]:
    """Those that the executor does not have yet."""
    return _TO_SUBMIT.all(conn)


def offered_attempts(conn: Connection) -> list[Live]:
    """Those with a result."""
    return _OFFERED.all(conn)


def attempts_without_result(conn: Connection) -> list[Live]:
    """Those without a result."""
    return _NOT_OFFERED.all(conn)


def attempts_without_lease(conn: Connection, now_us: int, latest_us: int) -> list[Live]:
    """Those without a result, but for those that run and have a lease that ends between these times."""
    return _WITHOUT_LEASE.all(conn, {"now_us": now_us, "latest_us": latest_us})


def events_of(conn: Connection, job_uid: str, after: int, size: int) -> list[EventRow]:
    """Events of a job after a sequence number."""
    found = select(EVENTS).where(EVENTS.c.job_uid == job_uid, EVENTS.c.sequence > after)
    return fetch_all(conn, EventRow, found.order_by(EVENTS.c.sequence).limit(size))


def add_metrics(tx: Tx, attempt: AttemptRow, points: Sequence[tuple[str, int, float, int]]) -> None:
    """Appends (metric, step, value, time) points. A point that is stored already does not change."""
    known = {
        tuple(row)
        for row in tx.conn.execute(
            select(METRICS.c.metric, METRICS.c.step).where(
                METRICS.c.attempt_uid == attempt.uid, METRICS.c.step.in_({step for _, step, _, _ in points})
            )
        )
    }
    fresh = {(metric, step): (value, time) for metric, step, value, time in points if (metric, step) not in known}
    if fresh:
        tx.conn.execute(
            insert(METRICS),
            [
                {
                    "job_uid": attempt.job_uid,
                    "attempt_uid": attempt.uid,
                    "attempt": attempt.number,
                    "metric": metric,
                    "step": step,
                    "value": value,
                    "time_us": time,
                }
                for (metric, step), (value, time) in fresh.items()
            ],
        )


class Wanted(NamedTuple):
    """Which metric points: of these names (none: all), and of later steps only."""

    metrics: Sequence[str]
    after_step: int | None


EVERY = Wanted((), None)


def metrics_of(conn: Connection, job_uid: str, after: int, size: int, wanted: Wanted = EVERY) -> list[MetricRow]:
    """Metric points of a job, in the order of their arrival."""
    found = _points(job_uid, wanted).where(METRICS.c.id > after)
    return fetch_all(conn, MetricRow, found.order_by(METRICS.c.id).limit(size))


def curves_of(conn: Connection, job_uid: str, wanted: Wanted, most: int) -> list[MetricRow]:
    """At most `most` points of each metric, by metric and step: of a step those of the newest attempt."""
    found = _points(job_uid, wanted).order_by(METRICS.c.metric, METRICS.c.step, METRICS.c.attempt)
    kept: list[MetricRow] = []
    for _, rows in groupby(fetch_all(conn, MetricRow, found), lambda row: row.metric):
        curve = list({row.step: row for row in rows}.values())
        kept += [curve[at] for at in thin([(row.step, row.value) for row in curve], most)]
    return kept


def _points(job_uid: str, wanted: Wanted) -> Select[Any]:
    found = select(METRICS).where(METRICS.c.job_uid == job_uid)
    if wanted.metrics:
        found = found.where(METRICS.c.metric.in_(wanted.metrics))
    return found if wanted.after_step is None else found.where(METRICS.c.step > wanted.after_step)


def _artifacts() -> Select[Any]:
    return select(ARTIFACTS, JOBS.c.job_id).outerjoin(JOBS, ARTIFACTS.c.job_uid == JOBS.c.uid)


def artifact_named(conn: Connection, name: ArtifactName) -> ArtifactRow | None:
    """One artifact."""
    is_it = ARTIFACTS.c.project == name.project, ARTIFACTS.c.sha256 == name.sha256
    return fetch_one(conn, ArtifactRow, _artifacts().where(*is_it))


def page_of_artifacts(conn: Connection, project: str, page: ListPage) -> list[ArtifactRow]:
    """Artifacts of a project."""
    return fetch_all(conn, ArtifactRow, page.of(_artifacts().where(ARTIFACTS.c.project == project)))
