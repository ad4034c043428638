"""What error texts quote of a file."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from mvprune.common.excerpts import hidden, listed, shown, with_discreet_errors


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
    assert listed(["a ", "", " b"]) == "'a ', '', ' b'"
    assert listed(["x" * 41]) == f"'{'x' * 40}'…"


def test_hidden_contents_are_described():
    with hidden():
        found = [shown(value) for value in ("secret", "x" * 1000, 12345, True, None, ["secret"])]
        assert listed(["secret", "other"]) == "<2 names>"
        with hidden(when=False):
            assert shown("mine") == "'mine'"
        assert shown("") == "<text of 0 characters>"
    assert found == [
        "<text of 6 characters>",
        "<text of 1,000 characters>",
        "<a number>",
        "<a number>",
        "<a NoneType>",
        "<a list>",
    ]
    assert shown("mine") == "'mine'"


def test_only_the_thread_that_hides_contents_hides_them():
    with hidden(), ThreadPoolExecutor() as threads:
        assert threads.submit(shown, "mine").result() == "'mine'"


@pytest.mark.parametrize(("when", "text"), [(True, "<text of 6 characters>"), (False, "'secret'")])
def test_only_errors_are_discreet(when: bool, text: str):
    def fail() -> None:
        raise LookupError(shown("secret"))

    assert with_discreet_errors(lambda: shown("label"), LookupError, when=when) == "'label'"
    with pytest.raises(LookupError) as caught:
        with_discreet_errors(fail, LookupError, when=when)
    assert str(caught.value) == text
    assert "secret" not in str(caught.value.__context__ or "")
