"""What people call a job and write about it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete

from mvprune_service.db import lifecycle
from mvprune_service.db.engine.database import Tx
from mvprune_service.db.tables.jobs import LABELS, JobRow


@dataclass(frozen=True)
class Change:
    """A change; None: as it is.

    Attributes:
        set_labels: are added, or get another value.
        remove_labels: keys; a job need not have them.
        comment: on the change, or on the job where nothing else changes.
    """

    display_name: str | None
    set_labels: Mapping[str, str]
    remove_labels: Collection[str]
    note: str | None
    comment: str


class TooManyLabels(Exception):
    """A job would have `count` labels."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count


def update(tx: Tx, job: JobRow, change: Change, *, most_labels: int, actor: str, etag: str = "") -> JobRow:
    """Makes a change, with an event that names what is new. One that changes nothing has none. Raises EtagMismatch,
    TooManyLabels."""
    lifecycle.check_etag(job, etag)
    kept = {key: value for key, value in job.labels.items() if key not in change.remove_labels}
    labels = {**kept, **change.set_labels}
    if len(labels) > max(most_labels, len(job.labels)):
        raise TooManyLabels(len(labels))
    wanted: dict[str, Any] = {"display_name": change.display_name, "note": change.note, "labels": labels}
    new = {name: value for name, value in wanted.items() if value is not None and value != (getattr(job, name) or "")}
    if not new and not change.comment:
        return job
    details = {name: _shown(value) for name, value in new.items()}
    if change.comment:
        details["comment"] = change.comment
    lifecycle.note(tx, job, "UPDATED", actor, details, **new)
    if "labels" in new:
        tx.conn.execute(delete(LABELS).where(LABELS.c.job_uid == job.uid))
        lifecycle.add_labels(tx, job.uid, job.project, labels)
    return lifecycle.reload(tx, job.uid)


def _shown(value: str | Mapping[str, str]) -> str:
    """The new value, for an event."""
    return value if isinstance(value, str) else ", ".join(f"{key}={text}" for key, text in sorted(value.items()))
