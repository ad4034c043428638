"""Cells of a sweep: values of parameters, and the spec of a job that they make of a base."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from mvprune.common.exceptions import InvalidArgument
from mvprune.common.suggestions import did_you_mean, must_be_one_of
from mvprune.spec import messages
from mvprune.spec.parameter import AUTO, Kind, Parameter
from mvprune.spec.parameters import PARAMETERS
from mvprune.v1 import job_pb2

DENSITY, METHOD, SEED = "density", "method", "seed"
_CHOICES: dict[str, Callable[..., None]] = {
    "teacher": messages.set_teacher,
    "baseline": messages.set_baseline,
    messages.MASK_FROM: messages.set_mask,
}
_SPEC = "spec."


class BadValue(ValueError):
    """A parameter that a cell cannot set, or a value that the parameter does not take; the text says why.

    Attributes:
        parameter: the name of the parameter of a cell, "" where only one was asked about.
    """

    def __init__(self, text: str, parameter: str = "") -> None:
        super().__init__(text)
        self.parameter = parameter


class Built(NamedTuple):
    """The spec of a cell.

    Attributes:
        spec: of the cell's job.
        dropped: options of the base that the cell's method does not have.
    """

    spec: job_pb2.CompressionSpec
    dropped: tuple[str, ...]


def parameter_named(name: str) -> Parameter:
    """The parameter that a cell sets. Raises BadValue."""
    known = PARAMETERS.get(name)
    if known is None:
        hint = did_you_mean(name, [one.name for one in PARAMETERS.values() if _is_of_spec(one)])
        raise BadValue(f"must be a parameter of jobs, got {name[:100]!r}{hint}")
    if not _is_of_spec(known):
        raise BadValue(f"must be a parameter of what is compressed and how, got {name!r}; set it for all jobs")
    return known


def checked(name: str, value: Any) -> Any:
    """The value of a parameter, as the contract has it: a number, a text, a bool, a list of texts; None: unset.

    Raises:
        BadValue: there is no such parameter, or it does not take this value.
    """
    known = parameter_named(name)
    if value is None:
        return None
    match known.kind, value:
        case Kind.FLAG, bool():
            return value
        case _, bool():
            pass
        case Kind.TEXT, str() if value:
            return value
        case Kind.WORD, str() if value in known.words:
            return value
        case Kind.NUMBER, int() | float() if math.isfinite(value):
            return float(value)
        case Kind.WHOLE, int() | float() if math.isfinite(value) and value == int(value):
            return int(value)
        case Kind.TEXTS, list() if all(isinstance(one, str) for one in value):
            return value
    if known.kind is Kind.WORD:
        raise BadValue(must_be_one_of(known.words, str(value)[:200]))
    raise BadValue(f"must be {known.takes}, got {value!r:.200}")


def has_option(method: str, name: str) -> bool:
    """Whether a parameter applies to jobs of a method."""
    known = PARAMETERS.get(name)
    return known is None or not known.methods or method in known.methods


def of_method(base: job_pb2.CompressionSpec, cell: Mapping[str, Any]) -> dict[str, Any]:
    """The cell without the options that its method does not have."""
    method = method_of(base, cell)
    return {name: value for name, value in cell.items() if has_option(method, name)}


def method_of(base: job_pb2.CompressionSpec, cell: Mapping[str, Any]) -> str:
    """The method of a cell's job: that of the cell, that of its mask, or the base's."""
    if cell.get(METHOD) or cell.get(messages.MASK_FROM):
        return messages.method_of(cell)
    return str(base.WhichOneof(METHOD) or AUTO)


def build(base: job_pb2.CompressionSpec, cell: Mapping[str, Any]) -> Built:
    """The spec of a cell: the base with the values of the cell. Another method keeps those options of the base's method
    that it has too.

    Args:
        cell: parameter to value, as `checked` returns them.

    Raises:
        BadValue: the cell's method does not have an option of the cell.
    """
    job = job_pb2.Job()
    job.spec.CopyFrom(base)
    dropped = _set_method(job.spec, method_of(base, cell))
    for name, value in cell.items():
        if name != METHOD:
            _set(job, name, value)
    return Built(job.spec, dropped)


def _is_of_spec(parameter: Parameter) -> bool:
    return all(field.startswith(_SPEC) for field in parameter.fields)


def _set_method(spec: job_pb2.CompressionSpec, method: str) -> tuple[str, ...]:
    """Sets the method. Returns the options that it does not have."""
    previous = spec.WhichOneof(METHOD)
    if previous == method:
        return ()
    given = [] if previous is None else getattr(spec, previous).ListFields()
    options = type(getattr(spec, method))()
    for field, value in given:
        own = options.DESCRIPTOR.fields_by_name.get(field.name)
        if own is not None and field.message_type is not None:
            getattr(options, field.name).CopyFrom(value)
        elif own is not None:
            setattr(options, field.name, value)
    getattr(spec, method).CopyFrom(options)
    getattr(spec, method).SetInParent()
    return tuple(field.name for field, _ in given if field.name not in options.DESCRIPTOR.fields_by_name)


def _set(job: job_pb2.Job, name: str, value: Any) -> None:
    method = str(job.spec.WhichOneof(METHOD))
    path = messages.field_of(name, method)
    if not path:
        own = [one.name for one in PARAMETERS.values() if method in one.methods]
        raise BadValue(f"must be unset for {method}, which has {', '.join(own)}, got {value!r:.200}", name)
    if name in _CHOICES:
        for field in PARAMETERS[name].fields[1:]:
            _clear(job, field)
        try:
            _CHOICES[name](job.spec, value or "")
        except InvalidArgument as error:
            raise BadValue(error.violations[0].description, name) from None
        _drop_empty(job, path.rpartition(".")[0])
        return
    _clear(job, path)
    if value is not None:
        try:
            messages.set_value(job, path, value, PARAMETERS[name])
        except InvalidArgument as error:
            raise BadValue(error.violations[0].description, name) from None


def _clear(job: job_pb2.Job, path: str) -> None:
    *parents, name = path.split(".")
    holder: Any = job
    for parent in parents:
        if not holder.HasField(parent):
            return
        holder = getattr(holder, parent)
    holder.ClearField(name)


def _drop_empty(job: job_pb2.Job, path: str) -> None:
    """Clears a message in which nothing is set."""
    holder: Any = job
    for parent in path.split("."):
        holder = getattr(holder, parent)
    if not holder.ListFields():
        _clear(job, path)
