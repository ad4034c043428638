"""Resource names in requests, and what they stand for."""

from __future__ import annotations

from typing import TypeVar

from mvprune.common.identifiers import ID_RULE
from mvprune_service import ids
from mvprune_service.api.access.errors import bad, invalid, not_found

T = TypeVar("T")


def parsed(name: T | None, given: str, rule: str, field: str = "name") -> T:
    """The parts of a name. Raises ApiError where it has none, because `field` breaks the rule."""
    if name is None:
        raise invalid(bad(field, given, rule))
    return name


def existing(row: T | None, name: object) -> T:
    """What has this name. Raises ApiError (NOT_FOUND) for None."""
    if row is None:
        raise not_found(str(name))
    return row


def parse_project(given: str, field: str = "name") -> str:
    """The project of projects/{project}. Raises ApiError."""
    return parsed(ids.parse_project(given), given, f"projects/PROJECT ({ID_RULE})", field)


def parse_parent(parent: str) -> str:
    """The project of projects/{project} in a field `parent`. Raises ApiError."""
    return parse_project(parent, "parent")


def parse_job(given: str, field: str = "name") -> ids.JobName:
    """The parts of projects/{project}/jobs/{job}. Raises ApiError."""
    return parsed(ids.parse_job(given), given, "projects/PROJECT/jobs/JOB", field)


def parse_sweep(given: str, field: str = "name") -> ids.SweepName:
    """The parts of projects/{project}/sweeps/{sweep}. Raises ApiError."""
    return parsed(ids.parse_sweep(given), given, "projects/PROJECT/sweeps/SWEEP", field)


def parse_webhook(given: str, field: str = "name") -> ids.WebhookName:
    """The parts of projects/{project}/webhooks/{webhook}. Raises ApiError."""
    return parsed(ids.parse_webhook(given), given, "projects/PROJECT/webhooks/WEBHOOK", field)


def parse_upload(given: str, field: str = "name") -> ids.UploadName:
    """The parts of projects/{project}/uploads/{digest}. Raises ApiError."""
    return parsed(ids.parse_upload(given), given, "projects/PROJECT/uploads/DIGEST", field)
