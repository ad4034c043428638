"""Facts that follow from the names and types of the contract's fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mvprune.v1 import job_pb2

METHODS: Mapping[str, Any] = {
    field.name: field for field in job_pb2.CompressionSpec.DESCRIPTOR.oneofs_by_name["method"].fields
}
"""Method name to its field of CompressionSpec, in the contract's order."""


def is_duration(field: Any) -> bool:
    """Whether a field holds a duration."""
    return field.message_type is not None and field.message_type.full_name == "google.protobuf.Duration"


def words_of(field: Any) -> tuple[str, ...]:
    """The words of an enum's field in lower case, as users write them; () for other fields."""
    kind = field.enum_type
    return tuple(word.name.lower() for word in kind.values if word.number) if kind else ()
