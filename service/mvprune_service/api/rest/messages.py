"""Requests from a path, a query and a body; responses and errors as JSON (https://protobuf.dev/programming-guides/json)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import grpc
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from mvprune_service.api.access.errors import ApiError, Violation, invalid, status_of

_BOOLEANS = {"true": True, "false": False}
_STATUS = {  # as https://cloud.google.com/apis/design/errors has it
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}


def new(descriptor: Descriptor) -> Any:
    """An empty message of a type."""
    return message_factory.GetMessageClass(descriptor)()


def from_query(request: Message, query: Iterable[tuple[str, str]], path: Mapping[str, str]) -> None:
    """Fills a request from the parameters of a query, which have the names of its fields. Raises ApiError."""
    fields = {name: field for field in request.DESCRIPTOR.fields for name in (field.name, field.json_name)}
    given: dict[str, Any] = {}
    for name, text in query:
        field = fields.get(name)
        if field is None or field.name in path:
            known = ", ".join(sorted(one.json_name for one in request.DESCRIPTOR.fields if one.name not in path))
            raise invalid(Violation(name[:100], f"must be one of {known or 'no parameters'}"))
        value = _BOOLEANS.get(text, text) if field.type == FieldDescriptor.TYPE_BOOL else text
        if field.is_repeated:
            given.setdefault(field.name, []).append(value)
        elif field.name in given:
            raise invalid(Violation(field.name, "must be given once"))
        else:
            given[field.name] = value
    try:
        json_format.ParseDict(given, request)
    except json_format.ParseError as error:
        raise invalid(Violation("query", f"must have values of the fields' types ({_words(error)})")) from None
    _from_path(request, path)


def from_body(request: Message, body: bytes, path: Mapping[str, str]) -> None:
    """Fills a request from JSON; no body is an empty message. Raises ApiError."""
    try:
        json_format.Parse(body or b"{}", request)
    except (json_format.ParseError, UnicodeDecodeError, RecursionError) as error:
        name = request.DESCRIPTOR.name
        raise invalid(Violation("body", f"must be a {name} in JSON ({_words(error)})")) from None
    _from_path(request, path)


def _from_path(request: Message, path: Mapping[str, str]) -> None:
    for name, value in path.items():
        if getattr(request, name) not in ("", value):
            raise invalid(Violation(name, f"must be that of the path, {value!r}, or left out"))
        setattr(request, name, value)


def to_json(message: Message) -> bytes:
    """A message in one line of JSON."""
    return json_format.MessageToJson(message, indent=None, ensure_ascii=False).encode()


def http_status(error: ApiError) -> int:
    """The HTTP status of an error."""
    return 413 if error.reason == TOO_LARGE else _STATUS.get(error.code.name, 500)


def error_body(error: ApiError, status: int) -> bytes:
    """{"error": {"code": 404, "status": "NOT_FOUND", "message": …, "details": […]}}: the details are those of gRPC."""
    details = json_format.MessageToDict(status_of(error)).get("details", [])
    body = {"code": status, "status": error.code.name, "message": error.message, "details": details}
    return json.dumps({"error": body}, ensure_ascii=False).encode()


TOO_LARGE = "REQUEST_TOO_LARGE"


def too_large(most: int) -> ApiError:
    """The error of a request with too long a body."""
    message = f"the body must have at most {most:,} bytes"
    return ApiError(grpc.StatusCode.RESOURCE_EXHAUSTED, TOO_LARGE, message)


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
