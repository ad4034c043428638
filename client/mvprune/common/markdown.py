"""Markdown: tables, and text that means itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~&])")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")  # and what no encoding has


def escaped(text: str) -> str:
    """A text that means itself in Markdown, without line breaks and control characters."""
    return _SPECIAL.sub(r"\\\1", _CONTROL.sub(" ", text))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool | Sequence[bool] = False) -> str:
    """A table of escaped texts.

    Args:
        numbers: which columns are flush right; True: all but the first.
    """
    flush = [numbers and index > 0 for index in range(len(columns))] if isinstance(numbers, bool) else numbers
    rule = ["---:" if one else "---" for one in flush]
    lines = [[escaped(one) for one in columns], rule, *([escaped(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
