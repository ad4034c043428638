"""A rule that options break, and its words: those of all who check options."""

from __future__ import annotations

from typing import NamedTuple


class Problem(NamedTuple):
    """A rule that options break.

    Attributes:
        option: the option to change; schedule: several of a schedule.
        text: what the option must be, what it is, and what to do.
    """

    option: str
    text: str


def must_be(rule: str, given: object) -> str:
    """The text of a problem. The rule may end in a remedy after a semicolon."""
    rule, _, remedy = rule.partition("; ")
    value = "none" if given is None else str(given) if isinstance(given, int | float) else repr(str(given)[:200])
    return f"must be {rule}, got {value}" + (f"; {remedy}" if remedy else "")


def bad(option: str, given: object, rule: str) -> Problem:
    """The problem of a value that an option has."""
    return Problem(option, must_be(rule, "true" if given is True else given))
