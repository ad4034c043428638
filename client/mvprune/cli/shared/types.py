"""The types of options: each turns a word of the command line into a value, or says which values are allowed."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from mvprune.common.suggestions import must_be_one_of
from mvprune.common.units import LONGEST_SECONDS, parse_duration, parse_size


def number(text: str) -> float:
    """The type of an option that takes a number, except NaN and infinity."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise _refused(text, "a number")
    return value


def seconds(text: str) -> float:
    """The type of an option that takes a number of seconds."""
    value = number(text)
    if not 0 <= value <= LONGEST_SECONDS:
        raise _refused(text, f"from 0 to {LONGEST_SECONDS:,}")
    return value


def whole_number(text: str) -> int:
    """The type of an option that takes a whole number."""
    try:
        return int(text)
    except ValueError:
        raise _refused(text, "a whole number") from None


def positive_number(text: str) -> int:
    """The type of an option that takes a whole number of at least 1."""
    value = whole_number(text)
    if value < 1:
        raise _refused(text, "at least 1")
    return value


def memory(text: str) -> int:
    """8GiB -> 8589934592 bytes."""
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def duration(text: str) -> float:
    """90s, 15m, 2h, 7d -> seconds."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def label(text: str) -> tuple[str, str]:
    """team=search -> ("team", "search")."""
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise _refused(text, "KEY=VALUE")
    return key, value


def path(text: str) -> Path:
    """The type of an option that takes a file or a folder, but not "", as from a shell variable that is not set."""
    if not text:
        raise _refused(text, "a file or a folder")
    return Path(text)


class one_of:  # named as the other types of options
    """The type of an option that takes one of a few words."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def __call__(self, text: str) -> str:
        if text not in self.words:
            raise argparse.ArgumentTypeError(must_be_one_of(self.words, text))
        return text


def _refused(given: str, allowed: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"must be {allowed}, got {given!r}")
