"""Results of a sweep's points: copied from artifacts, and what they say together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from mvprune.sweep.verdict import Verdict, judge, outcome
from mvprune.v1 import sweep_pb2
from mvprune_service.db import records, sweep_records, sweeps
from mvprune_service.db.engine.database import Tx
from mvprune_service.db.estimates import step_us
from mvprune_service.db.lifecycle import canonical
from mvprune_service.db.proposals import propose
from mvprune_service.db.tables.jobs import JobRow
from mvprune_service.db.tables.sweeps import PointRow, SweepRow
from mvprune_service.domain.gates import observations
from mvprune_service.domain.machine import JobState
from mvprune_service.domain.sweeping import ENDED, with_late_result
from mvprune_service.ids import ArtifactName, SweepName
from mvprune_service.sweeps.descents import is_dense_stage, is_descent
from mvprune_service.sweeps.points import question_of


def keep_results(tx: Tx, sweep: SweepRow, points: Sequence[PointRow]) -> tuple[list[PointRow], bool]:
    """Copies the results of jobs that have SUCCEEDED to their points, which keep them when the jobs are deleted.
    Returns the points with their results, and whether there are new ones."""
    kept, has_new = list[PointRow](), False
    for point in points:
        if point.job_uid is not None and point.job_state is JobState.SUCCEEDED and point.result is None:
            result = result_of(tx.conn, point.job_uid)
            sweeps.set_point(tx, sweep, point.number, result=result)
            point, has_new = point._replace(result=result), True
        kept.append(point)
    return kept, has_new


def take_in_late(tx: Tx, job: JobRow, *, actor: str) -> None:
    """Takes in the result of a job that was retried after its sweep had ended, in the transaction that ends the job.

    The sweep goes on if its strategy has further points then. One that has not ended takes the result in by itself.
    """
    if job.sweep_id is None:
        return
    name = SweepName(job.project, job.sweep_id)
    # Read before it is locked: a sweep that has not ended locks its jobs after itself. It cannot end before this job.
    sweep = sweep_records.sweep_named(tx.conn, name)
    if sweep is None or sweep.state not in ENDED:
        return
    sweep = sweeps.lock_sweep_named(tx, name)
    if sweep is None or sweep.state not in ENDED:
        return
    points, has_new = keep_results(tx, sweep, sweep_records.points_of(tx.conn, sweep.uid))
    if not has_new:
        return
    spec = sweep_pb2.SweepSpec.FromString(sweep.spec)
    found = verdict_of(spec, points)
    recommendation = recommendation_of(found)
    # Its time counts anew from now.
    proposal = propose(spec, sweep_pb2.SweepPolicy.FromString(sweep.policy), points, 0.0)
    passes = found.passed or not spec.gates
    state, reason = with_late_result(sweep.state, sweep.state_reason, passes=passes, has_more=not proposal.is_complete)
    goes_on = {} if state in ENDED else {"end_us": None, "active_us": tx.now}
    changed = goes_on | {
        "state": state,
        "state_reason": reason,
        "recommendation": recommendation and canonical(recommendation),
        "front": list(found.front),
    }
    sweeps.record(tx, sweep, "RESULT_ADDED", actor, {"job": job.job_id}, **changed)


def verdict_of(spec: sweep_pb2.SweepSpec, points: Sequence[PointRow]) -> Verdict:
    """The verdict on the results. A study of tickets recommends no point: its tables say which tickets win. A descent
    does not recommend its dense model."""
    if spec.HasField("tickets"):
        return Verdict()
    descends = is_descent(spec)
    results = [point for point in points if point.result and not (descends and is_dense_stage(point.cell))]
    metric = next((point.result["primary_metric"] for point in results if point.result), "")
    outcomes = [outcome(point.number, point.cell, point.result or {}) for point in results]
    return judge(question_of(spec), outcomes, metric)


def recommendation_of(verdict: Verdict) -> sweep_pb2.Recommendation | None:
    """The recommended point; None without a result."""
    choice = verdict.choice
    if choice is None:
        return None
    return sweep_pb2.Recommendation(
        passed=choice.passed,
        point=choice.outcome.number,
        points=[one.number for one in choice.group.outcomes],
        text=verdict.text,
    )


def result_of(conn: Connection, job_uid: str) -> dict[str, Any]:
    """The part of a SUCCEEDED job that its point keeps."""
    job = records.job_by_uid(conn, job_uid)
    usage = sweep_records.usage_of_job(conn, job_uid)
    name = ArtifactName(job.project, job.artifact_sha256) if job and job.artifact_sha256 else None
    artifact = records.artifact_named(conn, name) if name else None
    manifest: Mapping[str, Any] = artifact.manifest if artifact else {}
    return {
        "artifact": str(name or ""),
        "metrics": manifest.get("metrics") or (job.metrics if job else {}),
        "primary_metric": manifest.get("primary_metric", ""),
        "accounting": manifest.get("accounting", {}),
        "total_bytes": observations(manifest, artifact.manifest_bytes)["bytes"] if artifact else 0,
        "ran_us": usage.ran_us,
        "gpu_us": usage.gpu_us,
        "step_us": step_us(conn, job_uid),
    }
