"""Changes of what people call a job and write about it."""

from __future__ import annotations

from mvprune.v1 import job_pb2
from mvprune_service.api.access.errors import Violation, invalid
from mvprune_service.api.checks.names import check_labels, check_name
from mvprune_service.db.updates import Change


def read_change(request: job_pb2.UpdateJobRequest) -> Change:
    """The change that a request asks for. Raises ApiError."""
    violations = [*check_name("display_name", request.display_name), *check_labels("set_labels", request.set_labels)]
    for key in sorted(set(request.set_labels) & set(request.remove_labels)):
        violations.append(Violation("remove_labels", f"must have other keys than set_labels, got {key!r}"))
    if violations:
        raise invalid(*violations)
    return Change(
        display_name=request.display_name if request.HasField("display_name") else None,
        set_labels=dict(request.set_labels),
        remove_labels=frozenset(request.remove_labels),
        note=request.note if request.HasField("note") else None,
        comment=request.comment,
    )
