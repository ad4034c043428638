"""Converts request bodies to model inputs. Errors name the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request

from mvprune.common.excerpts import listed
from mvprune.common.strictjson import InvalidJson, parse_json
from mvprune.common.suggestions import must_be_one_of
from mvprune.data.tables import is_writable
from mvprune.serving.batching import Field, Input

BATCH_FIELD = "inputs"
JSON = "application/json"


@dataclass(frozen=True)
class Limits:
    """The options of a request.

    Attributes:
        max_bytes: of a request's body.
        max_batch: inputs in a request.
        max_characters: of a text.
        max_waiting: inputs of all requests that wait for the model.
        max_connections: that are open at a time.
        read_seconds: from the first byte of a request to its last.
    """

    max_bytes: int = 1 << 20
    max_batch: int = 16
    max_characters: int = 20_000
    max_waiting: int = 64
    max_connections: int = 512
    read_seconds: float = 10.0


class Refused(Exception):
    """A request that cannot be answered.

    Attributes:
        status: of the HTTP answer.
        field: the part of the body that is wrong, as in inputs[2].text; "" for all of it.
        message: the rule and the value.
    """

    def __init__(self, status: int, field: str, message: str) -> None:
        super().__init__(message)
        self.status, self.field, self.message = status, field, message


async def read_body(request: Request, limits: Limits) -> bytes:
    """The body of a request whose content is JSON.

    Raises:
        Refused: 415, it is of another type (browsers send such requests for any page, without asking the server); 413,
            as soon as it is known to be too long: no more than the limit is kept.
        ClientDisconnect: it has hung up.
    """
    kind = request.headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != JSON:
        remedy = f"with curl: -H 'Content-Type: {JSON}'"
        raise Refused(415, "", f"Content-Type must be {JSON}, got {kind[:80]!r}; {remedy}")
    too_long = Refused(413, "", f"the body must have at most {limits.max_bytes:,} bytes, got more")
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limits.max_bytes:
        raise too_long
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > limits.max_bytes:
            raise too_long
    return bytes(body)


def parse_inputs(body: bytes, fields: Sequence[Field], limits: Limits) -> tuple[list[Input], bool]:
    """The inputs of a body, and whether they came as a list: {"inputs": [{…}, …]} rather than one {…}.

    Raises:
        Refused: 400, the body is not JSON; 413, there are too many inputs or too long texts; 422, a field is wrong.
    """
    try:
        content = parse_json(body)
    except InvalidJson as error:
        raise Refused(400, "", f"the body must be JSON: {str(error).removeprefix('invalid JSON: ')}") from error
    if not isinstance(content, dict):
        raise Refused(422, "", f"the body must be an object, got {_kind(content)}")
    if BATCH_FIELD not in content:
        return [_input(content, "", fields, limits)], False
    _check_names(content, "", [BATCH_FIELD])
    inputs = content[BATCH_FIELD]
    if not isinstance(inputs, list) or not inputs:
        found = "an empty list" if inputs == [] else _kind(inputs)
        raise Refused(422, BATCH_FIELD, f"must be a list of 1 to {limits.max_batch} objects, got {found}")
    if len(inputs) > limits.max_batch:
        raise Refused(413, BATCH_FIELD, f"must have at most {limits.max_batch} inputs, got {len(inputs):,}")
    return [_input(given, f"{BATCH_FIELD}[{number}]", fields, limits) for number, given in enumerate(inputs)], True


def _input(given: object, place: str, fields: Sequence[Field], limits: Limits) -> Input:
    names = [field.name for field in fields]
    if not isinstance(given, Mapping):
        raise Refused(422, place, f"must be an object with {listed(names)}, got {_kind(given)}")
    _check_names(given, place, names)
    texts: dict[str, str] = {}
    for field in fields:
        if field.name in given:
            texts[field.name] = _text(given[field.name], _path(place, field.name), limits)
        elif field.required:
            raise Refused(422, _path(place, field.name), "must be a string, got nothing")
    return texts


def _check_names(given: Mapping[str, object], place: str, allowed: Sequence[str]) -> None:
    for name in given:
        if name not in allowed:
            raise Refused(422, _path(place, name[:80]), must_be_one_of(allowed, name[:80]))


def _text(value: object, field: str, limits: Limits) -> str:
    if not isinstance(value, str):
        raise Refused(422, field, f"must be a string, got {_kind(value)}")
    if len(value) > limits.max_characters:
        raise Refused(413, field, f"must have at most {limits.max_characters:,} characters, got {len(value):,}")
    if not value.strip():
        raise Refused(422, field, "must not be blank")
    if not is_writable(value):
        raise Refused(422, field, "must be Unicode text without NUL and lone surrogates")
    return value


def _path(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _kind(value: object) -> str:
    if value is None:
        return "null"
    words = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list"}
    return words.get(type(value), "an object")
