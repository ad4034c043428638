"""A caller's options to messages.

The names of the methods and of their options are those of the contract: they are read from the descriptors, so a
method added to the `oneof` is known here without another word.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from mvprune.common.exceptions import InvalidArgument, bad_field
from mvprune.common.files import expanded
from mvprune.common.suggestions import did_you_mean, must_be_one_of
from mvprune.spec.gates import gates_of
from mvprune.spec.options import (
    DatasetOptions,
    NamedJob,
    PolicyOptions,
    RequestOptions,
    ResourceOptions,
    SpecOptions,
    SubmitOptions,
    TeacherOptions,
    TrainingOptions,
)
from mvprune.v1 import job_pb2

DEFAULT_METHOD = "soft_movement"
DEFAULT_OWN_DATA_TASK = "text-classification"
_JOB_PREFIX, _TRAIN, _NONE = "job:", "train", "none"  # what a teacher may be besides a model


def _paths(descriptor: Any) -> dict[str, tuple[str, ...]]:
    """Option name to the path of its field; options of a nested message (the schedule) are reached through it."""
    found: dict[str, tuple[str, ...]] = {}
    for field in descriptor.fields:
        if field.message_type is None:
            found[field.name] = (field.name,)
        else:
            found |= {name: (field.name, *path) for name, path in _paths(field.message_type).items()}
    return found


METHODS: dict[str, dict[str, tuple[str, ...]]] = {
    field.name: _paths(field.message_type)
    for field in job_pb2.CompressionSpec.DESCRIPTOR.oneofs_by_name["method"].fields
    if field.message_type is not None
}
"""Method name to its options, each with the path of its field."""


def option(message: Any, field: Any) -> Any:
    """The value of a scalar option as users have it: a number, an enum's word in lower case; None if it is unset."""
    if not any(found.name == field.name for found, _ in message.ListFields()):
        return None
    value = getattr(message, field.name)
    if field.enum_type is None:
        return value
    known = field.enum_type.values_by_number.get(value)
    return known.name.lower() if known else str(value)


def reference(given: str | os.PathLike[str]) -> str:
    """A model reference as the server has to read it: absolute if it is a path here, else (a hub id, a name) as it is.

    A path is a PathLike, anything that starts with /, ./, ../ or ~, and what exists here.
    """
    text = os.fspath(given)
    looks_like_path = text.startswith(("/", "./", "../", "~")) or text in (".", "..")
    if looks_like_path or not isinstance(given, str) or (text and Path(text).exists()):
        return file(text)
    return text


def file(given: str | os.PathLike[str]) -> str:
    """An absolute path; "" and what lies in a bucket (s3://…) stay. Symbolic links are left to the server."""
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
    given = {name: value for name, value in options.items() if value is not None and value != ""}
    call = _take(given, RequestOptions)
    policy = _policy(_take(given, ResourceOptions), _take(given, PolicyOptions))
    spec = job_pb2.CompressionSpec()
    _set(spec, "model", reference(model), "job.spec.model")
    _set(spec, "target_density", density, "job.spec.target_density")
    _set_dataset(spec, _take(given, DatasetOptions))
    _set_teacher(spec, _take(given, TeacherOptions))
    for name, value in _take(given, TrainingOptions).items():
        _set(spec.training, name, value, f"job.spec.training.{name}")
    _set_what(spec, _take(given, SpecOptions), given)
    request = job_pb2.CreateJobRequest(parent=parent, job=job_pb2.Job(spec=spec, policy=policy))
    _set(request.job, "display_name", call.get("display_name", ""), "job.display_name")
    _set_labels(request.job, call.get("labels", {}))
    _set(request, "validate_only", call.get("validate_only", False), "validate_only")
    _set(request, "request_id", call.get("request_id") or _request_id(request, call.get("run_id", "")), "request_id")
    return request


def _take(given: dict[str, Any], kind: Any) -> dict[str, Any]:
    """Those of the options that a class of them lists, taken out."""
    return {name: given.pop(name) for name in kind.__annotations__ if name in given}


def _set_what(spec: job_pb2.CompressionSpec, options: dict[str, Any], method_options: dict[str, Any]) -> None:
    """What is pruned, and how; what no class of options lists is taken for an option of the method."""
    spec.task = options.pop("task", DEFAULT_OWN_DATA_TASK if spec.HasField("dataset") else "")
    method = options.pop("method", DEFAULT_METHOD)
    for field in ("include", "exclude"):
        patterns = options.pop(field, ())
        if isinstance(patterns, str) or not all(isinstance(pattern, str) for pattern in patterns):
            raise _invalid(f"job.spec.{field}", patterns, "a list of patterns over names of modules")
        getattr(spec, field).extend(patterns)
    for name, value in options.items():
        _set(spec, name, value, f"job.spec.{name}")
    _set_method(spec, method, method_options)


def _set_dataset(spec: job_pb2.CompressionSpec, options: dict[str, Any]) -> None:
    for name, value in options.items():
        field = {"dataset": "hub_id", "dataset_config": "hub_config"}.get(name, name)
        text = file(value) if name in ("train", "validation") else value
        _set(spec.dataset, field, text, f"job.spec.dataset.{field}")


def _policy(resources: dict[str, Any], limits: dict[str, Any]) -> job_pb2.ExecutionPolicy:
    policy = job_pb2.ExecutionPolicy()
    gates = gates_of(limits.pop("gates", ()), strict=limits.pop("strict_gates", False))
    policy.gates.extend(job_pb2.Gate(**vars(gate)) for gate in gates)
    for name, value in resources.items():
        _set(policy.resources, name, value, f"job.policy.resources.{name}")
    for name, value in limits.items():
        _set(policy, name, value, f"job.policy.{name}")
    return policy


def _request_id(request: job_pb2.CreateJobRequest, run_id: str) -> str:
    """The same for the same request in the same run, and for no other; one of its own where there is no run."""
    if not run_id:
        return secrets.token_hex(16)
    return hashlib.sha256(run_id.encode() + b"\0" + request.SerializeToString(deterministic=True)).hexdigest()


def _set_teacher(spec: job_pb2.CompressionSpec, options: dict[str, Any]) -> None:
    """A teacher is a model, "job:" with a job's id or name, "train" or "none"."""
    teacher = options.pop("teacher", "")
    if isinstance(teacher, NamedJob):
        spec.teacher.job = teacher.name
    elif isinstance(teacher, str) and teacher.startswith(_JOB_PREFIX):
        spec.teacher.job = teacher.removeprefix(_JOB_PREFIX)
    elif teacher == _TRAIN:
        spec.teacher.train = True
    elif teacher == _NONE:
        spec.teacher.none = True
    elif teacher:
        spec.teacher.model = reference(teacher)
    for name, value in options.items():
        field = name.removeprefix("teacher_")
        _set(spec.teacher, field, value, f"job.spec.teacher.{field}")


def _set_labels(job: job_pb2.Job, labels: Any) -> None:
    try:
        job.labels.update(labels)
    except UnicodeEncodeError as error:
        raise _no_text("job.labels", error) from None
    except (TypeError, ValueError):
        raise _invalid("job.labels", labels, "texts by their keys") from None


def _set_method(spec: job_pb2.CompressionSpec, method: str, options: dict[str, Any]) -> None:
    if method not in METHODS:
        raise bad_field("job.spec.method", must_be_one_of(METHODS, str(method)[:200]))
    chosen = getattr(spec, method)
    chosen.SetInParent()
    for name, value in options.items():
        path = METHODS[method].get(name)
        if path is None:
            every = [*METHODS[method], *SubmitOptions.__annotations__]
            hint = "" if name in every else did_you_mean(name, every)
            allowed = f"{', '.join(METHODS[method])} (the options of {method}){hint}"
            raise _invalid(f"job.spec.{method}.{name}", value, allowed)
        holder = chosen
        for part in path[:-1]:
            holder = getattr(holder, part)
        _set(holder, path[-1], value, f"job.spec.{method}.{'.'.join(path)}")


def _set(message: Message, name: str, value: Any, field: str) -> None:
    kind = message.DESCRIPTOR.fields_by_name[name]
    if kind.enum_type is not None:
        words = {known.name.lower(): known.number for known in kind.enum_type.values if known.number}
        if not isinstance(value, str) or value not in words:
            raise bad_field(field, must_be_one_of(words, str(value)[:200]))
        setattr(message, name, words[value])
        return
    try:
        if kind.message_type is not None:
            getattr(message, name).FromNanoseconds(round(value * 1e9))
        else:
            setattr(message, name, value)
    except UnicodeEncodeError as error:
        raise _no_text(field, error) from None
    except (TypeError, ValueError, OverflowError):
        raise _invalid(field, value, _ALLOWED.get(kind.cpp_type, "a number")) from None


_ALLOWED = {
    FieldDescriptor.CPPTYPE_INT32: "a whole number that fits",
    FieldDescriptor.CPPTYPE_INT64: "a whole number that fits",
    FieldDescriptor.CPPTYPE_BOOL: "true or false",
    FieldDescriptor.CPPTYPE_STRING: "text",
    FieldDescriptor.CPPTYPE_MESSAGE: "a number of seconds",
}


def _invalid(field: str, given: object, allowed: str) -> InvalidArgument:
    return bad_field(field, f"got {str(given)[:200]!r}; allowed: {allowed}")


def _no_text(field: str, error: UnicodeEncodeError) -> InvalidArgument:
    return bad_field(field, f"got {error.object[:200]!r}, which is not UTF-8; allowed: text")
