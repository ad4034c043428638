"""Converts rows to messages."""

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp
from sqlalchemy import LargeBinary

from mvprune.sources.known_models import ModelSize
from mvprune.v1 import artifact_pb2, job_pb2
from mvprune_service.db.tables.artifacts import ArtifactRow
from mvprune_service.db.tables.attempts import AttemptRow, MetricRow
from mvprune_service.db.tables.jobs import JOBS, EventRow, JobRow
from mvprune_service.ids import ArtifactName, AttemptName, JobName, SweepName

MANIFEST = "manifest.json"
_OF_JOB = job_pb2.Job.DESCRIPTOR.fields_by_name
_SHARED = [name for name in JobRow._fields if name in _OF_JOB and name != "gate_results"]
_MESSAGES = [name for name in _SHARED if isinstance(JOBS.c[name].type, LargeBinary)]
_PLAIN = [name for name in _SHARED if name not in _MESSAGES]
_TIMES = {
    name: time
    for name in JobRow._fields
    if (time := f"{name.removesuffix('_us')}_time") in _OF_JOB and name[-3:] == "_us"
}


def timestamp(microseconds: int) -> Timestamp:
    """A protobuf timestamp."""
    result = Timestamp()
    result.FromMicroseconds(microseconds)
    return result


def model_size(size: ModelSize) -> job_pb2.ModelSize:
    """Counts of a model."""
    return job_pb2.ModelSize(
        base_parameters=size.base_parameters,
        encoder_parameters=size.encoder_parameters,
        prunable_weights=size.prunable_weights,
    )


def job(row: JobRow) -> job_pb2.Job:
    """A row of jobs. A column with the name of a field is that field, as it is or as a stored message; NAME_us is
    the field NAME_time."""
    plain = {name: value for name in _PLAIN if (value := getattr(row, name)) is not None}
    result = job_pb2.Job(name=str(row.name), etag=str(row.version), **plain)
    for name in _MESSAGES:
        if (stored := getattr(row, name)) is not None:
            getattr(result, name).ParseFromString(stored)
    for column, name in _TIMES.items():
        if (time_us := getattr(row, column)) is not None:
            getattr(result, name).FromMicroseconds(time_us)
    if row.gate_results is not None:
        result.MergeFromString(row.gate_results)
    if row.artifact_sha256:
        result.artifact = str(ArtifactName(row.project, row.artifact_sha256))
    if row.sweep_id:
        result.sweep = str(SweepName(row.project, row.sweep_id))
    if row.failure_reason:
        result.failure.CopyFrom(_failure(row))
    return result


def attempt(row: AttemptRow, name: JobName) -> job_pb2.Attempt:
    """A row of attempts."""
    result = job_pb2.Attempt(
        name=str(AttemptName(name.project, name.job, row.number)),
        state=row.state,
        executor_ref=row.executor_ref,
        node=row.node,
        create_time=timestamp(row.create_us),
    )
    if row.failure_reason:
        result.failure.CopyFrom(_failure(row))
    if row.start_us is not None:
        result.start_time.CopyFrom(timestamp(row.start_us))
    if row.end_us is not None:
        result.end_time.CopyFrom(timestamp(row.end_us))
    if row.heartbeat_us is not None:
        result.last_heartbeat_time.CopyFrom(timestamp(row.heartbeat_us))
    return result


def event(row: EventRow) -> job_pb2.JobEvent:
    """A row of events."""
    return job_pb2.JobEvent(
        sequence=row.sequence,
        time=timestamp(row.time_us),
        type=row.type,
        actor=row.actor,
        from_state=row.from_state,
        to_state=row.to_state,
        details=row.details,
    )


def metric(row: MetricRow) -> job_pb2.MetricPoint:
    """A row of metrics."""
    return job_pb2.MetricPoint(
        metric=row.metric, step=row.step, value=row.value, time=timestamp(row.time_us), attempt=row.attempt
    )


def artifact(row: ArtifactRow) -> artifact_pb2.Artifact:
    """A row of artifacts, joined with the id of its job."""
    manifest = row.manifest
    files = [
        artifact_pb2.ArtifactFile(
            path=MANIFEST, size_bytes=row.manifest_bytes, sha256=row.sha256, media_type="application/json"
        ),
        *(artifact_pb2.ArtifactFile(**file) for file in manifest["files"]),
    ]
    return artifact_pb2.Artifact(
        name=str(ArtifactName(row.project, row.sha256)),
        job=str(JobName(row.project, row.job_id)) if row.job_id else "",
        attempt=row.attempt,
        files=files,
        total_bytes=sum(file.size_bytes for file in files),
        metrics=manifest["metrics"],
        primary_metric=manifest["primary_metric"],
        accounting=artifact_pb2.Accounting(**manifest["accounting"]),
        create_time=timestamp(row.create_us),
        expire_time=None if row.expire_us is None else timestamp(row.expire_us),
    )


def _failure(row: JobRow | AttemptRow) -> job_pb2.Failure:
    return job_pb2.Failure(reason=row.failure_reason, message=row.failure_message or "")
