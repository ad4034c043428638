"""Messages that are made from their descriptors: any at all, and those that somebody could mean."""

from __future__ import annotations

import hashlib
import math
import re
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import strategies as st

from mvprune.v1 import job_pb2

JOB_IDS = [f"fuzz-{number}" for number in range(6)]
LEASE = "projects/p/jobs/fuzz-0/attempts/1"
ARTIFACT = hashlib.sha256(b"{}").hexdigest()
NAMES = [
    "projects/p",
    "projects/-",
    "projects/none",
    LEASE,
    "projects/p/jobs/fuzz-1/attempts/-",
    "projects/p/jobs/fuzz-0/attempts/999999999",
    f"projects/p/artifacts/{ARTIFACT}",
    "projects/p/artifacts/" + "a" * 64,
    "projects/p/tokens/token-aaaaaaaaaa",
    *(f"projects/p/jobs/{job_id}" for job_id in JOB_IDS),
]
WORDS = [
    *("", "-", "/", "..", "p", "fuzz-0", "jobs/fuzz-0", "projects//jobs/", "projects/p/jobs/", "projects/P"),
    *("projects/p/jobs/fuzz-0/../fuzz-1", "projects/" + "p" * 64, "projects/ｐ", "projects/p\n", "projects/p\0"),
    *("small", "../small", "/etc/passwd", "s3://bucket/x", "~/x", "a/b", "sst2", "mnli", "text-classification", "ner"),
    *("état", "e\u0301tat", "\u202egnp.exe", "a\u200bb", "\ufeffa", "\U0001f600", "x" * 1001, "é" * 600, "x" * 70_000),
    *("state = RUNNING", "labels:x AND (", 'create_time > "2026-01-01T00:00:00Z"', "NOT " * 200 + "priority > 1"),
    *("(" * 500, "priority > 1e999", "task desc", "create_time", "bm90IGpzb24=", "WzEsMl0=", "W10=", "WyJhIl0="),
    *("1", "0", "99999999999999999999", "'; DROP TABLE jobs; --", "%s%n{0}", "*.attention.*", "[", "[!", "a" * 64),
]
PLAUSIBLE = [
    *("", "a", "p", "fuzz-0", "fuzz-1", "small", "a/b", "sst2", "mnli", "text-classification", "main", "1", "0"),
    *("state = RUNNING", 'labels.team = "x"', "priority > 1", "task desc", "create_time", "*.attention.*", "text"),
    *("projects/p/jobs/fuzz-0", "état", "two words", "WzEsMl0=", "aaaaaaaaaaaa", "a" * 64),
]
INTEGERS = [0, 1, -1, 2, 7, 100, 500, 501, 1 << 20, (1 << 31) - 1, -(1 << 31)]
LONG = [*INTEGERS, 1 << 32, 1 << 53, 1 << 62, (1 << 63) - 1, -(1 << 63), 315_576_000_001]
DOUBLES = [0.0, -0.0, 0.03, 0.5, 1.0, 1.5, -1.0, 1e-320, 1e308, math.nan, math.inf, -math.inf]

_anything = st.one_of(st.sampled_from(NAMES), st.sampled_from(WORDS), st.text(max_size=30))
_tame_of_type: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.CPPTYPE_INT32: st.integers(0, 20),
    FieldDescriptor.CPPTYPE_INT64: st.sampled_from([0, 1, 2, 7, 100, 1 << 20]),
    FieldDescriptor.CPPTYPE_DOUBLE: st.sampled_from([0.0, 0.03, 0.5, 1.0]),
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
}
_of_type: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.CPPTYPE_INT32: st.one_of(st.sampled_from(INTEGERS), st.integers(-(1 << 31), (1 << 31) - 1)),
    FieldDescriptor.CPPTYPE_INT64: st.one_of(st.sampled_from(LONG), st.integers(-(1 << 63), (1 << 63) - 1)),
    FieldDescriptor.CPPTYPE_DOUBLE: st.one_of(st.sampled_from(DOUBLES), st.floats()),
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
}


def one_value(field: FieldDescriptor, tame: bool) -> st.SearchStrategy[Any]:
    """Values of a field, of one element of it where it is repeated."""
    if field.message_type is not None:
        return messages(field.message_type, tame)
    if field.enum_type is not None:
        known = st.sampled_from([value.number for value in field.enum_type.values])
        return known if tame else st.one_of(known, st.just(99), st.just(-1))
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.binary(max_size=50) if tame else st.one_of(st.binary(max_size=50), st.just(b"x" * 300_000))
    if field.type == FieldDescriptor.TYPE_STRING:
        return st.sampled_from(PLAUSIBLE) if tame else _anything
    return (_tame_of_type if tame else _of_type)[field.cpp_type]


def set_field(message: Any, field: FieldDescriptor, tame: bool, draw: st.DrawFn) -> None:
    """Puts something into a field of a message."""
    kind = field.message_type
    container = getattr(message, field.name)
    if kind is not None and kind.GetOptions().map_entry:
        key, value = kind.fields_by_name["key"], kind.fields_by_name["value"]
        for _ in range(draw(st.sampled_from([1, 2] if tame else [1, 2, 3, 40]))):
            container[draw(one_value(key, tame))] = draw(one_value(value, tame))
    elif hasattr(container, "extend"):
        times = draw(st.sampled_from([1] if tame else [1, 1, 1, 500]))
        container.extend(draw(st.lists(one_value(field, tame), max_size=3)) * times)
    elif kind is not None:
        container.CopyFrom(draw(one_value(field, tame)))
    else:
        setattr(message, field.name, draw(one_value(field, tame)))


def messages(descriptor: Descriptor, tame: bool) -> st.SearchStrategy[Message]:
    """Messages of a type, with some of their fields set; tame ones have values that somebody could mean."""
    kind = message_factory.GetMessageClass(descriptor)
    if kind in (Duration, Timestamp):
        seconds = st.sampled_from([0, 1, 5, 60, 3600] if tame else LONG)
        return st.builds(kind, seconds=seconds, nanos=st.just(0) if tame else st.sampled_from(INTEGERS))
    known = list(descriptor.fields)

    @st.composite
    def build(draw: st.DrawFn) -> Message:
        message = kind()
        chosen = st.lists(st.sampled_from(known), max_size=6, unique_by=lambda one: one.name) if known else st.just([])
        for one in draw(chosen):
            set_field(message, one, tame, draw)
        return message

    return build()


_JOB = "projects/p/jobs/[^/]*"
_NAME_OF = {  # where it is not a project's
    **dict.fromkeys(("GetJob", "WatchJob", "CancelJob", "RetryJob", "DeleteJob"), _JOB),
    **dict.fromkeys(("ListJobEvents", "ListAttempts", "ListMetrics"), _JOB),
    **dict.fromkeys(("GetArtifact", "GenerateDownloadUrls", "ReadFile"), "projects/p/artifacts/.*"),
    "FollowLogs": f"{_JOB}/attempts/.*",
    "RevokeToken": "projects/p/tokens/.*",
}


def requests(method: MethodDescriptor, valid: job_pb2.Job, token: int) -> st.SearchStrategy[Any]:
    """Requests of a method: any, and those that are nearly right. `valid` is a job that can be submitted, `token` the
    fencing token of LEASE."""

    @st.composite
    def build(draw: st.DrawFn) -> Any:
        tame = draw(st.integers(0, 3)) > 0
        request: Any = draw(messages(method.input_type, tame))
        fields = method.input_type.fields_by_name
        if not tame:
            return request
        for name in ("name", "parent", "attempt"):
            if name in fields:
                right = [one for one in NAMES if re.fullmatch(_NAME_OF.get(method.name, "projects/p"), one)]
                setattr(request, name, draw(st.sampled_from(right)))
        if "path" in fields:
            request.path = draw(st.sampled_from(["manifest.json", "weights", "../key"]))
        if "lease" in fields:
            request.lease.attempt, request.lease.fencing_token = LEASE, token
        if method.name == "CreateJob":
            request.parent, given = "projects/p", request.job
            merged = job_pb2.Job()
            merged.CopyFrom(valid)
            if draw(st.booleans()):
                merged.MergeFrom(given)
            request.job.CopyFrom(merged)
        return request

    return build()
