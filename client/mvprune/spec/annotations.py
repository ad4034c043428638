"""What the contract says about the fields of a job beside their names and types: proto/mvprune/v1/parameter.proto."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from mvprune.spec.parameter import Bound
from mvprune.v1 import job_pb2, parameter_pb2

METHODS: Mapping[str, Any] = {
    field.name: field for field in job_pb2.CompressionSpec.DESCRIPTOR.oneofs_by_name["method"].fields
}
"""Method name to its field of CompressionSpec, in the contract's order."""


@functools.cache
def annotation(field: Any) -> parameter_pb2.Parameter:
    """The annotation of a field. Where several methods have an option, the first one has the whole annotation and the
    others have only what differs."""
    own: parameter_pb2.Parameter = field.GetOptions().Extensions[parameter_pb2.parameter]
    first = _method_options().get(field.name) if field.containing_type.full_name in _method_messages() else None
    if first is None or first is field:
        return own
    whole = parameter_pb2.Parameter()
    whole.CopyFrom(first.GetOptions().Extensions[parameter_pb2.parameter])
    if own.unset:
        whole.ClearField("default")
    if own.default:
        whole.ClearField("unset")
    whole.MergeFrom(own)
    return whole


def choice_of(field: Any) -> parameter_pb2.Parameter | None:
    """The parameter that chooses between a field and others; None where none does."""
    oneof = field.containing_oneof
    note: parameter_pb2.Parameter | None = oneof and oneof.GetOptions().Extensions[parameter_pb2.choice]
    return note if note is not None and note.help else None


def is_duration(field: Any) -> bool:
    """Whether a field holds a duration."""
    return field.message_type is not None and field.message_type.full_name == "google.protobuf.Duration"


@functools.cache
def bound_of(field: Any) -> Bound | None:
    """The numbers that a field allows; seconds for a duration; None where there is no bound."""
    note = annotation(field)
    if not note.HasField("max"):
        return None
    unit = "s" if is_duration(field) else "bytes" if note.unit == "bytes" else ""
    return Bound(note.min, note.max, note.above_min, unit)


def manifest_key(field: Any) -> str:
    """The key of a field in the manifests of artifacts."""
    return str(annotation(field).manifest_key or field.name)


def words_of(field: Any) -> tuple[str, ...]:
    """The words of an enum's field in lower case, as users write them; () for other fields."""
    kind = field.enum_type
    return tuple(word.name.lower() for word in kind.values if word.number) if kind else ()


def default_of(field: Any) -> float:
    """The default of a number; seconds for a duration. Raises ValueError where the default is no number."""
    return float(annotation(field).default)


@functools.cache
def _method_messages() -> frozenset[str]:
    return frozenset(field.message_type.full_name for field in METHODS.values())


@functools.cache
def _method_options() -> dict[str, Any]:
    """The first field of each name among the options of the methods."""
    found: dict[str, Any] = {}
    for method in METHODS.values():
        for field in method.message_type.fields:
            found.setdefault(field.name, field)
    return found
