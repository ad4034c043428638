"""What must be true whatever was killed, as assertions over the database, the store and the processes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from sqlalchemy import Connection, create_engine, select

from mvprune_service.db.tables.artifacts import ARTIFACTS
from mvprune_service.db.tables.attempts import ATTEMPTS
from mvprune_service.db.tables.jobs import EVENTS, JOBS, REQUESTS
from mvprune_service.domain.machine import LIVE_ATTEMPTS, TERMINAL, TRANSITIONS, Command, JobState
from mvprune_service.stores import open_store
from mvprune_service.stores.layout import verify

from .counts import COUNTS
from .harness import Record, Server, eventually, settle


def check(server: Server, records: list[Record], timeout: float = 90) -> Counter[str]:
    """Waits until all jobs have ended, then asserts all invariants; returns how many jobs ended in which state."""
    settle(server, records, timeout)
    eventually(lambda: not server.processes(), 20, lambda: f"left behind: {server.processes()}\n{server.tail()}")
    engine = create_engine(server.database)
    with engine.connect() as conn:
        jobs = conn.execute(select(JOBS)).all()
        _each_accepted_job_is_there_once(conn, jobs, records)
        events, attempts = _by_job(conn, EVENTS, "sequence"), _by_job(conn, ATTEMPTS, "number")
        for job in jobs:
            _tells_a_legal_story(job, events[job.uid])
            _never_had_two_live_attempts(job, attempts[job.uid])
        published = _is_published_only_if_it_succeeded(conn, jobs, attempts)
    engine.dispose()
    store = open_store(server.store)
    for sha256 in published:
        verify(store, sha256)
    states = Counter(job.state for job in jobs)
    COUNTS.update(states)
    COUNTS["artifacts"] += len(published)
    return states


def _by_job(conn: Connection, table: Any, order: str) -> dict[str, list[Any]]:
    rows = defaultdict(list)
    for row in conn.execute(select(table).order_by(table.c[order])):
        rows[row.job_uid].append(row)
    return rows


def _each_accepted_job_is_there_once(conn: Connection, jobs: Sequence[Any], records: list[Record]) -> None:
    found = conn.execute(select(REQUESTS.c.request_id, REQUESTS.c.job_uid))
    by_request = dict(found.all())
    by_uid = {job.uid: job for job in jobs}
    for record in records:
        if record.deleted:
            continue
        job = by_uid[by_request.pop(record.request_id)]
        assert f"projects/{job.project}/jobs/{job.job_id}" == record.name
        assert job.state in TERMINAL
        expected = JobState.FAILED if record.failed else JobState.SUCCEEDED
        assert record.cancelled or job.state == expected, (job.state, job.failure_reason, job.failure_message)
        by_uid.pop(job.uid)
    # One request may be without its answer: the last of a load that was stopped. No job is without a request.
    assert set(by_uid) == set(by_request.values())
    names = {f"projects/{job.project}/jobs/{job.job_id}" for job in by_uid.values()}
    assert not names & {record.name for record in records if record.deleted}, "a deleted job is back"


def _tells_a_legal_story(job: Any, events: list[Any]) -> None:
    assert [event.sequence for event in events] == list(range(1, job.last_sequence + 1))
    assert (events[0].from_state, events[0].to_state) == (None, JobState.QUEUED)
    for before, event in pairwise(events):
        assert event.from_state == before.to_state
        assert TRANSITIONS[JobState(event.from_state), Command(event.type)] == event.to_state
    assert events[-1].to_state == job.state
    assert [event.type for event in events].count(Command.PUBLISH) == (job.state == JobState.SUCCEEDED)
    assert sum(event.to_state in TERMINAL for event in events) == 1


def _never_had_two_live_attempts(job: Any, attempts: list[Any]) -> None:
    assert [attempt.number for attempt in attempts] == list(range(1, job.attempt + 1))
    assert not [attempt for attempt in attempts if attempt.state in LIVE_ATTEMPTS]
    for before, after in pairwise(attempts):
        assert before.end_us <= after.create_us
        assert before.fencing_token < after.fencing_token


def _is_published_only_if_it_succeeded(
    conn: Connection, jobs: Sequence[Any], attempts: dict[str, list[Any]]
) -> set[str]:
    artifacts = conn.execute(select(ARTIFACTS)).all()
    by_job = {artifact.job_uid: artifact for artifact in artifacts if artifact.job_uid is not None}
    assert len(by_job) == sum(artifact.job_uid is not None for artifact in artifacts), "published twice"
    assert set(by_job) == {job.uid for job in jobs if job.state == JobState.SUCCEEDED}
    for job in jobs:
        if job.state == JobState.SUCCEEDED:
            assert by_job[job.uid].sha256 == job.artifact_sha256
            offered = [attempt.manifest_sha256 for attempt in attempts[job.uid] if attempt.state == "SUCCEEDED"]
            assert offered == [job.artifact_sha256]
    return {artifact.sha256 for artifact in artifacts}
