"""Jobs whose artifacts other jobs begin with: as a mask (mask_from), or as the model to go on from (start_from).

A job does not wait for that other job, which must have SUCCEEDED when the job is created. The job is pinned to the
artifact that the other one has then, so a later retry of that one changes nothing. The artifact is not kept for it: the
job fails with INVALID_MODEL if the artifact was deleted before a worker has fetched it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from mvprune.common.identifiers import ID_PATTERN
from mvprune.v1 import job_pb2
from mvprune_service import ids
from mvprune_service.db import records
from mvprune_service.db.lifecycle import NewJob
from mvprune_service.db.tables.jobs import JobRow
from mvprune_service.domain.machine import JobState

MASK_FIELD, START_FIELD = "job.spec.locked_mask.mask_from.job", "job.spec.start_from"
_PREFIX = "job:"
_CLOSE = 0.1  # relative: as the worker compares a density with that of a mask


class NoBeginning(Exception):
    """The artifact of a job cannot be the mask or the start of another; the text says why.

    Attributes:
        field: that names the job.
    """

    def __init__(self, text: str, field: str = MASK_FIELD) -> None:
        super().__init__(text)
        self.field = field


def begins_with(spec: job_pb2.CompressionSpec) -> str:
    """The field that names the job whose artifact a job begins with; "": there is none."""
    return MASK_FIELD if spec.locked_mask.mask_from.job else START_FIELD if spec.start_from else ""


def pin(
    conn: Connection, project: str, spec: job_pb2.CompressionSpec, size: job_pb2.ModelSize | None
) -> job_pb2.CompressionSpec:
    """The spec with the full name of the job that it begins with, and with that job's artifact; as it is without such
    a job.

    Args:
        size: of the model that is pruned; None where it is not known.

    Raises:
        NoBeginning: the job has no artifact that can be the mask, or the start.
    """
    field = begins_with(spec)
    if not field:
        return spec
    try:
        return _pinned(conn, project, spec, size)
    except NoBeginning as error:
        raise NoBeginning(str(error), field) from None


def _pinned(
    conn: Connection, project: str, spec: job_pb2.CompressionSpec, size: job_pb2.ModelSize | None
) -> job_pb2.CompressionSpec:
    is_mask = not spec.start_from
    if not (is_mask or spec.start_from.startswith(_PREFIX)):
        raise NoBeginning(f"must be job:ID, the artifact of a job, got {spec.start_from[:200]!r}")
    job = _named(conn, project, spec.locked_mask.mask_from.job if is_mask else spec.start_from.removeprefix(_PREFIX))
    artifact = ids.ArtifactName(project, job.artifact_sha256) if job.artifact_sha256 else None
    stored = records.artifact_named(conn, artifact) if artifact else None
    if stored is None:
        raise NoBeginning(f"must be a job whose artifact is still there, got {job.name}, whose artifact was deleted")
    if job_pb2.CompressionSpec.FromString(job.spec).delta:
        remedy = "export it (mvpctl export --to dense) and give the folder" if is_mask else "give a job without delta"
        raise NoBeginning(
            f"must be a job whose artifact has all its weights, got {job.name}, whose artifact is a delta; {remedy}"
        )
    if _is_smaller(stored.manifest):
        raise NoBeginning(
            f"must be a job whose artifact has all matrices of its model, got {job.name}, from which heads, units or "
            "layers were removed; give a job that prunes single weights"
        )
    _check_size(job, size)
    density = stored.manifest.get("accounting", {}).get("density")
    if not is_mask and density is not None and spec.target_density > density * (1 + _CLOSE):
        raise NoBeginning(
            f"must be a job whose artifact is no sparser than the density {spec.target_density:g}, got {job.name}, "
            f"which keeps {density:.4g}; give a lower density"
        )
    if is_mask and spec.target_density == 0 and density == 1:
        raise NoBeginning(
            f"must be a job whose artifact has zeros, got {job.name}, which keeps all weights; give a job that prunes, "
            "or a density, at which the largest of its weights are kept"
        )
    pinned = job_pb2.CompressionSpec()
    pinned.CopyFrom(spec)
    if is_mask:
        pinned.locked_mask.mask_from.job = str(job.name)
        pinned.locked_mask.mask_from.artifact = str(artifact)
    else:
        pinned.start_from, pinned.start_artifact = f"{_PREFIX}{job.name}", str(artifact)
    return pinned


def with_beginning(conn: Connection, new: NewJob) -> NewJob:
    """The job, pinned to the artifact that it begins with. Raises NoBeginning."""
    if not begins_with(new.spec):
        return new
    return replace(new, spec=pin(conn, new.project, new.spec, new.model_size))


def _named(conn: Connection, project: str, given: str) -> JobRow:
    name = ids.JobName(project, given) if ID_PATTERN.fullmatch(given) else ids.parse_job(given)
    if name is None or name.project != project:
        raise NoBeginning(f"must be the id of a job, or its name, projects/{project}/jobs/JOB, got {given[:200]!r}")
    job = records.job_named(conn, name)
    if job is None:
        raise NoBeginning(f"must be a job that exists, got {name}")
    if job.state is not JobState.SUCCEEDED:
        raise NoBeginning(f"must be a job that has SUCCEEDED, got {name}, which is {job.state}; it is not waited for")
    return job


def _is_smaller(manifest: Mapping[str, Any]) -> bool:
    """Whether an artifact's matrices have fewer weights than those of the model that was pruned."""
    layers = manifest.get("layers", ())
    weights = sum(math.prod(layer["shape"]) for layer in layers)
    return bool(layers) and weights < int(manifest.get("accounting", {}).get("prunable_weights", 0))


def _check_size(job: JobRow, size: job_pb2.ModelSize | None) -> None:
    """Refuses the mask of a model with other matrices, where both sizes are known."""
    if size is None or job.model_size is None:
        return
    of_mask = job_pb2.ModelSize.FromString(job.model_size)
    if of_mask.encoder_parameters != size.encoder_parameters:
        raise NoBeginning(
            f"must be a job for a model of the same architecture and size, got {job.name}, whose model has "
            f"{of_mask.encoder_parameters:,} parameters in its blocks in place of {size.encoder_parameters:,}"
        )
