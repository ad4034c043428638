"""Converts request bodies to model inputs. Errors name the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request

from mvprune.common.excerpts import listed
from mvprune.serving.batching import Field, Input
from mvprune.serving.fields import Refused, check_names, check_text, kind_of, parse_object, path_of
from mvprune.serving.writing import MAX_NEW_TOKENS, MAX_SECONDS

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
        max_new_tokens: that a text may have which a model writes.
        max_generations: texts that are written at a time.
        generation_seconds: from a text's first token to its last.
    """

    max_bytes: int = 1 << 20
    max_batch: int = 16
    max_characters: int = 20_000
    max_waiting: int = 64
    max_connections: int = 512
    read_seconds: float = 10.0
    max_new_tokens: int = MAX_NEW_TOKENS
    max_generations: int = 4
    generation_seconds: float = MAX_SECONDS


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
    content = parse_object(body)
    if BATCH_FIELD not in content:
        return [_input(content, "", fields, limits)], False
    check_names(content, "", [BATCH_FIELD])
    inputs = content[BATCH_FIELD]
    if not isinstance(inputs, list) or not inputs:
        found = "an empty list" if inputs == [] else kind_of(inputs)
        raise Refused(422, BATCH_FIELD, f"must be a list of 1 to {limits.max_batch} objects, got {found}")
    if len(inputs) > limits.max_batch:
        raise Refused(413, BATCH_FIELD, f"must have at most {limits.max_batch} inputs, got {len(inputs):,}")
    return [_input(given, f"{BATCH_FIELD}[{number}]", fields, limits) for number, given in enumerate(inputs)], True


def _input(given: object, place: str, fields: Sequence[Field], limits: Limits) -> Input:
    names = [field.name for field in fields]
    if not isinstance(given, Mapping):
        raise Refused(422, place, f"must be an object with {listed(names)}, got {kind_of(given)}")
    check_names(given, place, names)
    texts: dict[str, str] = {}
    for field in fields:
        if field.name in given:
            texts[field.name] = check_text(given[field.name], path_of(place, field.name), limits.max_characters)
        elif field.required:
            raise Refused(422, path_of(place, field.name), "must be a string, got nothing")
    return texts
