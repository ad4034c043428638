"""What must be true of the database at every moment, and of every change to it."""

from __future__ import annotations

import gzip
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

from sqlalchemy import Engine, Row, func, select

from mvprune.v1 import job_pb2
from mvprune_service.db.tables.artifacts import ARTIFACTS
from mvprune_service.db.tables.attempts import ATTEMPTS, CHECKPOINTS, LOG_CHUNKS, LOGS, METRICS
from mvprune_service.db.tables.jobs import EVENTS, JOBS
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.machine import LIVE_ATTEMPTS, TERMINAL, TRANSITIONS, Command, JobState
from mvprune_service.stores.checkpoints import checkpoint_prefix
from mvprune_service.stores.layout import blob_key, manifest_key
from mvprune_service.stores.log_chunks import log_chunk_key

from .model_neighbours import CPUS, MemoryStore

WORD = b"log"  # what workers write, again and again
_CARRIED = {JobState.STARTING, JobState.RUNNING, JobState.FINALIZING, JobState.CANCELLING}
_Rows = Mapping[Any, Row[Any]]


@dataclass(frozen=True)
class Snapshot:
    """All that is in the database, at one moment."""

    jobs: _Rows
    attempts: _Rows
    events: Mapping[str, Sequence[Row[Any]]]
    artifacts: _Rows
    checkpoints: _Rows
    logs: Mapping[str, Sequence[Row[Any]]]  # rows of each attempt
    log_chunks: Mapping[str, Sequence[Row[Any]]]
    metrics: Mapping[str, int]  # number of each attempt

    def attempts_of(self, job_uid: str) -> list[Row[Any]]:
        """A job's attempts, by number."""
        return sorted((row for row in self.attempts.values() if row.job_uid == job_uid), key=lambda row: row.number)

    def is_live(self, attempt_uid: str) -> bool:
        """Whether a worker of this attempt may still be believed."""
        row = self.attempts.get(attempt_uid)
        return row is not None and row.state in LIVE_ATTEMPTS

    def differences(self, other: Snapshot) -> list[str]:
        """What differs, by name."""
        return [field.name for field in fields(self) if getattr(self, field.name) != getattr(other, field.name)]


def take(engine: Engine) -> Snapshot:
    """Reads everything."""
    with engine.connect() as conn:
        events: dict[str, list[Row[Any]]] = defaultdict(list)
        for event in conn.execute(select(EVENTS).order_by(EVENTS.c.sequence)):
            events[event.job_uid].append(event)
        logs: dict[str, list[Row[Any]]] = defaultdict(list)
        log_chunks: dict[str, list[Row[Any]]] = defaultdict(list)
        for table, found in ((LOGS, logs), (LOG_CHUNKS, log_chunks)):
            for row in conn.execute(select(table).order_by(table.c.offset)):
                found[row.attempt_uid].append(row)
        points = select(METRICS.c.attempt_uid, func.count()).group_by(METRICS.c.attempt_uid)
        jobs, attempts = (conn.execute(select(row)).all() for row in (JOBS, ATTEMPTS))
        artifacts, checkpoints = (conn.execute(select(row)).all() for row in (ARTIFACTS, CHECKPOINTS))
        return Snapshot(
            jobs={row.uid: row for row in sorted(jobs, key=lambda row: int(row.create_us))},
            attempts={row.uid: row for row in attempts},
            events=dict(events),
            artifacts={(row.project, row.sha256): row for row in artifacts},
            checkpoints={(row.attempt_uid, row.step): row for row in checkpoints},
            logs=dict(logs),
            log_chunks=dict(log_chunks),
            metrics=dict(row._tuple() for row in conn.execute(points)),
        )


def check_moment(seen: Snapshot, store: MemoryStore, now: int) -> None:
    """What must be true of every state."""
    for job in seen.jobs.values():
        _check_history(job, seen.events[job.uid])
        _check_attempts(job, seen)
        assert (job.end_us is not None) == (job.state in TERMINAL), f"{job.job_id}: end_time in {job.state}"
        assert (job.artifact_sha256 is not None) == (job.state == JobState.SUCCEEDED), f"{job.job_id}: artifact"
        if job.state == JobState.SUCCEEDED:
            expired = job.expire_us is not None and job.expire_us < now
            assert (job.project, job.artifact_sha256) in seen.artifacts or expired, f"{job.job_id}: no artifact's row"
        _check_gates(job)
        if job.teacher_uid is not None and job.attempt:
            assert job.teacher_sha256 is not None, f"{job.job_id} was started before its teacher ended"
    reserved = sum(row.cpus for row in seen.attempts.values() if row.state in LIVE_ATTEMPTS)
    assert reserved <= CPUS, f"{reserved} CPUs are reserved"
    for row in seen.artifacts.values():
        assert store.holds(manifest_key(row.sha256), row.manifest_bytes), "an artifact has no manifest"
        whole = [store.holds(blob_key(file["sha256"]), file["size_bytes"]) for file in row.manifest["files"]]
        assert all(whole), "an artifact lacks files"
    for row in seen.checkpoints.values():
        assert store.holds(checkpoint_prefix(row.attempt_uid, row.step) + "manifest.json"), "a checkpoint is torn"
    for uid, attempt in seen.attempts.items():
        log = _log(uid, seen, store)
        assert log == (WORD * attempt.log_bytes)[: attempt.log_bytes], f"the log of {uid} is {log!r}"


def check_change(before: Snapshot, after: Snapshot, *, deletes: bool) -> None:
    """What must be true of every change; `deletes`: made by who may delete jobs."""
    for uid, job in before.jobs.items():
        if uid not in after.jobs:
            assert deletes, f"{job.job_id} is lost"
            assert job.state in TERMINAL, f"{job.job_id} was deleted while {job.state}"
            continue
        assert after.jobs[uid].fencing_token >= job.fencing_token, f"{job.job_id}: its fencing token fell"
        assert list(after.events[uid][: len(before.events[uid])]) == list(before.events[uid]), "history was rewritten"
        if job.state == JobState.SUCCEEDED:
            assert after.jobs[uid] == job, f"{job.job_id} changed after its end"
    for key, artifact in after.artifacts.items():
        if key not in before.artifacts:
            makers = [job.state for job in after.jobs.values() if job.artifact_sha256 == artifact.sha256]
            assert JobState.SUCCEEDED in makers, "an artifact has a row and no job"
    for uid, attempt in before.attempts.items():
        if attempt.end_us is not None and uid in after.attempts:
            assert after.attempts[uid] == attempt, "an attempt changed after its end"
            assert after.metrics.get(uid) == before.metrics.get(uid), "an attempt wrote after its end"
            assert not [key for key in after.checkpoints.keys() - before.checkpoints.keys() if key[0] == uid]


def _log(attempt_uid: str, seen: Snapshot, store: MemoryStore) -> bytes:
    """A log from its parts, each of which begins where the one before ends."""
    log = b""
    for chunk in seen.log_chunks.get(attempt_uid, ()):
        data = gzip.decompress(store.peek(log_chunk_key(attempt_uid, chunk.uid)))
        assert (chunk.offset, chunk.size_bytes) == (len(log), len(data)), "a gap or an overlap of chunks"
        log += data
    for row in seen.logs.get(attempt_uid, ()):
        assert row.offset == len(log), "a gap or an overlap of rows"
        log += row.data
    return log


def _check_history(job: Row[Any], events: Sequence[Row[Any]]) -> None:
    assert [event.sequence for event in events] == list(range(1, job.last_sequence + 1)), "events have gaps"
    assert (events[0].type, events[0].to_state) == ("JOB_CREATED", JobState.QUEUED)
    for previous, event in pairwise(events):
        assert event.from_state == previous.to_state
        expected = TRANSITIONS.get((JobState(event.from_state), Command(event.type)))
        assert event.to_state == expected, f"{job.job_id}: {event.type} took {event.from_state} to {event.to_state}"
    assert job.state == events[-1].to_state, f"{job.job_id} is {job.state}, its last event says {events[-1].to_state}"
    policy = job_pb2.ExecutionPolicy.FromString(job.policy)
    started = 0
    for event in events:
        started = 0 if event.type == Command.RETRY else started + (event.type == Command.SCHEDULE)
        assert started <= policy.max_attempts, f"{job.job_id}: attempt {started} of {policy.max_attempts}"


def _check_gates(job: Row[Any]) -> None:
    asked = job_pb2.ExecutionPolicy.FromString(job.policy).gates
    results = job_pb2.Job.FromString(job.gate_results or b"").gate_results
    evaluated = job.state == JobState.SUCCEEDED or job.failure_reason == FailureReason.GATE_FAILED
    assert not evaluated or [result.gate for result in results] == list(asked), f"{job.job_id}: gates"
    assert not results or job.state in TERMINAL, f"{job.job_id} has results of gates in {job.state}"
    fatal = [result for result in results if result.gate.fail_job and not result.passed]
    assert not (fatal and job.state == JobState.SUCCEEDED), f"{job.job_id} SUCCEEDED and missed a gate"


def _check_attempts(job: Row[Any], seen: Snapshot) -> None:
    attempts = seen.attempts_of(job.uid)
    assert [row.number for row in attempts] == list(range(1, job.attempt + 1)), f"{job.job_id}: attempts have gaps"
    tokens = [row.fencing_token for row in attempts]
    assert tokens == sorted(set(tokens)), f"{job.job_id}: fencing tokens {tokens}"
    live = [row for row in attempts if row.state in LIVE_ATTEMPTS]
    assert len(live) == (job.state in _CARRIED), f"{job.job_id} is {job.state} with {len(live)} live attempts"
    for row in live:
        assert row.number == job.attempt
        assert row.fencing_token == job.fencing_token
