"""Typed dataclasses from parsed JSON, strictly: no missing or unknown field, no value of another type."""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from mvprune.artifact.errors import ArtifactError

T = TypeVar("T")


def decode(cls: type[T], value: object, where: str) -> T:
    """A dataclass of str, int, float, tuple[X, ...], Mapping[str, X], Any and dataclasses, from JSON values.

    A whole number serves as a float. A default of the class does not make a field optional.

    Raises:
        ArtifactError: names the field under `where`, what was found and what is allowed; also for what the
            ``__post_init__`` of a dataclass refuses.
    """
    if not isinstance(value, dict):
        raise ArtifactError(f"{where}: must be an object, got {value!r:.200}")
    hints = _hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    for name in [*names, *value]:
        if name not in value:
            raise ArtifactError(f"{where}: must have the field {name}")
        if name not in names:
            raise ArtifactError(f"{where}: must have no fields but {', '.join(names)}, got {name!r:.200}")
    found = {name: _decode(hints[name], value[name], f"{where}: {name}") for name in names}
    try:
        return cls(**found)
    except ArtifactError as error:
        raise ArtifactError(f"{where}: {error}") from error


_hints: Callable[[Any], dict[str, Any]] = functools.cache(typing.get_type_hints)  # slow, and asked for every layer


def _decode(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise ArtifactError(f"{where}: must be a list, got {value!r:.200}")
        return tuple(_decode(arguments[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    if origin is Mapping:
        if not isinstance(value, dict):
            raise ArtifactError(f"{where}: must be an object, got {value!r:.200}")
        return {key: _decode(arguments[1], item, f"{where}[{key!r:.200}]") for key, item in value.items()}
    if dataclasses.is_dataclass(hint):
        return decode(typing.cast(type[Any], hint), value, where)
    if hint is float and type(value) is int and abs(value) < 2**53:
        return float(value)
    if type(value) is not hint or (hint is float and not math.isfinite(value)):
        raise ArtifactError(f"{where}: must be {_NAMES[hint]}, got {value!r:.200}")
    return value


_NAMES: types.MappingProxyType[type, str] = types.MappingProxyType(
    {str: "a string", int: "a whole number", float: "a finite number"}
)
