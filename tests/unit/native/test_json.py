"""The reader of JSON agrees with Python's, and refuses what is not JSON."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.native.native_parts import parts


def read(text: str | bytes) -> Any:
    """The value.

    Raises:
        ValueError: what the reader says.
    """
    raw = text.encode() if isinstance(text, str) else text
    shown = parts().test_json(raw, len(raw)).decode()
    if shown.startswith("!"):
        raise ValueError(shown[1:])
    return _joined(json.loads(shown))


def _joined(value: Any) -> Any:
    """The driver writes every byte of UTF-8 as a character."""
    match value:
        case str():
            return value.encode("latin-1").decode()
        case list():
            return [_joined(item) for item in value]
        case dict():
            return {_joined(name): _joined(item) for name, item in value.items()}
        case _:
            return value


_characters = st.characters(exclude_categories=["Cs"])
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(_characters),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(_characters), inner, max_size=5),
    max_leaves=30,
)


@given(_values, st.booleans(), st.sampled_from([None, 1]))
def test_values_are_those_of_python(value: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    found, wanted = read(text), json.loads(text, parse_int=lambda digits: _whole(digits))
    assert found == wanted
    assert type(found) is type(wanted)


def _whole(digits: str) -> int | float:
    return int(digits) if -(2**63) <= int(digits) < 2**63 else float(digits)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_the_nearest_double(value: float) -> None:
    for text in (repr(value), f"{value:.25e}"):
        assert math.copysign(1, float(read(f"[{text}]")[0])) * abs(read(f"[{text}]")[0]) == float(text)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "cut off"),
        ("[1,]", "a value is expected"),
        ("[1", "a comma or the end of a list"),
        ("[1] 2", "behind the value"),
        ('{"a":1,}', "a name is expected"),
        ('{"a" 1}', "a colon"),
        ('{"a":1,"b":2,"a":3}', "a name twice"),
        ("{a:1}", "a name is expected"),
        ("nul", "a value is expected"),
        ("NaN", "a value is expected"),
        ("01", "a value is expected"),
        ("-", "a value is expected"),
        ("1.", "a digit"),
        ("1e", "a digit"),
        ("1e999", "too large"),
        ('"\t"', "control character"),
        ('"a', "cut off"),
        ('"\\', "cut off"),
        ('"\\x"', "unknown"),
        ('"\\u12"', "an escape is not of a character"),
        ('"\\u12G4"', "an escape is not of a character"),
        ('"\\ud800"', "an escape is not of a character"),
        ('"\\ud800\\u0041"', "an escape is not of a character"),
        ('"\\udc00"', "an escape is not of a character"),
        (b'"\xff"', "not UTF-8"),
        (b'"\xc0\x80"', "not UTF-8"),
        (b'"\xed\xa0\x80"', "not UTF-8"),
        (b'"\xf4\x90\x80\x80"', "not UTF-8"),
        (b'"\xe2\x82"', "not UTF-8"),
        ("[" * 5_000, "levels"),
        ("\ufeff1", "a value is expected"),
    ],
)
def test_what_is_not_json_is_refused(text: str | bytes, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        read(text)


@given(st.binary(max_size=50))
def test_any_bytes_give_a_value_or_an_error(noise: bytes) -> None:
    for text in (noise, b'["' + noise + b'"]', b"{" + noise + b"}"):
        try:
            wanted = json.loads(text.decode("utf-8"))
        except ValueError:
            with pytest.raises(ValueError, match=r"\w"):
                read(text)
        else:
            assert _read_or_wrong(text) in (wanted, *_LIBERTIES)


# What Python takes: names twice, NaN, lone surrogates.
_LIBERTIES = ("an object has a name twice", "a value is expected", "an escape is not of a character")


def _read_or_wrong(text: bytes) -> Any:
    try:
        return read(text)
    except ValueError as error:
        return str(error).partition(" (byte")[0]
