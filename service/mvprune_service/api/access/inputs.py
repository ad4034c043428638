"""Checks of every request, whatever its type, by walking its descriptors.

Strings have a bounded length and no characters that hide or reorder text; lists are bounded; numbers are finite; enum
values and times are valid. What a single field means is checked where it is used.
"""

from __future__ import annotations

import functools
import math
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from mvprune.sources.uploads import CHUNK_BYTES, MAX_FILE_BYTES
from mvprune.spec.annotations import annotation
from mvprune_service.api.access.errors import Violation, invalid

# From a field to the message: written out only in violations.
Path: TypeAlias = tuple["Path", str | int] | None


class Limit(NamedTuple):
    """The limits of a field: characters of each string, entries of a list or map, and their form."""

    characters: int = 1000
    entries: int = 1000
    name: bool = False  # a name for people: only in Unicode's composed form (NFC)
    free: bool = False  # any text: it is cleaned where it is stored
    lines: bool = False  # of several lines
    number: bool = False  # any number, also NaN and infinity: it is measured, not chosen


_LIMITS = {  # where they differ from the defaults and the contract
    "mvprune.v1.Job.display_name": Limit(name=True),
    "mvprune.v1.Job.labels": Limit(name=True, entries=100),
    "mvprune.v1.UpdateJobRequest.display_name": Limit(name=True),
    "mvprune.v1.UpdateJobRequest.set_labels": Limit(name=True, entries=100),
    "mvprune.v1.UpdateJobRequest.note": Limit(characters=4_000, lines=True),
    "mvprune.v1.CreateShareRequest.display_name": Limit(characters=200, name=True),
    "mvprune.v1.Token.display_name": Limit(characters=200, name=True),
    "mvprune.v1.Webhook.display_name": Limit(characters=200, name=True),
    "mvprune.v1.Webhook.labels": Limit(name=True, entries=100),
    "mvprune.v1.Webhook.events": Limit(entries=100),
    "mvprune.v1.Issuer.jwks": Limit(characters=64 << 10, lines=True),
    "mvprune.v1.ListJobsRequest.page_token": Limit(characters=10_000),  # these may hold the path of a model
    "mvprune.v1.ListModelsRequest.page_token": Limit(characters=10_000),
    "mvprune.v1.UploadFile.chunks": Limit(characters=64, entries=MAX_FILE_BYTES // CHUNK_BYTES),
    "mvprune.v1.Failure.message": Limit(characters=100_000, free=True),
    "mvprune.v1.MetricPoint.value": Limit(number=True),
    "mvprune.v1.Progress.loss": Limit(number=True),
    "mvprune.v1.Progress.density": Limit(number=True),
}
_SECONDS = 315_576_000_000  # 10,000 years: what protobuf's Duration may hold
_FIRST, _LAST = -62_135_596_800, 253_402_300_799  # years 1 to 9999: what its Timestamp may hold
_SHOWN = 12  # violations that are reported at once


def check_request(message: Message) -> None:
    """Raises ApiError (INVALID_ARGUMENT) with the first violations."""
    size = message.ByteSize()
    message.DiscardUnknownFields()
    if message.ByteSize() != size:
        text = "must have only fields that this server knows, got others; update the server to the client's version"
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
    limit = _limit(field)
    if isinstance(value, str):
        _check_text(value, limit, path, found)
    elif isinstance(value, float):
        if not (math.isfinite(value) or limit.number):
            found.append(Violation(_text(path), f"must be a finite number, got {value}"))
    elif isinstance(value, int):
        if field.enum_type is not None and value not in field.enum_type.values_by_number:
            names = ", ".join(one.name for one in field.enum_type.values if one.number)
            found.append(Violation(_text(path), f"must be one of {names}, got {value}"))
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


@functools.cache
def _limit(field: FieldDescriptor) -> Limit:
    known = _LIMITS.get(field.full_name)
    if known is not None:
        return known
    note, default = annotation(field), Limit()
    return Limit(note.max_length or default.characters, note.max_items or default.entries)


def _is_short(values: Any, limit: Limit, path: Path, found: list[Violation]) -> bool:
    if len(values) <= limit.entries:
        return True
    found.append(Violation(_text(path), f"must be at most {limit.entries} entries, got {len(values)}"))
    return False


def _check_text(text: str, limit: Limit, path: Path, found: list[Violation]) -> None:
    if len(text) > limit.characters:
        description = f"must be at most {limit.characters} characters, got {len(text)}"
    elif not limit.free and (hidden := _hidden(text, limit)):
        name = unicodedata.name(hidden, "a control character")
        description = f"must be printable characters and plain spaces, got U+{ord(hidden):04X} ({name})"
    elif limit.name and not unicodedata.is_normalized("NFC", text):
        description = f"must be in Unicode's composed form (NFC), got {text[:50]!a}"
    else:
        return
    found.append(Violation(_text(path), description))


def _hidden(text: str, limit: Limit) -> str:
    """The first character that hides or reorders text, "" if there is none."""
    shown = text.replace("\n", "") if limit.lines else text
    return "" if shown.isprintable() else next(one for one in shown if not one.isprintable())


def _check_time(value: Any, path: Path, found: list[Violation]) -> None:
    seconds, nanos = value.seconds, value.nanos
    if isinstance(value, Duration):
        if abs(seconds) > _SECONDS or abs(nanos) >= 10**9 or seconds * nanos < 0:
            text = f"must be at most 10,000 years, of one sign, got {seconds} s and {nanos} ns"
            found.append(Violation(_text(path), text))
    elif not _FIRST <= seconds <= _LAST or not 0 <= nanos < 10**9:
        text = f"must be in the years 1 to 9999, got {seconds} s and {nanos} ns since 1970"
        found.append(Violation(_text(path), text))


def _text(path: Path) -> str:
    """job.spec.include[3]"""
    if path is None:
        return ""
    parent, last = _text(path[0]), path[1]
    return f"{parent}[{last}]" if isinstance(last, int) else f"{parent}.{last}".lstrip(".")
