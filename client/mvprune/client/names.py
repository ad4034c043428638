"""Names of jobs and artifacts."""

from __future__ import annotations

import re

from mvprune.client.models import JobRecord
from mvprune.common.exceptions import bad_field

_ARTIFACT = re.compile(r"projects/[^/]+/artifacts/[0-9a-f]{64}")
_JOB = re.compile(r"projects/[^/]+/jobs/[^/]+")


def job_name(job: str | JobRecord, project: str) -> str:
    """The full name of a job; one that is given by its id alone is of `project`. Raises InvalidArgument."""
    if isinstance(job, JobRecord):
        return job.name
    if _JOB.fullmatch(job):
        return job
    if not job or "/" in job:
        raise bad_field("job", f"must be a job's id or its name, projects/PROJECT/jobs/JOB, got {job!r}")
    return f"projects/{project}/jobs/{job}"


def is_artifact(name: str) -> bool:
    """Whether it is the full name of an artifact."""
    return _ARTIFACT.fullmatch(name) is not None
