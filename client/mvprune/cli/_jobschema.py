"""The keys of a job file: the parameters of `Client.submit`, each with its field of the contract.

All are read from the contract's descriptors, so that an option that is added there is known here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from enum import Enum
from typing import Any, NamedTuple

from google.protobuf.descriptor import FieldDescriptor

from mvprune.spec.contract import comment
from mvprune.v1 import job_pb2


class Kind(Enum):
    """What a key takes."""

    TEXT = "text"
    WORD = "a word"
    NUMBER = "a number"
    WHOLE = "a whole number"
    FLAG = "true or false"
    TIME = "seconds, or a number with s, m, h or d, such as 90s, 15m, 2h or 7d"
    SIZE = "bytes, or a number with a unit, such as 8GiB or 500MB"
    TEXTS = "a list of texts"
    LABELS = "a table of texts"


class Key(NamedTuple):
    """One key: what it takes, from which words if only some will do, what it is for, and its fields in a request."""

    kind: Kind
    words: tuple[str, ...]
    description: str
    fields: tuple[str, ...]

    @property
    def takes(self) -> str:
        """What it takes, in words."""
        return ", ".join(self.words) or self.kind.value


TIME_PATTERN = r"[0-9]{1,9}(\.[0-9]+)?[smhd]"
SIZE_PATTERN = r"[0-9]{1,18}(\.[0-9]+)? *(([kKmMgGtT][iI]?)?[bB])?"
_REQUIRED = ("model", "density")
_NAMES = {  # of fields that submit calls otherwise
    "CompressionSpec.target_density": "density",
    "Dataset.hub_id": "dataset",
    "Dataset.hub_config": "dataset_config",
    "Teacher.revision": "teacher_revision",
}
_DESCRIPTIONS = {
    "display_name": "a name for people",
    "labels": "to find the job again; at most 32",
    "exclude": "modules that are not pruned: patterns as for include",
    "validation": "likewise",
    "dataset_config": "the configuration of that data set",
    "text_pair_column": "column of the second text",
    "label_column": "column of the label",
    "cpus": "CPUs of one attempt",
    "gpus": "GPUs of one attempt; default: 1 where the cluster has GPUs",
    "memory_bytes": "memory of one attempt",
    "max_attempts": "attempts, where machines fail; 1 to 100, default 3; user errors are never retried",
}
_KINDS = {
    FieldDescriptor.CPPTYPE_STRING: Kind.TEXT,
    FieldDescriptor.CPPTYPE_BOOL: Kind.FLAG,
    FieldDescriptor.CPPTYPE_DOUBLE: Kind.NUMBER,
    FieldDescriptor.CPPTYPE_INT32: Kind.WHOLE,
    FieldDescriptor.CPPTYPE_INT64: Kind.WHOLE,
    FieldDescriptor.CPPTYPE_MESSAGE: Kind.TIME,
}
_TYPES: dict[Kind, dict[str, Any]] = {
    Kind.TEXT: {"type": "string"},
    Kind.WORD: {"type": "string"},
    Kind.NUMBER: {"type": "number"},
    Kind.WHOLE: {"type": "integer"},
    Kind.FLAG: {"type": "boolean"},
    Kind.TIME: {"type": ["number", "string"], "pattern": f"^{TIME_PATTERN}$"},
    Kind.SIZE: {"type": ["integer", "string"], "pattern": f"^{SIZE_PATTERN}$"},
    Kind.TEXTS: {"type": "array", "items": {"type": "string"}},
    Kind.LABELS: {"type": "object", "additionalProperties": {"type": "string"}},
}


_METHOD = "how weights are chosen; default: soft_movement"
_TEACHER = (
    "distil from this: a fine-tuned model, as for model; job:ID, the model of a job; "
    "train: a dense model is trained first, once for all jobs that can share it; none: no distillation; "
    "default: the job's own dense baseline"
)
_GATES = "what the result must reach, such as f1>=80, delta_f1>=-2 or bytes<=10MB; at most 32"
_STRICT = "a job that misses a gate FAILS, and publishes nothing"
_SOURCES = tuple(f"spec.teacher.{each.name}" for each in job_pb2.Teacher.DESCRIPTOR.oneofs_by_name["source"].fields)


@functools.cache
def keys() -> dict[str, Key]:
    """All keys, by name."""
    spec, policy = job_pb2.CompressionSpec.DESCRIPTOR, job_pb2.ExecutionPolicy.DESCRIPTOR
    methods = {field.name: field.message_type for field in spec.oneofs_by_name["method"].fields}
    teacher = _keys(job_pb2.Teacher.DESCRIPTOR, "spec.teacher")
    return {
        **dict(_keys(spec, "spec")),
        "method": Key(Kind.WORD, tuple(methods), _METHOD, ("spec.method", *(f"spec.{name}" for name in methods))),
        **_method_keys(methods),
        **dict(_keys(job_pb2.Dataset.DESCRIPTOR, "spec.dataset")),
        "teacher": Key(Kind.TEXT, (), _TEACHER, (*_SOURCES, "spec.teacher")),
        **{name: key for name, key in teacher if key.fields[0] not in _SOURCES},
        **dict(_keys(job_pb2.Training.DESCRIPTOR, "spec.training")),
        **dict(_keys(job_pb2.Resources.DESCRIPTOR, "policy.resources")),
        **dict(_keys(policy, "policy")),
        "gates": Key(Kind.TEXTS, (), _GATES, ("policy.gates",)),
        "strict_gates": Key(Kind.FLAG, (), _STRICT, ()),
        "display_name": Key(Kind.TEXT, (), _DESCRIPTIONS["display_name"], ("display_name",)),
        "labels": Key(Kind.LABELS, (), _DESCRIPTIONS["labels"], ("labels",)),
    }


def _method_keys(methods: dict[str, Any]) -> dict[str, Key]:
    """The options of all methods, each with the methods that have it."""
    found: dict[str, list[tuple[str, Key]]] = {}
    for method, message in methods.items():
        for name, key in _keys(message, f"spec.{method}", nested=True):
            found.setdefault(name, []).append((method, key))
    return {
        name: ofs[0][1]._replace(
            description=f"{ofs[0][1].description} (of {', '.join(method for method, _ in ofs)})",
            fields=tuple(field for _, key in ofs for field in key.fields),
        )
        for name, ofs in found.items()
    }


def schema() -> dict[str, Any]:
    """A job file's JSON Schema."""
    properties = {name: _property(key) for name, key in keys().items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "mvprune job file",
        "description": "One job for `mvpctl submit -f`; the keys are the parameters of mvprune.Client.submit.",
        "type": "object",
        "properties": properties,
        "required": list(_REQUIRED),
        "additionalProperties": False,
    }


def _property(key: Key) -> dict[str, Any]:
    words = {"enum": list(key.words)} if key.words else {}
    return {"description": key.description, **_TYPES[key.kind], **words}


def _keys(message: Any, path: str, *, nested: bool = False) -> Iterator[tuple[str, Key]]:
    """The keys for the fields of a message; those of messages in it only if `nested`."""
    for field in message.fields:
        is_time = field.message_type is not None and field.message_type.full_name == "google.protobuf.Duration"
        if field.message_type is not None and not is_time:
            if nested:
                yield from _keys(field.message_type, f"{path}.{field.name}", nested=True)
            continue
        name = _NAMES.get(f"{message.name}.{field.name}", field.name)
        yield name, _key(field, name, f"{path}.{field.name}")


def _key(field: Any, name: str, path: str) -> Key:
    description = _DESCRIPTIONS.get(name) or comment(field.full_name)
    if field.enum_type is not None:
        kind = field.enum_type
        words = tuple(word.name.lower() for word in kind.values if word.number)
        default = comment(f"{kind.full_name}.{kind.values[0].name}").lower() or "what suits the job"
        text = (description or comment(kind.full_name)).rstrip(".")
        return Key(Kind.WORD, words, f"{text}; default: {default}", (path,))
    if isinstance(field.default_value, list):  # a repeated field
        return Key(Kind.TEXTS, (), description, (path,))
    return Key(Kind.SIZE if name == "memory_bytes" else _KINDS[field.cpp_type], (), description, (path,))
