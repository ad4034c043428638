"""The parameters of a job and the settings of a sweep, read from the annotations of job.proto and sweep.proto in
proto/mvprune/v1: see scripts/spec_code.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from mvprune.spec.annotations import annotation, bound_of, choice_of, default_of, group_of
from mvprune.spec.fields import METHODS, is_duration, words_of
from mvprune.spec.parameter import Kind, Parameter, written
from mvprune.v1 import job_pb2, parameter_pb2, sweep_pb2

_KINDS = {
    FieldDescriptor.CPPTYPE_STRING: Kind.TEXT,
    FieldDescriptor.CPPTYPE_BOOL: Kind.FLAG,
    FieldDescriptor.CPPTYPE_DOUBLE: Kind.NUMBER,
    FieldDescriptor.CPPTYPE_INT32: Kind.WHOLE,
    FieldDescriptor.CPPTYPE_INT64: Kind.WHOLE,
    FieldDescriptor.CPPTYPE_ENUM: Kind.WORD,
}
_METAVARS = {Kind.WHOLE: "N", Kind.NUMBER: "R", Kind.TIME: "TIME", Kind.WORD: "WORD", Kind.FLAG: ""}
_UNIT_METAVARS = {"file": "FILE", "fraction": "F"}


def read_parameters() -> dict[str, Parameter]:
    """All parameters by name, in the contract's order."""
    job = job_pb2.Job.DESCRIPTOR
    found: dict[str, list[Parameter]] = {}
    for one in (
        *_walk(job_pb2.CompressionSpec.DESCRIPTOR, "spec"),
        *_walk(job_pb2.ExecutionPolicy.DESCRIPTOR, "policy"),
        *(_parameter(job.fields_by_name[name], name, ()) for name in ("display_name", "labels")),
    ):
        found.setdefault(one.name, []).append(one)
    return {name: _merged(same) for name, same in found.items()}


def read_settings() -> dict[str, Parameter]:
    """What sweeps take beside the parameters of their jobs, in the contract's order. The methods of a setting are the
    strategies that have it."""
    jobs = ("base", "job_policy", "axes", "points", "exclude", "gates")  # of parameters of jobs
    spec = _walk(sweep_pb2.SweepSpec.DESCRIPTOR, "sweep.spec", without=jobs)
    return {one.name: one for one in (*spec, *_walk(sweep_pb2.SweepPolicy.DESCRIPTOR, "sweep.policy"))}


def message_flags() -> dict[str, str]:
    """The flags of fields that are messages."""
    spec = job_pb2.CompressionSpec.DESCRIPTOR
    paths = [("spec", spec), *((f"spec.{name}", field.message_type) for name, field in METHODS.items())]
    found = {
        f"{path}.{field.name}": annotation(field).flag
        for path, message in paths
        for field in message.fields
        if field.message_type is not None
    }
    return {path: flags for path, flags in found.items() if flags}


def _walk(message: Any, path: str, method: str = "", without: Sequence[str] = ()) -> Iterator[Parameter]:
    """The parameters of a message and of those in it, but not of the fields `without`."""
    methods = (method,) if method else ()
    for field in message.fields:
        if field.name in without:
            continue
        here = f"{path}.{field.name}"
        choice = choice_of(field)
        if choice is not None:
            if field is field.containing_oneof.fields[0]:
                yield _choice(field.containing_oneof, choice, path, methods)
            if field.message_type is not None:
                yield from _walk(field.message_type, here, field.name)
            continue
        if annotation(field).help:
            yield _parameter(field, here, methods)
        if field.message_type is not None and not is_duration(field):
            yield from _walk(field.message_type, here, method)


def _choice(oneof: Any, note: parameter_pb2.Parameter, path: str, methods: tuple[str, ...]) -> Parameter:
    """The parameter that chooses between the fields of a oneof: by their names, where they are messages."""
    words = tuple(field.name for field in oneof.fields) if oneof.fields[0].message_type is not None else ()
    # The words of a message's ways choose the message, too: descent is a search by descent.
    ways = [field.message_type.fields_by_name.get("way") for field in oneof.fields if words]
    words += tuple(word for way in ways if way is not None for word in words_of(way))
    name = note.name or oneof.name
    return Parameter(
        name=name,
        fields=(f"{path}.{oneof.name}", *(f"{path}.{field.name}" for field in oneof.fields)),
        kind=Kind.WORD if words else Kind.TEXT,
        words=words,
        help=note.help,
        default=note.default or note.unset,
        bound=None,
        unit=note.unit,
        group=note.group or group_of(oneof.containing_type),
        flag=_flag(name, note),
        metavar=note.metavar,
        methods=methods,
        is_common=note.place == parameter_pb2.Parameter.COMMON,
    )


def _parameter(field: Any, path: str, methods: tuple[str, ...]) -> Parameter:
    note, kind = annotation(field), _kind(field)
    name = note.name or field.name
    return Parameter(
        name=name,
        fields=(path,),
        kind=kind,
        words=() if kind is Kind.TEXTS else words_of(field),
        help=note.help,
        default=_default(field, note, kind),
        bound=bound_of(field),
        unit=note.unit,
        group=note.group or group_of(field.containing_type),
        flag=_flag(name, note),
        metavar=note.metavar or _UNIT_METAVARS.get(note.unit) or _METAVARS.get(kind, "NAME"),
        methods=methods,
        is_common=note.place == parameter_pb2.Parameter.COMMON,
        by_name=note.place == parameter_pb2.Parameter.SET,
        key=note.manifest_key,
    )


def _flag(name: str, note: parameter_pb2.Parameter) -> str:
    if note.place == parameter_pb2.Parameter.SET:
        return f"--set {name}"
    return note.flag or f"--{name.replace('_', '-')}"


def _default(field: Any, note: parameter_pb2.Parameter, kind: Kind) -> str:
    if kind is Kind.TIME and note.default:
        return written(default_of(field), "s")
    return note.default or note.unset or ("no" if kind is Kind.FLAG else "")


def _kind(field: Any) -> Kind:
    if is_duration(field):
        return Kind.TIME
    if isinstance(field.default_value, list):  # a repeated field
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        return Kind.LABELS if is_map else Kind.TEXTS
    return Kind.SIZE if annotation(field).unit == "bytes" else _KINDS[field.cpp_type]


def _merged(same: list[Parameter]) -> Parameter:
    """An option of several methods; a default that differs from the first one is named with its methods."""
    first = same[0]
    others: dict[str, list[str]] = {}
    for one in same:
        if one.default != first.default:
            others.setdefault(one.default, []).extend(one.methods)
    return first._replace(
        fields=tuple(field for one in same for field in one.fields),
        methods=tuple(method for one in same for method in one.methods),
        default="; ".join([first.default, *(f"{', '.join(methods)}: {text}" for text, methods in others.items())]),
    )
