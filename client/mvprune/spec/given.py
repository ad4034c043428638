"""The options that a message sets, by their names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mvprune.spec.parameters import PARAMETERS
from mvprune.v1 import job_pb2

_BY_PATH = {path: name for name, one in PARAMETERS.items() for path in one.fields}


def options_of(spec: job_pb2.CompressionSpec) -> dict[str, Any]:
    """The options of a spec that are set, but the method, as `mvprune.spec.rules` takes them.

    A teacher, a baseline or a mask is a model, job:ID, "train" or "none"; one without a source is not set.
    """
    return dict(_options(spec, "spec"))


def _options(message: Any, path: str) -> Iterator[tuple[str, Any]]:
    for field, value in message.ListFields():
        here = f"{path}.{field.name}"
        oneof = field.containing_oneof
        if oneof is not None and oneof.name == "source":
            if value:
                yield _BY_PATH[here], f"job:{value}" if field.name == "job" else field.name if value is True else value
        elif field.message_type is not None:
            yield from _options(value, here)
        elif field.enum_type is not None:
            yield _BY_PATH[here], field.enum_type.values_by_number[value].name.lower()
        elif here in _BY_PATH:
            yield _BY_PATH[here], value
