"""What error texts quote of a file."""

from __future__ import annotations

import pytest

from mvprune.excerpts import listed, shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "'a'"),
        ("x" * 40, f"'{'x' * 40}'"),
        ("x" * 41, f"'{'x' * 40}'…"),
        ("a\n\x1b[2J\u202e", r"'a\n\x1b[2J\u202e'"),
        (3, "3"),
        (10**100, "1" + "0" * 39),
        (None, "a NoneType"),
        (["secret"], "a list"),
    ],
)
def test_a_value_is_short_and_on_one_line(value: object, text: str):
    assert shown(value) == text


def test_names_are_listed_up_to_a_limit():
    assert listed(["a", "b c", "d\n", "x" * 41], limit=3) == r"a, b c, 'd\n' and 1 more"
    assert listed(["x" * 41]) == f"'{'x' * 40}'…"
