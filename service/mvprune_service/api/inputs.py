"""What a message may hold, whatever its type: checked on every request, by walking its descriptors.

What a single field means is checked where it is used. Here: strings of bounded length without characters that hide or
reorder text, bounded lists, finite numbers, enum values that exist, times that are times.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from mvprune_service.api.errors import Violation, invalid

# From a field to the message: written out only where there is something to tell.
Path: TypeAlias = tuple["Path", str | int] | None


class Limit(NamedTuple):
    """Of a field: characters of each string, how many entries, and what they may look like."""

    characters: int = 1000
    entries: int = 1000
    name: bool = False  # shown to people as what something is called: only in Unicode's composed form (NFC)
    free: bool = False  # any text: it is cleaned where it is stored
    number: bool = False  # any number, NaN and infinity too: it is measured, not chosen


_DEFAULT = Limit()
_LIMITS = {
    "mvprune.v1.Job.display_name": Limit(name=True),
    "mvprune.v1.Job.labels": Limit(name=True, entries=100),
    "mvprune.v1.Token.display_name": Limit(characters=200, name=True),
    "mvprune.v1.ListJobsRequest.page_token": Limit(characters=10_000),  # these may hold the path of a model
    "mvprune.v1.ListModelsRequest.page_token": Limit(characters=10_000),
    "mvprune.v1.CompressionSpec.include": Limit(characters=256, entries=64),
    "mvprune.v1.CompressionSpec.exclude": Limit(characters=256, entries=64),
    "mvprune.v1.Failure.message": Limit(characters=100_000, free=True),
    "mvprune.v1.MetricPoint.value": Limit(number=True),
    "mvprune.v1.Progress.loss": Limit(number=True),
    "mvprune.v1.Progress.density": Limit(number=True),
}
_SECONDS = 315_576_000_000  # 10,000 years: what protobuf's Duration may hold
_FIRST, _LAST = -62_135_596_800, 253_402_300_799  # years 1 to 9999: what its Timestamp may hold
_SHOWN = 12  # violations that are told at once


def check_request(message: Message) -> None:
    """Raises ApiError (INVALID_ARGUMENT) with the first violations."""
    size = message.ByteSize()
    message.DiscardUnknownFields()
    if message.ByteSize() != size:
        text = "holds fields that this server does not know: is the client newer than the server?"
        raise invalid(Violation("request", text))
    found: list[Violation] = []
    _walk(message, None, found)
    if found:
        raise invalid(*found[:_SHOWN])


def clean(text: str, characters: int) -> str:
    """`text` cut to a length, without control characters other than line ends and tabs."""
    return "".join(one if one in "\n\t" or unicodedata.category(one) != "Cc" else " " for one in text[:characters])


def _walk(message: Any, path: Path, found: list[Violation]) -> None:
    kind = type(message)
    if kind is Duration or kind is Timestamp:
        _check_time(message, path, found)
        return
    for field, value in message.ListFields():
        _check(field, value, (path, field.name), found)


def _check(field: FieldDescriptor, value: Any, path: Path, found: list[Violation]) -> None:
    limit = _LIMITS.get(field.full_name, _DEFAULT)
    if isinstance(value, str):
        _check_text(value, limit, path, found)
    elif isinstance(value, float):
        if not (math.isfinite(value) or limit.number):
            found.append(Violation(_text(path), f"got {value}; allowed: finite numbers"))
    elif isinstance(value, int):
        if field.enum_type is not None and value not in field.enum_type.values_by_number:
            names = ", ".join(one.name for one in field.enum_type.values if one.number)
            found.append(Violation(_text(path), f"got {value}; allowed: {names}"))
    elif isinstance(value, Message):
        _walk(value, path, found)
    elif isinstance(value, Mapping):
        if not _is_short(value, limit, path, found):
            return
        for key in value:
            if isinstance(key, str):
                _check_text(key, limit, path, found)
            _check(field, value[key], (path, str(key)[:63]), found)
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        if not _is_short(value, limit, path, found):
            return
        for index, one in enumerate(value):
            _check(field, one, (path, index), found)


def _is_short(values: Any, limit: Limit, path: Path, found: list[Violation]) -> bool:
    if len(values) <= limit.entries:
        return True
    found.append(Violation(_text(path), f"got {len(values)} entries; allowed: at most {limit.entries}"))
    return False


def _check_text(text: str, limit: Limit, path: Path, found: list[Violation]) -> None:
    if len(text) > limit.characters:
        description = f"got {len(text)} characters; allowed: at most {limit.characters}"
    elif not limit.free and not text.isprintable():
        hidden = next(one for one in text if not one.isprintable())
        name = unicodedata.name(hidden, "a control character")
        description = f"holds U+{ord(hidden):04X} ({name}); allowed: printable characters and the plain space"
    elif limit.name and not unicodedata.is_normalized("NFC", text):
        description = "is not in Unicode's composed form; allowed: text in NFC"
    else:
        return
    found.append(Violation(_text(path), description))


def _check_time(value: Any, path: Path, found: list[Violation]) -> None:
    seconds, nanos = value.seconds, value.nanos
    if isinstance(value, Duration):
        if abs(seconds) > _SECONDS or abs(nanos) >= 10**9 or seconds * nanos < 0:
            text = f"got {seconds} s and {nanos} ns; allowed: at most 10,000 years, of one sign"
            found.append(Violation(_text(path), text))
    elif not _FIRST <= seconds <= _LAST or not 0 <= nanos < 10**9:
        text = f"got {seconds} s and {nanos} ns since 1970; allowed: the years 1 to 9999"
        found.append(Violation(_text(path), text))


def _text(path: Path) -> str:
    """job.spec.include[3]"""
    if path is None:
        return ""
    parent, last = _text(path[0]), path[1]
    return f"{parent}[{last}]" if isinstance(last, int) else f"{parent}.{last}".lstrip(".")
