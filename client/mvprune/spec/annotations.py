"""What the contract says about the fields of a job beside their names and types: proto/mvprune/v1/parameter.proto.

The generated code of job.proto does not have it, as reading it takes time that a client need not spend:
mvprune/v1/job.binpb has it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2

from mvprune.spec.fields import METHODS, is_duration
from mvprune.spec.parameter import Bound, MethodFacts
from mvprune.v1 import parameter_pb2


@functools.cache
def annotation(field: Any) -> parameter_pb2.Parameter:
    """The annotation of a field. Where several methods have an option, the first one has the whole annotation and the
    others have only what differs."""
    own = _of(field)
    first = _method_options().get(field.name) if field.containing_type.full_name in _method_messages() else None
    if first is None or first is field:
        return own
    whole = parameter_pb2.Parameter()
    whole.CopyFrom(_of(first))
    if own.unset:
        whole.ClearField("default")
    if own.default:
        whole.ClearField("unset")
    whole.MergeFrom(own)
    return whole


def choice_of(field: Any) -> parameter_pb2.Parameter | None:
    """The parameter that chooses between a field and others; None where none does."""
    oneof = field.containing_oneof
    options = _options().get(oneof.full_name) if oneof is not None else None
    note: parameter_pb2.Parameter | None = options and options.Extensions[parameter_pb2.choice]
    return note if note is not None and note.help else None


def group_of(message: Any) -> str:
    """The group of options of the fields of a message that name none; "" where it has none."""
    options = _options().get(message.full_name)
    return str(options.Extensions[parameter_pb2.group]) if options is not None else ""


def facts_of(method: Any) -> MethodFacts:
    """The contract's facts about a method, by its field of CompressionSpec."""
    note = parameter_pb2.MethodFacts()
    if (options := _options().get(method.message_type.full_name)) is not None:
        note.CopyFrom(options.Extensions[parameter_pb2.method])
    return MethodFacts(method.name, annotation(method).help, **{one.name: value for one, value in note.ListFields()})


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


def _of(field: Any) -> parameter_pb2.Parameter:
    options = _options().get(field.full_name)
    return options.Extensions[parameter_pb2.parameter] if options is not None else parameter_pb2.Parameter()


@functools.cache
def _options() -> dict[str, Any]:
    """Full name to options, of the messages, fields and oneofs of job.proto that have options."""
    content = (resources.files("mvprune.v1") / "job.binpb").read_bytes()
    files = descriptor_pb2.FileDescriptorSet.FromString(content)
    return {
        name: one.options
        for file in files.file
        for message in file.message_type
        for name, one in _walk(message, file.package)
        if one.HasField("options")
    }


def _walk(message: Any, scope: str) -> Iterator[tuple[str, Any]]:
    """A message and what is in it, with full names."""
    name = f"{scope}.{message.name}"
    yield name, message
    for one in (*message.field, *message.oneof_decl):
        yield f"{name}.{one.name}", one
    for one in message.nested_type:
        yield from _walk(one, name)
