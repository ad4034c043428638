"""One step of a sweep: results are kept, densities are searched, jobs are created, and the sweep ends.

The step is one transaction, and may be repeated or cut off at any moment: what it decides follows from the rows of the
sweep, of its points and of their jobs. domain/sweeping.py and domain/search.py decide.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Connection, select

from mvprune.data.tasks import get_task
from mvprune.sweep.analysis import Objective, Outcome
from mvprune.sweep.verdict import Question, Verdict, judge, outcome
from mvprune.v1 import job_pb2, sweep_pb2
from mvprune_service.clock import SECOND
from mvprune_service.db import lifecycle, records, sweep_records, sweeps, teachers
from mvprune_service.db.database import Tx
from mvprune_service.db.lifecycle import NewJob, canonical
from mvprune_service.db.models import ATTEMPTS
from mvprune_service.db.quotas import QueueFull, QueueQuota
from mvprune_service.db.reuse import reusable
from mvprune_service.db.search import next_points
from mvprune_service.db.sweep_rows import PointRow, SweepRow
from mvprune_service.domain.gates import observations
from mvprune_service.domain.machine import TERMINAL, Command, JobState
from mvprune_service.domain.machine import transition as job_transition
from mvprune_service.domain.sweeping import ENDED, LIVE, Decision, Facts, PointState, Reason, SweepState, decide
from mvprune_service.ids import ArtifactName, JobName

log = logging.getLogger(__name__)

ACTOR = "sweeps"
AT_ONCE = 100  # jobs that a step creates or cancels
_GRACE_US = 10 * SECOND
_HOUR_US = 3600 * SECOND


def expand(tx: Tx, uid: str, quota: QueueQuota) -> bool:
    """Takes a sweep one step further. Returns whether there is more to do at once."""
    sweep = sweeps.lock_sweep(tx, uid)
    if sweep is None or sweep.state in ENDED:
        return False
    spec = sweep_pb2.SweepSpec.FromString(sweep.spec)
    policy = sweep_pb2.SweepPolicy.FromString(sweep.policy)
    points = sweep_records.points_of(tx.conn, uid)
    points = _keep_results(tx, sweep, points)
    verdict = _verdict(spec, points)
    is_complete = True
    if spec.HasField("search") and sweep.state is SweepState.ACTIVE:
        search = next_points(spec, points)
        is_complete = search.is_complete
        if search.points and sweeps.add_points(tx, sweep, search.points):
            points = sweep_records.points_of(tx.conn, uid)
    facts = Facts(
        state=sweep.state,
        points={point.number: point.state for point in points},
        parallel=policy.parallel,
        max_failed=policy.max_failed if policy.HasField("max_failed") else None,
        stop_on_failure=policy.on_failure == sweep_pb2.SweepPolicy.STOP,
        is_budget_used=_is_budget_used(tx, sweep, policy),
        is_complete=is_complete,
        passes=verdict.passed or not spec.gates,
    )
    decision = decide(facts)
    waits = _carry_out(tx, sweep, spec, policy, {point.number: point for point in points}, decision, quota)
    _store(tx, sweep, decision.state, Reason.QUOTA if waits else decision.reason, verdict, changed=points)
    return len(decision.create) >= AT_ONCE or len(decision.cancel) > AT_ONCE


def _keep_results(tx: Tx, sweep: SweepRow, points: list[PointRow]) -> list[PointRow]:
    """Copies the results of jobs that have SUCCEEDED to their points, which keep them when the jobs are deleted."""
    kept = []
    for point in points:
        if point.job_uid is not None and point.job_state is JobState.SUCCEEDED and point.result is None:
            result = _result(tx.conn, point.job_uid)
            sweeps.set_point(tx, sweep, point.number, result=result)
            point = point._replace(result=result)
        kept.append(point)
    return kept


def _result(conn: Connection, job_uid: str) -> dict[str, Any]:
    job = records.job_by_uid(conn, job_uid)
    usage = sweep_records.usage_of_job(conn, job_uid)
    name = ArtifactName(job.project, job.artifact_sha256) if job and job.artifact_sha256 else None
    artifact = name and records.artifact_named(conn, name)
    manifest: Mapping[str, Any] = artifact.manifest if artifact else {}
    metrics = manifest.get("metrics") or (job.metrics if job else {})
    total = observations(manifest, artifact.manifest_bytes)["bytes"] if artifact else 0
    return {
        "artifact": str(name) if name else "",
        "metrics": metrics,
        "primary_metric": manifest.get("primary_metric", ""),
        "accounting": manifest.get("accounting", {}),
        "total_bytes": total,
        "ran_us": usage.ran_us,
        "gpu_us": usage.gpu_us,
    }


def question_of(spec: sweep_pb2.SweepSpec) -> Question:
    """What a sweep is to answer."""
    maximize = sweep_pb2.Objective.MAXIMIZE
    objectives = tuple(Objective(one.metric, one.direction == maximize) for one in spec.objectives)
    return Question(gates_of(spec), objectives, spec.seeds == sweep_pb2.SweepSpec.WORST)


def _verdict(spec: sweep_pb2.SweepSpec, points: Sequence[PointRow]) -> Verdict:
    outcomes = outcomes_of(points)
    if not outcomes:
        return Verdict()
    metric = next((point.result["primary_metric"] for point in points if point.result), "")
    return judge(question_of(spec), outcomes, metric)


def outcomes_of(points: Sequence[PointRow]) -> list[Outcome]:
    """The results there are."""
    return [outcome(point.number, point.cell, point.result) for point in points if point.result is not None]
