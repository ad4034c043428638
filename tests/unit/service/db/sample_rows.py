"""Rows for every table of a database of any revision."""

from __future__ import annotations

from typing import Any

from mvprune.v1 import job_pb2

Rows = dict[str, list[dict[str, Any]]]
SPEC = job_pb2.CompressionSpec(model="bert-base-uncased", task="sst2", target_density=0.1, movement={})
DENSE = job_pb2.CompressionSpec(model="other", task="squad", magnitude={})
MANIFEST = {"primary_metric": "accuracy", "metrics": {"eval/accuracy": 0.5, "delta/accuracy": -0.25, "eval/f1": 0.9}}
# job → its state, attempt, attempt's state, labels and spec
JOBS: dict[str, tuple[str, str | None, dict[str, str], job_pb2.CompressionSpec]] = {
    "queued": ("QUEUED", None, {"team": "red", "ünï": "¿çødé"}, SPEC),
    "starting": ("STARTING", "SUBMITTED", {}, SPEC),
    "running": ("RUNNING", "RUNNING", {"team": "blue", "empty": ""}, DENSE),
    "cancelling": ("CANCELLING", "RUNNING", {}, SPEC),
    "succeeded": ("SUCCEEDED", "SUCCEEDED", {"team": "red"}, DENSE),
    "failed": ("FAILED", "LOST", {}, SPEC),
    "cancelled": ("CANCELLED", None, {}, SPEC),
}


def _job(uid: str, number: int) -> dict[str, Any]:
    job_state, attempt, labels, spec = JOBS[uid]
    over = job_state in ("SUCCEEDED", "FAILED", "CANCELLED")
    return {
        "uid": uid,
        "project": "p",
        "job_id": f"job-{uid}",
        "display_name": "It's 100 % “quoted”",
        "spec": spec.SerializeToString(),
        "policy": b"\x00\xff",
        "labels": labels,
        "model_size": None,
        "state": job_state,
        "state_reason": "WAITING_FOR_TEACHER" if uid == "queued" else "",
        "failure_reason": "WORKER_LOST" if job_state == "FAILED" else None,
        "artifact_sha256": "ab" * 32 if job_state == "SUCCEEDED" else None,
        "metrics": {"eval/accuracy": 0.5},
        "attempt": 1 if attempt else 0,
        "attempts_left": 2,
        "fencing_token": 3,
        "not_before_us": 0,
        "create_us": 1_800_000_000_000_000 + number,
        "start_us": 1_800_000_000_000_040 if attempt else None,
        "end_us": 1_800_000_000_000_100 if over else None,
        "update_us": 1_800_000_000_000_100,
        "version": 5,
        "last_sequence": 2,
        "teacher_uid": "succeeded" if uid == "queued" else None,
        "teacher_key": "digest" if uid == "succeeded" else None,
        # what a job of a newer revision would have anyway
        "creator": "local",
        "task": spec.task,
        "model": spec.model,
        "method": spec.WhichOneof("method"),
        "priority": 0,
        "rank_us": 1_800_000_000_000_000 + number,
        "ran_us": 0,
        "accumulation_factor": 1,
        "duration_us": 60 if over and attempt else None,
        "primary_metric": "accuracy" if job_state == "SUCCEEDED" else None,
        "metric": 0.5 if job_state == "SUCCEEDED" else None,
        "difference": -0.25 if job_state == "SUCCEEDED" else None,
        "sweep_id": "s" if uid in ("queued", "succeeded") else None,
        "note": "two\nlines" if uid == "failed" else None,
    }


def _attempt(uid: str) -> dict[str, Any]:
    attempt_state = JOBS[uid][1]
    return {
        "uid": f"attempt-{uid}",
        "job_uid": uid,
        "number": 1,
        "state": attempt_state,
        "fencing_token": 3,
        "executor": "ray",
        "executor_ref": f"ref-{uid}",
        "cpus": 1.5,
        "gpus": 0.25,
        "memory_bytes": 1 << 40,
        "parts": 1,
        "node": "n",
        "log_bytes": 6,
        "create_us": 1,
        "start_deadline_us": 2,
        "end_us": 3 if attempt_state in ("SUCCEEDED", "LOST") else None,
    }


def _webhooks() -> Rows:
    webhook = {
        "uid": "webhook",
        "project": "p",
        "webhook_id": "w",
        "display_name": "",
        "url": "https://hooks.example/",
        "events": ["job.*"],
        "labels": {"team": "red"},
        "format": "SLACK",
        "state": "ENABLED",
        "state_reason": "",
        "generation": 2,
        "old_secret_until_us": 9,
        "creator": "local",
        **dict.fromkeys(("create_us", "update_us", "version", "failures", "due_us", "claim_us"), 1),
    }
    delivery = {
        "webhook_uid": "webhook",
        "event_id": "failed-2",
        "type": "job.failed",
        "subject": "projects/p/jobs/job-failed",
        "subject_uid": "failed",
        "sequence": 2,
        "data": {"reason": "WORKER_LOST"},
        "state": "PENDING",
        "attempts": 1,
        "status": 503,
        "error": "HTTP 503",
        **dict.fromkeys(("create_us", "until_us", "attempt_us"), 1),
    }
    return {"webhooks": [webhook], "webhook_deliveries": [delivery]}


def _audited() -> dict[str, Any]:
    texts = {"principal": "token-a", "method": "CancelJob", "resource": "projects/p/jobs/job-failed", "code": "OK"}
    return {"create_us": 1, "uid": "entry", "project": "p", **texts, "address": "10.0.0.1", "request_id": ""}


def _issuer() -> dict[str, Any]:
    rule = [{"claims": {"repository": "acme/models", "mfa": True}, "project": "p", "scope": "submit"}]
    texts = {"url": "https://issuer.example", "audience": "a", "jwks_url": "", "jwks": "", "creator": "local"}
    return {"issuer_id": "i", "rule": rule, **texts, "create_us": 1, "update_us": 1, "version": 1}


def _sweeps() -> Rows:
    """Two sweeps: one with points with and without a job, with and without a result; one without recommendation."""
    sweep = {
        "project": "p",
        "display_name": "“ünï”",
        "spec": b"\x00\xff",
        "policy": b"",
        "labels": {"team": "red"},
        "notes": ["a note"],
        "model_sizes": {"bert-base-uncased": "AA=="},
        "creator": "local",
        "inputs_us": 7,
        "state": "ACTIVE",
        "state_reason": "WAITING_FOR_QUOTA",
        "recommendation": b"\x08\x01",
        "front": [2],
        "create_us": 1,
        "active_us": 2,
        "end_us": None,
        "update_us": 3,
        "version": 4,
        "last_sequence": 1,
    }
    ended = {"state": "FAILED", "state_reason": "NOTHING_SUCCEEDED", "recommendation": None, "front": [], "end_us": 9}
    point = {"sweep_uid": "sweep", "spec": b"\x00\xff", "reused": False, "again": False, "skip_reason": ""}
    result = {"metrics": {"eval/accuracy": 0.5}, "total_bytes": 10}
    event = {"sweep_uid": "sweep", "time_us": 1, "type": "SWEEP_CREATED", "actor": "local", "details": {"points": "3"}}
    return {
        "sweeps": [sweep | {"uid": "sweep", "sweep_id": "s"}, sweep | {"uid": "ended", "sweep_id": "e"} | ended],
        "sweep_points": [
            point
            | {"number": number, "cell": {"density": 0.1 * number, "method": None}, "spec_sha256": f"{number}"}
            | own
            for number, own in enumerate(
                (
                    {"job_uid": "queued", "job_id": "job-queued", "result": None},
                    {"job_uid": "succeeded", "job_id": "job-succeeded", "result": result, "reused": True},
                    {"job_uid": None, "job_id": "", "result": None, "skip_reason": "BUDGET_USED"},
                    {"job_uid": "failed", "job_id": "job-failed", "result": None, "again": True},
                ),
                1,
            )
        ],
        "sweep_events": [event | {"sequence": 1}],
        "sweep_requests": [
            {"project": "p", "request_id": "r", "body_sha256": "cd" * 32, "sweep_uid": "sweep", "create_us": 1}
        ],
    }


def _uploads() -> Rows:
    """A model that is complete and used, and a data file of which a chunk is missing. They share a chunk."""
    upload = {"project": "p", "creator": "local", "create_us": 1, "used_us": 2, "ready_us": None}
    chunk = {"project": "p", "size_bytes": 3, "create_us": 1}
    files = [{"path": "“ünï”.json", "size_bytes": 3, "chunks": ["aa"]}]
    return {
        "uploads": [
            upload
            | {"digest": "d1", "kind": "model", "display_name": "m", "files": files, "total_bytes": 3}
            | {"ready_us": 3, "parts": 2},
            upload
            | {"parts": 2}
            | {"digest": "d2", "kind": "data", "display_name": "“ünï”", "files": [], "total_bytes": 1 << 40},
        ],
        "upload_chunks": [
            chunk | {"sha256": "aa", "uid": "u1", "is_ready": True},
            chunk | {"sha256": "bb", "uid": "u2", "is_ready": False},
        ],
        "upload_parts": [
            {"project": "p", "digest": digest, "sha256": sha256}
            for digest, sha256 in (("d1", "aa"), ("d2", "aa"), ("d2", "bb"))
        ],
        "upload_totals": [{"project": "p", "stored_bytes": 6, "parts": 4}],
        "job_uploads": [{"job_uid": "queued", "project": "p", "digest": "d1"}],
        "sweep_uploads": [{"sweep_uid": "sweep", "project": "p", "digest": "d1"}],
    }


def sample() -> Rows:
    """Rows for every table, with all columns that any revision wants."""
    attempts = [_attempt(uid) for uid, job in JOBS.items() if job[1]]
    of = [{"job_uid": row["job_uid"], "attempt_uid": row["uid"]} for row in attempts]
    event = {"actor": "local", "from_state": None, "to_state": "QUEUED", "details": {"a": "b"}}
    metric = {"attempt": 1, "metric": "loss", "step": 1, "value": 0.1, "time_us": 1}
    chunk = {"size_bytes": 1 << 20, "sha256": "ab" * 32, "stored_bytes": 1 << 33, "create_us": 1}
    token = {"project": "p", "display_name": "", "scope": "READ", "creator": "local", "create_us": 1}
    labelled = [(uid, key, value) for uid, job in JOBS.items() for key, value in job[2].items()]
    return {
        "jobs": [_job(uid, number) for number, uid in enumerate(JOBS)],
        "attempts": attempts,
        "events": [
            {"job_uid": uid, "sequence": n, "time_us": n, "type": "JOB_CREATED", **event}
            for uid in JOBS
            for n in (1, 2)
        ],
        "requests": [
            {"project": "p", "request_id": f"r-{uid}", "body_sha256": "cd" * 32, "job_uid": uid, "create_us": 1}
            for uid in JOBS
        ],
        "artifacts": [
            {
                "project": "p",
                "sha256": sha256 * 32,
                "job_uid": job_uid,
                "attempt": 1,
                "manifest_bytes": 10,
                "manifest": manifest,
                "create_us": 1,
            }
            for sha256, job_uid, manifest in (("ab", "succeeded", MANIFEST), ("ef", None, {"files": []}))
        ],
        "metrics": [{"id": number, **ids, **metric} for number, ids in enumerate(of, 1)],
        "logs": [{"attempt_uid": ids["attempt_uid"], "offset": 0, "data": b"\x00\xfflog\n"} for ids in of],
        "log_chunks": [
            {**chunk, "attempt_uid": ids["attempt_uid"], "offset": 7, "uid": f"c-{ids['attempt_uid']}"} for ids in of
        ],
        "long_logs": [{"attempt_uid": "attempt-running", "moved_bytes": 1 << 40, "due_us": 2}],
        "labels": [{"job_uid": uid, "key": key, "value": value, "project": "p"} for uid, key, value in labelled],
        "checkpoints": [{**ids, "step": 7, "manifest_sha256": "ab" * 32, "create_us": 1} for ids in of],
        "tokens": [{"token_id": "t", "secret_sha256": "ab" * 32, **token}],
        "quarantine": [{"part": "a", "key": "blobs/sha256/ab", "modified_us": 1, "found_us": 2, "size_bytes": 3}],
        "projects": [{"project": "p", "max_queued_jobs": 3, "max_running_gpus": 0.5, "max_upload_bytes": 7}],
        **_sweeps(),
        **_uploads(),
        **_webhooks(),
        "audit": [_audited()],
        "issuers": [_issuer()],
    }
