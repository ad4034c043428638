"""The request that submits a job, from the options of a caller."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mvprune.common.exceptions import InvalidArgument, bad_field
from mvprune.common.files import expanded
from mvprune.common.suggestions import did_you_mean, must_be_one_of
from mvprune.spec.annotations import METHODS, words_of
from mvprune.spec.call_options import CallOptions, NamedJob
from mvprune.spec.gates import gates_of
from mvprune.spec.parameter import Kind, Parameter
from mvprune.spec.parameters import PARAMETERS
from mvprune.v1 import job_pb2

if TYPE_CHECKING:
    from mvprune.spec.options import SubmitOptions

DEFAULT_OWN_DATA_TASK = "text-classification"
_JOB_PREFIX, _TRAIN, _NONE = "job:", "train", "none"  # what a teacher may be besides a model, and a baseline


def reference(given: str | os.PathLike[str]) -> str:
    """A model reference as the server reads it: absolute if it is a path here; a hub id or a name stays as it is.

    A path is a PathLike, a text that starts with /, ./, ../ or ~, or the name of an existing file.
    """
    text = os.fspath(given)
    looks_like_path = text.startswith(("/", "./", "../", "~")) or text in (".", "..")
    if looks_like_path or not isinstance(given, str) or (text and Path(text).exists()):
        return file(text)
    return text


def file(given: str | os.PathLike[str]) -> str:
    """An absolute path; "" and paths in a bucket (s3://…) stay. Symbolic links are left to the server."""
    text = os.fspath(given)
    if text.startswith("s3://"):
        return text
    return str(expanded(text).absolute()) if text else ""


def create_request(
    parent: str, model: str | os.PathLike[str], density: float, options: SubmitOptions
) -> job_pb2.CreateJobRequest:
    """The request that submits a job. Options that are None or "" stay unset.

    Raises:
        InvalidArgument: an unknown method, an option that the method does not have, a value of the wrong type.
    """
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None and value != ""}
    call = {name: given.pop(name) for name in CallOptions.__annotations__ if name in given}
    request = job_pb2.CreateJobRequest(parent=parent)
    job = request.job
    job.policy.SetInParent()
    gates = gates_of(given.pop("gates", ()), strict=given.pop("strict_gates", False))
    job.policy.gates.extend(job_pb2.Gate(**vars(gate)) for gate in gates)
    method = given.pop("method", PARAMETERS["method"].default)
    if method not in METHODS:
        raise bad_field("job.spec.method", must_be_one_of(METHODS, str(method)[:200]))
    getattr(job.spec, method).SetInParent()
    _set_teacher(job.spec, given.pop("teacher", ""))
    _set_baseline(job.spec, given.pop("baseline", ""))
    for name, value in {"model": model, "density": density, **given}.items():
        path = _field_of(name, method)
        if not path:
            raise _not_an_option(name, value, method)
        _set_path(job, path, value, PARAMETERS[name])
    if job.spec.HasField("dataset") and "task" not in given:
        job.spec.task = DEFAULT_OWN_DATA_TASK
    _set(request, "validate_only", call.get("validate_only", False), "validate_only", Kind.FLAG)
    request_id = call.get("request_id") or _request_id(request, call.get("run_id", ""))
    _set(request, "request_id", request_id, "request_id", Kind.TEXT)
    return request


def _field_of(name: str, method: str) -> str:
    """The field of a job that a parameter sets, "" where the method does not have it, or there is no such one."""
    known = PARAMETERS.get(name)
    fields = known.fields if known else ()
    return next((path for path in fields if not known or not known.methods or path.startswith(f"spec.{method}.")), "")


def _not_an_option(name: str, value: object, method: str) -> InvalidArgument:
    from mvprune.spec.options import SubmitOptions  # only errors need it

    own = [one.name for one in PARAMETERS.values() if method in one.methods]
    every = [*own, *SubmitOptions.__annotations__]
    hint = "" if name in every else did_you_mean(name, every)
    rule = f"must be unset for {method}, which has {', '.join(own)}, got {str(value)[:200]!r}"
    return bad_field(f"job.spec.{method}.{name}", rule + hint)


def _set_path(job: job_pb2.Job, path: str, value: Any, parameter: Parameter) -> None:
    """Sets one field of a job; `path`: from the job on, such as spec.training.max_steps."""
    *parents, name = path.split(".")
    holder: Any = job
    for parent in parents:
        holder = getattr(holder, parent)
    read = {"file": file, "model": reference}.get(parameter.unit)
    _set(holder, name, value, f"job.{path}", parameter.kind, read)


def _request_id(request: job_pb2.CreateJobRequest, run_id: str) -> str:
    """The same for the same request in the same run, and for no other; a new one where there is no run."""
    if not run_id:
        return secrets.token_hex(16)
    return hashlib.sha256(run_id.encode() + b"\0" + request.SerializeToString(deterministic=True)).hexdigest()


def _set_teacher(spec: job_pb2.CompressionSpec, teacher: Any) -> None:
    """A teacher is a model, "job:" with a job's id or name, "train" or "none"."""
    if teacher and not _set_source(spec, "teacher", teacher):
        spec.teacher.model = reference(teacher)


def _set_baseline(spec: job_pb2.CompressionSpec, baseline: Any) -> None:
    """A baseline is "job:" with a job's id or name, "train" or "none"."""
    if baseline and not _set_source(spec, "baseline", baseline):
        raise bad_field("job.spec.baseline", f"must be job:ID, train or none, got {str(baseline)[:200]!r}")


def _set_source(spec: job_pb2.CompressionSpec, field: str, given: Any) -> bool:
    """Sets a teacher or a baseline to a job, "train" or "none". Returns whether `given` is one of these."""
    if isinstance(given, NamedJob):
        getattr(spec, field).job = given.name
    elif isinstance(given, str) and given.startswith(_JOB_PREFIX):
        getattr(spec, field).job = given.removeprefix(_JOB_PREFIX)
    elif given == _TRAIN:
        getattr(spec, field).train = True
    elif given == _NONE:
        getattr(spec, field).none = True
    else:
        return False
    return True


def _set(message: Any, name: str, value: Any, field: str, kind: Kind, read: Callable[[Any], str] | None = None) -> None:
    """Sets a field of a message to what a parameter of this kind was given; `field` is for errors."""
    try:
        if kind is Kind.LABELS:
            getattr(message, name).update(value)
        elif kind is Kind.TEXTS:
            if isinstance(value, str):
                raise TypeError
            getattr(message, name).extend(value)
        elif kind is Kind.TIME:
            getattr(message, name).FromNanoseconds(round(value * 1e9))
        elif kind is Kind.WORD:
            enum = message.DESCRIPTOR.fields_by_name[name]
            if value not in words_of(enum):
                raise bad_field(field, must_be_one_of(words_of(enum), str(value)[:200]))
            setattr(message, name, enum.enum_type.values_by_name[value.upper()].number)
        else:
            setattr(message, name, read(value) if read else value)
    except UnicodeEncodeError as error:
        raise bad_field(field, f"must be UTF-8, got {error.object[:200]!r}") from None
    except (TypeError, ValueError, OverflowError):
        raise bad_field(field, f"must be {_RULES.get(kind, kind.value)}, got {str(value)[:200]!r}") from None


_RULES = {
    Kind.WHOLE: "a whole number that fits",
    Kind.SIZE: "a whole number that fits",
    Kind.TIME: "a number of seconds",
}
