"""Resource names in requests."""

from __future__ import annotations

from mvprune.common.identifiers import ID_RULE
from mvprune_service import ids
from mvprune_service.api.access.errors import bad, invalid


def parse_parent(parent: str) -> str:
    """The project of projects/{project}. Raises ApiError."""
    project = ids.parse_project(parent)
    if project is None:
        raise invalid(bad("parent", parent, f"projects/PROJECT ({ID_RULE})"))
    return project


def parse_job(given: str, field: str = "name") -> ids.JobName:
    """The parts of projects/{project}/jobs/{job}. Raises ApiError."""
    name = ids.parse_job(given)
    if name is None:
        raise invalid(bad(field, given, "projects/PROJECT/jobs/JOB"))
    return name


def parse_sweep(given: str, field: str = "name") -> ids.SweepName:
    """The parts of projects/{project}/sweeps/{sweep}. Raises ApiError."""
    name = ids.parse_sweep(given)
    if name is None:
        raise invalid(bad(field, given, "projects/PROJECT/sweeps/SWEEP"))
    return name


def parse_webhook(given: str) -> ids.WebhookName:
    """The parts of projects/{project}/webhooks/{webhook}. Raises ApiError."""
    name = ids.parse_webhook(given)
    if name is None:
        raise invalid(bad("name", given, "projects/PROJECT/webhooks/WEBHOOK"))
    return name


def parse_upload(given: str, field: str = "name") -> ids.UploadName:
    """The parts of projects/{project}/uploads/{digest}. Raises ApiError."""
    name = ids.parse_upload(given)
    if name is None:
        raise invalid(bad(field, given, "projects/PROJECT/uploads/DIGEST"))
    return name
