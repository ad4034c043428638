"""Reads the fields of an object in a request's body. Errors name the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mvprune.common.excerpts import shown
from mvprune.common.strictjson import InvalidJson, parse_json
from mvprune.common.suggestions import must_be_one_of
from mvprune.data.tables import is_writable


class Refused(Exception):
    """A request that cannot be answered.

    Attributes:
        status: of the HTTP answer.
        field: the part of the body that is wrong, as in inputs[2].text; "" for all of it.
        message: the rule and the value.
        code: names some causes for programs, as OpenAI does; "" for most.
    """

    def __init__(self, status: int, field: str, message: str, code: str = "") -> None:
        super().__init__(message)
        self.status, self.field, self.message, self.code = status, field, message, code


def parse_object(body: bytes) -> Mapping[str, object]:
    """The object that is a body.

    Raises:
        Refused: 400, the body is not JSON; 422, it is no object.
    """
    try:
        content = parse_json(body)
    except InvalidJson as error:
        raise Refused(400, "", f"the body must be JSON: {str(error).removeprefix('invalid JSON: ')}") from error
    if not isinstance(content, dict):
        raise Refused(422, "", f"the body must be an object, got {kind_of(content)}")
    return content


class Fields:
    """An object of a body. A field that is null is as one that is not there: each getter then returns None.

    Args:
        content: the object.
        names: of the fields that there are.
        place: of the object in the body; "": it is all of it.

    Raises:
        Refused: 422, there is another field. So do the getters, where a value is not as it should be.
    """

    def __init__(self, content: Mapping[str, object], names: Sequence[str], place: str = "") -> None:
        check_names(content, place, names)
        self._content, self._place = content, place

    def path(self, name: str) -> str:
        """The name of a field from the body on."""
        return path_of(self._place, name)

    def get(self, name: str) -> object:
        """The value as it is."""
        return self._content.get(name)

    def flag(self, name: str) -> bool | None:
        """true or false."""
        value = self.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.refusal(name, "must be true or false")
        return value

    def integer(self, name: str, least: int, most: int) -> int | None:
        """An integer in [least, most]."""
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        raise self.refusal(name, f"must be an integer from {least:,} to {most:,}")

    def number(self, name: str, least: float, most: float) -> float | None:
        """A number in [least, most]."""
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most:
            return float(value)
        raise self.refusal(name, f"must be a number from {least:g} to {most:g}")

    def texts(self, name: str, most: int) -> list[str]:
        """A text, or a list of texts, none of them empty; [] where there is none."""
        value = self.get(name)
        found = [] if value is None else value if isinstance(value, list) else [value]
        if len(found) > most or not all(isinstance(one, str) and one for one in found):
            raise self.refusal(name, f"must be a text that is not empty, or a list of up to {most} of them")
        return [one for one in found if isinstance(one, str)]

    def refusal(self, name: str, rule: str) -> Refused:
        """That a value breaks a rule."""
        value = self.get(name)
        found = shown(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else kind_of(value)
        return Refused(422, self.path(name), f"{rule}, got {found}")


def check_names(given: Mapping[str, object], place: str, allowed: Sequence[str]) -> None:
    """Refuses fields with other names."""
    for name in given:
        if name not in allowed:
            raise Refused(422, path_of(place, name[:80]), must_be_one_of(allowed, name[:80]))


def check_text(value: object, field: str, max_characters: int) -> str:
    """A text that a model can read."""
    if not isinstance(value, str):
        raise Refused(422, field, f"must be a string, got {kind_of(value)}")
    if len(value) > max_characters:
        raise Refused(413, field, f"must have at most {max_characters:,} characters, got {len(value):,}")
    if not value.strip():
        raise Refused(422, field, "must not be blank")
    if not is_writable(value):
        raise Refused(422, field, "must be Unicode text without NUL and lone surrogates")
    return value


def path_of(place: str, name: str) -> str:
    """The name of a field of an object that is at a place of the body."""
    return f"{place}.{name}" if place else name


def kind_of(value: object) -> str:
    """What kind of value it is, in words."""
    if value is None:
        return "null"
    words = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list"}
    return words.get(type(value), "an object")
