"""What must be true of jobs at every moment, and of every change to them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from mvprune.v1 import job_pb2
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.machine import LIVE_ATTEMPTS, TERMINAL, TRANSITIONS, Command, JobState
from mvprune_service.stores.checkpoints import checkpoint_prefix
from mvprune_service.stores.layout import blob_key, manifest_key
from mvprune_service.stores.log_chunks import log_chunk_key

from .neighbours import CPUS, Objects
from .snapshot import Snapshot
from .workers import logged

_CARRIED = {JobState.STARTING, JobState.RUNNING, JobState.FINALIZING, JobState.CANCELLING}


def check_moment(seen: Snapshot, store: Objects) -> None:
    """What must be true of every state."""
    for job in seen.jobs.values():
        _check_history(job, seen.events[job.uid])
        _check_attempts(job, seen)
        assert (job.end_us is not None) == (job.state in TERMINAL), f"{job.job_id}: end_time in {job.state}"
        assert (job.artifact_sha256 is not None) == (job.state == JobState.SUCCEEDED), f"{job.job_id}: artifact"
        if job.state == JobState.SUCCEEDED and job.expire_us is None:
            assert (job.project, job.artifact_sha256) in seen.artifacts, f"{job.job_id}: no artifact's row"
        _check_gates(job)
        if job.teacher_uid is not None and job.attempt:
            assert job.teacher_sha256 is not None, f"{job.job_id} was started before its teacher ended"
    reserved = sum(row.cpus for row in seen.attempts.values() if row.state in LIVE_ATTEMPTS)
    assert reserved <= CPUS, f"{reserved} CPUs are reserved"
    for uid, attempt in seen.attempts.items():
        log = _log(uid, seen, store)
        assert log == logged(0, attempt.log_bytes), f"the log of {uid} is {log!r}"


def check_store(seen: Snapshot, store: Objects) -> None:
    """What the database refers to is in the store."""
    for row in seen.artifacts.values():
        assert store.holds(manifest_key(row.sha256), row.manifest_bytes), "an artifact has no manifest"
        files = json.loads(row.manifest)["files"]
        whole = [store.holds(blob_key(file["sha256"]), file["size_bytes"]) for file in files]
        assert all(whole), "an artifact lacks files"
    for row in seen.checkpoints.values():
        key = checkpoint_prefix(row.attempt_uid, row.step) + "manifest.json"
        assert store.holds(key), f"the checkpoint {row.step} of {row.attempt_uid} is torn"


def check_change(before: Snapshot, after: Snapshot, *, deletes: bool) -> None:
    """What must be true of every change; `deletes`: made by who may delete jobs."""
    for uid, job in before.jobs.items():
        if uid not in after.jobs:
            assert deletes, f"{job.job_id} is lost"
            assert job.state in TERMINAL, f"{job.job_id} was deleted while {job.state}"
            continue
        later = after.jobs[uid]
        assert later.fencing_token >= job.fencing_token, f"{job.job_id}: its fencing token fell"
        known, events = before.events[uid], after.events[uid]
        assert events[: len(known)] == known, f"{job.job_id}: its history was rewritten"
        moves = [event for event in events[len(known) :] if event.from_state is not None]
        assert (later.state == job.state) or moves, f"{job.job_id} became {later.state} without an event"
        if job.state == JobState.SUCCEEDED:
            assert later == job, f"{job.job_id} changed after its end"
    for key, artifact in after.artifacts.items():
        if key not in before.artifacts:
            makers = [job.state for job in after.jobs.values() if job.artifact_sha256 == artifact.sha256]
            assert JobState.SUCCEEDED in makers, "an artifact has a row and no job"
    for uid, attempt in before.attempts.items():
        if attempt.end_us is not None and uid in after.attempts:
            assert after.attempts[uid] == attempt, f"attempt {uid} changed after its end"
            assert after.metrics.get(uid) == before.metrics.get(uid), f"attempt {uid} wrote after its end"
            new = [key for key in after.checkpoints.keys() - before.checkpoints.keys() if key[0] == uid]
            assert not new, f"attempt {uid} committed {new} after its end"


def _log(attempt_uid: str, seen: Snapshot, store: Objects) -> bytes:
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


def _check_history(job: Any, events: Sequence[Any]) -> None:
    assert [event.sequence for event in events] == list(range(1, job.last_sequence + 1)), "events have gaps"
    assert (events[0].type, events[0].to_state) == ("JOB_CREATED", JobState.QUEUED)
    moves = [event for event in events[1:] if event.from_state is not None]
    for previous, event in pairwise((events[0], *moves)):
        assert event.from_state == previous.to_state
        expected = TRANSITIONS.get((JobState(event.from_state), Command(event.type)))
        assert event.to_state == expected, f"{job.job_id}: {event.type} took {event.from_state} to {event.to_state}"
    assert job.state == events[-1].to_state, f"{job.job_id} is {job.state}, its last event says {events[-1].to_state}"
    published = sum(event.type == Command.PUBLISH for event in events)
    assert published == (job.state == JobState.SUCCEEDED), f"{job.job_id} was published {published} times"
    policy = job_pb2.ExecutionPolicy.FromString(job.policy)
    started = 0
    for event in moves:
        started = 0 if event.type == Command.RETRY else started + (event.type == Command.SCHEDULE)
        if event.type == Command.REQUEUE and json.loads(event.details)["reason"] == "START_TIMEOUT":
            started -= 1  # it may not count: see domain/watching.py
        assert started <= policy.max_attempts, f"{job.job_id}: attempt {started} of {policy.max_attempts}"


def _check_gates(job: Any) -> None:
    asked = job_pb2.ExecutionPolicy.FromString(job.policy).gates
    results = job_pb2.Job.FromString(job.gate_results or b"").gate_results
    evaluated = job.state == JobState.SUCCEEDED or job.failure_reason == FailureReason.GATE_FAILED
    assert not evaluated or [result.gate for result in results] == list(asked), f"{job.job_id}: gates"
    assert not results or job.state in TERMINAL, f"{job.job_id} has results of gates in {job.state}"
    fatal = [result for result in results if result.gate.fail_job and not result.passed]
    assert not (fatal and job.state == JobState.SUCCEEDED), f"{job.job_id} SUCCEEDED and missed a gate"


def _check_attempts(job: Any, seen: Snapshot) -> None:
    attempts = seen.attempts_of(job.uid)
    assert [row.number for row in attempts] == list(range(1, job.attempt + 1)), f"{job.job_id}: attempts have gaps"
    tokens = [row.fencing_token for row in attempts]
    assert tokens == sorted(set(tokens)), f"{job.job_id}: fencing tokens {tokens}"
    live = [row for row in attempts if row.state in LIVE_ATTEMPTS]
    assert len(live) == (job.state in _CARRIED), f"{job.job_id} is {job.state} with {len(live)} live attempts"
    for row in live:
        assert row.number == job.attempt
        assert row.fencing_token == job.fencing_token
