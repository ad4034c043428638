"""What people call a job and write about it: its name, its labels, changes of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mvprune.common.identifiers import LABEL_KEY, LABEL_KEY_RULE
from mvprune.spec.annotations import annotation
from mvprune.v1 import job_pb2
from mvprune_service.api.access.errors import Violation, bad, invalid
from mvprune_service.db.updates import Change

_LABELS = annotation(job_pb2.Job.DESCRIPTOR.fields_by_name["labels"])
_NAME = annotation(job_pb2.Job.DESCRIPTOR.fields_by_name["display_name"])
MAX_LABELS = _LABELS.max_items


def check_name(field: str, name: str) -> Iterator[Violation]:
    """What is wrong with a name for people."""
    if len(name) > _NAME.max_length:
        yield bad(field, len(name), f"at most {_NAME.max_length} characters")


def check_labels(field: str, labels: Mapping[str, str]) -> Iterator[Violation]:
    """What is wrong with labels."""
    if len(labels) > MAX_LABELS:
        yield bad(field, len(labels), f"at most {MAX_LABELS} labels")
    for key, value in labels.items():
        if not LABEL_KEY.fullmatch(key):
            yield bad(field, key, f"keys of {LABEL_KEY_RULE}")
        if len(value) > _LABELS.max_length:
            yield bad(f"{field}.{key[:63]}", len(value), f"at most {_LABELS.max_length} characters")


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
