"""Names of jobs, sweeps and artifacts."""

from __future__ import annotations

import re

from mvprune.client.models import JobRecord
from mvprune.common.exceptions import bad_field

_ARTIFACT = re.compile(r"projects/[^/]+/artifacts/[0-9a-f]{64}")


def job_name(job: str | JobRecord, project: str) -> str:
    """The full name of a job; one that is given by its id alone is of `project`. Raises InvalidArgument."""
    return job.name if isinstance(job, JobRecord) else full_name(job, project, "job")


def full_name(given: str, project: str, kind: str) -> str:
    """The full name of a job or a sweep, which is its `kind`, see `job_name`. Raises InvalidArgument."""
    if re.fullmatch(f"projects/[^/]+/{kind}s/[^/]+", given):
        return given
    if not given or "/" in given:
        rule = f"must be a {kind}'s id or its name, projects/PROJECT/{kind}s/{kind.upper()}"
        raise bad_field(kind, f"{rule}, got {given!r}")
    return f"projects/{project}/{kind}s/{given}"


def is_artifact(name: str) -> bool:
    """Whether it is the full name of an artifact."""
    return _ARTIFACT.fullmatch(name) is not None
