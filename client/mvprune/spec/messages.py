"""The request that submits a job, from the options of a caller."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from mvprune.common.exceptions import InvalidArgument, bad_field
from mvprune.common.files import expanded
from mvprune.common.suggestions import did_you_mean, must_be_one_of
from mvprune.sources.schemes import SCHEMES
from mvprune.spec.call_options import CallOptions, NamedJob
from mvprune.spec.fields import METHODS, words_of
from mvprune.spec.gates import gates_of
from mvprune.spec.parameter import AUTO, Kind, Parameter
from mvprune.spec.parameters import PARAMETERS
from mvprune.v1 import job_pb2

if TYPE_CHECKING:
    from mvprune.spec.options import SubmitOptions

DEFAULT_OWN_DATA_TASK = "text-classification"
LOCKED_MASK, MASK_FROM = "locked_mask", "mask_from"
_JOB_PREFIX, _TRAIN, _NONE = "job:", "train", "none"  # what a teacher may be besides a model, and a baseline


def reference(given: str | os.PathLike[str]) -> str:
    """A model reference as the server reads it: absolute if it is a path here; a hub id or a name stays as it is.

    A path is a PathLike, a text that starts with /, ./, ../ or ~, or the name of an existing file.
    """
    text = os.fspath(given)
    looks_like_path = text.startswith(("/", "./", "../", "~")) or text in (".", "..")
    is_ours = looks_like_path or not isinstance(given, str) or (text and Path(text).exists())
    return file(given) if is_ours else text


def file(given: str | os.PathLike[str]) -> str:
    """An absolute path; "" and texts that begin with one of `SCHEMES` stay. Symbolic links are left to the server."""
    text = os.fspath(given)
    if isinstance(given, str) and text.startswith(SCHEMES):
        return text
    return str(expanded(text).absolute()) if text else ""


def create_request(
    parent: str, model: str | os.PathLike[str], density: float | None, options: SubmitOptions
) -> job_pb2.CreateJobRequest:
    """The request that submits a job. Options that are None or "" stay unset.

    Raises:
        InvalidArgument: an unknown method, an option that the method does not have, a value of the wrong type.
    """
    given = set_options(options)
    call = {name: given.pop(name) for name in CallOptions.__annotations__ if name in given}
    request = job_pb2.CreateJobRequest(parent=parent)
    request.job.policy.SetInParent()
    gates = gates_of(given.pop("gates", ()), strict=given.pop("strict_gates", False))
    request.job.policy.gates.extend(job_pb2.Gate(**vars(gate)) for gate in gates)
    fill_job(request.job, set_options({"model": model, "density": density}) | given)
    set_field(request, "validate_only", call.get("validate_only", False), "validate_only", Kind.FLAG)
    request_id = call.get("request_id") or id_of_request(request, call.get("run_id", ""))
    set_field(request, "request_id", request_id, "request_id", Kind.TEXT)
    return request


def set_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are set: neither None nor ""."""
    return {name: value for name, value in options.items() if value is not None and value != ""}


def fill_job(job: job_pb2.Job, given: Mapping[str, Any]) -> None:
    """Sets what parameters say about a job.

    Args:
        given: parameter to value, without gates.

    Raises:
        InvalidArgument: an unknown method, an option that the method does not have, a value of the wrong type.
    """
    rest = dict(given)
    rest.pop("method", None)
    method = method_of(given)
    if method not in METHODS:
        raise bad_field("job.spec.method", must_be_one_of(METHODS, str(method)[:200]))
    getattr(job.spec, method).SetInParent()
    set_teacher(job.spec, rest.pop("teacher", ""), reference)
    set_baseline(job.spec, rest.pop("baseline", ""))
    for name, value in rest.items():
        path = field_of(name, method)
        if not path:
            raise _not_an_option(name, value, method)
        if name == MASK_FROM:
            set_mask(job.spec, value, reference)
            continue
        set_value(job, path, value, PARAMETERS[name], reader_of(PARAMETERS[name]))
    if job.spec.HasField("dataset") and "task" not in given:
        job.spec.task = DEFAULT_OWN_DATA_TASK


def method_of(given: Mapping[str, Any]) -> str:
    """The method of a job with these options: a mask that is given stays as it is."""
    method = given.get("method") or AUTO
    return LOCKED_MASK if method == AUTO and given.get(MASK_FROM) else str(method)


def reader_of(parameter: Parameter) -> Callable[[Any], str] | None:
    """What makes a text of a value of this parameter, None where a value is taken as it is."""
    return {"file": file, "model": reference}.get(parameter.unit)


def field_of(name: str, method: str) -> str:
    """The field of a job that a parameter sets, "" where the method does not have it, or there is no such one."""
    known = PARAMETERS.get(name)
    fields = known.fields if known else ()
    return next((path for path in fields if not known or not known.methods or path.startswith(f"spec.{method}.")), "")


def _not_an_option(name: str, value: object, method: str) -> InvalidArgument:
    from mvprune.spec.options import SubmitOptions  # only errors need it

    own = [one.name for one in PARAMETERS.values() if method in one.methods]
    every = [*own, *SubmitOptions.__annotations__]
    hint = "" if name in every else did_you_mean(name, every)
    if method == AUTO and name in PARAMETERS:
        hint = f"; give a method that has it: {', '.join(PARAMETERS[name].methods)}"
    rule = f"must be unset for {method}, which has {', '.join(own)}, got {str(value)[:200]!r}"
    return bad_field(f"job.spec.{method}.{name}", rule + hint)


def set_value(
    job: job_pb2.Job, path: str, value: Any, parameter: Parameter, read: Callable[[Any], str] | None = None
) -> None:
    """Sets one field of a job.

    Args:
        path: from the job on, such as spec.training.max_steps.
        read: what makes a text of the value.

    Raises:
        InvalidArgument: the parameter does not take this value.
    """
    *parents, name = path.split(".")
    holder: Any = job
    for parent in parents:
        holder = getattr(holder, parent)
    set_field(holder, name, value, f"job.{path}", parameter.kind, read)


def id_of_request(request: Message, run_id: str) -> str:
    """The same for the same request in the same run, and for no other; a new one where there is no run."""
    if not run_id:
        return secrets.token_hex(16)
    return hashlib.sha256(run_id.encode() + b"\0" + request.SerializeToString(deterministic=True)).hexdigest()


def set_teacher(spec: job_pb2.CompressionSpec, teacher: Any, read: Callable[[Any], str] = str) -> None:
    """Sets the teacher's source: a model, "job:" with a job's id or name, "train" or "none"; "" leaves it as it is.

    Args:
        read: what makes a reference of a model.
    """
    if teacher and not _set_source(spec.teacher, teacher, (_TRAIN, _NONE)):
        spec.teacher.model = read(teacher)


def set_baseline(spec: job_pb2.CompressionSpec, baseline: Any) -> None:
    """Sets the baseline's source: "job:" with a job's id or name, "train" or "none"; "" leaves it as it is.

    Raises:
        InvalidArgument: it is none of these.
    """
    if baseline and not _set_source(spec.baseline, baseline, (_TRAIN, _NONE)):
        raise bad_field("job.spec.baseline", f"must be job:ID, train or none, got {str(baseline)[:200]!r}")


def set_mask(spec: job_pb2.CompressionSpec, mask: Any, read: Callable[[Any], str] = str) -> None:
    """Sets where the mask of locked_mask is from: a model, or "job:" with a job's id or name; "" leaves it as it is.

    Args:
        read: what makes a reference of a model.
    """
    if mask and not _set_source(spec.locked_mask.mask_from, mask, ()):
        spec.locked_mask.mask_from.model = read(mask)


def _set_source(holder: Any, given: Any, words: Sequence[str]) -> bool:
    """Sets the source of a teacher, a baseline or a mask to a job or one of these words. Returns whether `given` is
    one of them."""
    if isinstance(given, NamedJob):
        holder.job = given.name
    elif isinstance(given, str) and given.startswith(_JOB_PREFIX):
        holder.job = given.removeprefix(_JOB_PREFIX)
    elif given in words:
        setattr(holder, given, True)
    else:
        return False
    return True


def names_no_model(parameter: str, given: str) -> bool:
    """Whether a teacher or a mask is another job, or one of the words for a teacher that is no model."""
    if parameter not in ("teacher", MASK_FROM):
        return False
    return given.startswith(_JOB_PREFIX) or (parameter == "teacher" and given in (_TRAIN, _NONE))


def set_field(
    message: Any, name: str, value: Any, field: str, kind: Kind, read: Callable[[Any], str] | None = None
) -> None:
    """Sets a field of a message to what a parameter of this kind was given; `field` is for errors."""
    try:
        if kind is Kind.LABELS:
            getattr(message, name).update(value)
        elif kind is Kind.TEXTS:
            if isinstance(value, str):
                raise TypeError
            enum = message.DESCRIPTOR.fields_by_name[name]
            getattr(message, name).extend([_number(enum, one, field) for one in value] if enum.enum_type else value)
        elif kind is Kind.TIME:
            getattr(message, name).FromNanoseconds(round(value * 1e9))
        elif kind is Kind.WORD:
            setattr(message, name, _number(message.DESCRIPTOR.fields_by_name[name], value, field))
        else:
            setattr(message, name, read(value) if read else value)
    except UnicodeEncodeError as error:
        raise bad_field(field, f"must be UTF-8, got {error.object[:200]!r}") from None
    except (TypeError, ValueError, OverflowError):
        raise bad_field(field, f"must be {_RULES.get(kind, kind.value)}, got {str(value)[:200]!r}") from None


def _number(enum: Any, word: Any, field: str) -> int:
    """The number of a word of an enum. Raises InvalidArgument."""
    if word not in words_of(enum):
        raise bad_field(field, must_be_one_of(words_of(enum), str(word)[:200]))
    return int(enum.enum_type.values_by_name[word.upper()].number)


_RULES = {
    Kind.WHOLE: "a whole number that fits",
    Kind.SIZE: "a whole number that fits",
    Kind.TIME: "a number of seconds",
}
