"""The arguments of tools: their JSON Schema, and the check of what a caller gives."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mvprune.common.exceptions import FieldViolation, InvalidArgument
from mvprune.common.suggestions import did_you_mean, must_be_one_of
from mvprune.spec.parameters import PARAMETERS
from mvprune.spec.schema import property_of

_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "string": ((str,), "a text"),
    "integer": ((int,), "a whole number"),
    "number": ((int, float), "a number"),
    "boolean": ((bool,), "true or false"),
    "array": ((list,), "a list of texts"),
    "object": ((dict,), "a table of names and values"),
}


@dataclass(frozen=True)
class Argument:
    """An argument of a tool.

    Attributes:
        schema: JSON Schema of its value.
        is_parameter: whether it is a parameter of a job, which is read as in a job file.
    """

    schema: Mapping[str, Any]
    required: bool = False
    is_parameter: bool = False


def text(help: str, *, required: bool = False, words: Sequence[str] = ()) -> Argument:
    """A text; `words` are those that are allowed, (): any."""
    return Argument({"type": "string", "description": help, **({"enum": list(words)} if words else {})}, required)


def whole(help: str, low: int, high: int, default: int) -> Argument:
    """A whole number."""
    schema = {"type": "integer", "description": help, "minimum": low, "maximum": high, "default": default}
    return Argument(schema)


def flag(help: str) -> Argument:
    """True or false; false where it is not given."""
    return Argument({"type": "boolean", "description": help, "default": False})


def texts(help: str, *, required: bool = False) -> Argument:
    """A list of texts."""
    return Argument({"type": "array", "items": {"type": "string"}, "description": help}, required)


def table(help: str) -> Argument:
    """Names with their values."""
    return Argument({"type": "object", "description": help, "additionalProperties": True})


def parameter(name: str, *, required: bool = False) -> Argument:
    """A parameter of a job, as the contract describes it."""
    return Argument(property_of(PARAMETERS[name]), required, is_parameter=True)


def schema_of(arguments: Mapping[str, Argument]) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments."""
    return {
        "type": "object",
        "properties": {name: dict(one.schema) for name, one in arguments.items()},
        "required": [name for name, one in arguments.items() if one.required],
        "additionalProperties": False,
    }


def checked(arguments: Mapping[str, Argument], given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given, with the defaults of what was not. A null is not given.

    Raises:
        InvalidArgument: something is missing, unknown or of the wrong kind: all that is.
    """
    wrong: list[FieldViolation] = []
    found = {name: one.schema["default"] for name, one in arguments.items() if "default" in one.schema}
    for name, value in given.items():
        if name not in arguments:
            more = "; `options` takes it" if name in PARAMETERS and "options" in arguments else ""
            names = ", ".join(arguments) or "none"
            hint = more or did_you_mean(name, arguments)
            wrong.append(FieldViolation(name, f"must be an argument of the tool: {names}{hint}"))
        elif value is not None:
            value = _parsed(arguments[name], value)
            rule = "" if arguments[name].is_parameter else _rule(arguments[name].schema, value)
            if rule:
                wrong.append(FieldViolation(name, rule))
            found[name] = value
    missing = [name for name, one in arguments.items() if one.required and found.get(name) in (None, "", [])]
    wrong += [FieldViolation(name, "must be given, got nothing") for name in missing]
    if wrong:
        raise InvalidArgument(violations=wrong)
    return found


def _parsed(argument: Argument, value: Any) -> Any:
    """A list or a table that a client has sent as the text of its JSON."""
    if isinstance(value, str) and argument.schema.get("type") in ("array", "object"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _rule(schema: Mapping[str, Any], value: Any) -> str:
    """What a value must be, "" where it is that."""
    types, words = _KINDS[schema["type"]]
    is_right = isinstance(value, types) and (bool in types or not isinstance(value, bool))
    if schema["type"] == "array":
        is_right = is_right and all(isinstance(one, str) for one in value)
    if isinstance(value, float):
        is_right = is_right and math.isfinite(value)
    if not is_right:
        return f"must be {words}, got {value!r:.100}"
    if "enum" in schema and value not in schema["enum"]:
        return must_be_one_of(schema["enum"], value)
    if "minimum" in schema and not schema["minimum"] <= value <= schema["maximum"]:
        return f"must be from {schema['minimum']:,} to {schema['maximum']:,}, got {value:,}"
    return ""
