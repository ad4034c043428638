"""The blocks of a page, what is typed in them, and the comparison of what is shown with what came."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
RUN = ("sh", "console", "python")
SHOWN = "text"  # the output of the block before it
DATA = (
    "json",
    "yaml",
    "toml",
    "proto",
    "mermaid",
    "c",
    "html",
)  # for other tests; yaml with a name at its top is a file

_FENCED = re.compile(r"^( *)```(\S*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ ((?:[ \t]#[^\n]*|[^\n'\\]|\\[\s\S]|'[^']*')*)\n", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block. `page` is relative to the repository, `line` is that of its first line."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    def without(self, starts: Iterable[str]) -> Block:
        """Without the lines that begin so. Python, and what is shown without a command, is whole or empty."""
        unwanted = tuple(starts)
        lines = _lines(self.text)
        typed = [line.removeprefix("$ ") if self.language == "console" else line for line in lines]
        kept = [line for line, start in zip(lines, typed, strict=True) if not start.startswith(unwanted)]
        if self.language not in ("sh", "console") and len(kept) < len(lines):
            kept = []
        return replace(self, text="".join(kept))

    @property
    def sessions(self) -> Iterator[tuple[str, str]]:
        """The commands of a `console` block, each with what is shown after it."""
        parts = _COMMAND.split(self.text)
        assert parts[0].strip() == "", f"{self}: a session begins with `$ ` and a command"
        yield from zip(parts[1::2], parts[2::2], strict=True)


def blocks_of(page: Path) -> list[Block]:
    """All blocks of a document, in their order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            str(page.relative_to(ROOT)),
            text.count("\n", 0, found.start()) + 2,
            found[2],
            textwrap.dedent(found[3]),
        )
        for found in _FENCED.finditer(text)
    ]


def _lines(text: str) -> list[str]:
    """Lines, each with those that continue it."""
    return re.findall(r"(?:.*\\\n)*.*\n", text)


# What differs from run to run, and what stands for it on both sides.
_FORMS = (
    (r"\b\d\d\d\d-\d\d-\d\d \d\d:\d\d:\d\d( UTC)?", "TIME"),
    (r"\b([a-z0-9]+(?:-[a-z0-9]+)*)-[a-z0-9]{6}\b(?=[\s,:]|$)", "ID"),
    (r"\b(?=[a-f]*\d)[0-9a-f]{12}\b", "DIGEST"),
    (r"\b\d[\d.]*(?:ms|[smhd])(?:\d+[smhd])*\b", "#s"),
    (r"(?<![\w.])[+-]?\d[\d.,:]*(?:e-?\d+)?", "#"),
    (r"# (?:[kMG]?B|[kMG])\b", "# B"),
    (r"(?<=%, )(?:sparse|dense)\b", "RUNTIME"),
    (r"# ?x (?:smaller|larger)", "#x"),
)


def form(line: str) -> str:
    """A line without what differs from run to run: numbers, units, ids, times, the width of columns."""
    for pattern, stands_for in _FORMS:
        line = re.sub(pattern, stands_for, line)
    return " ".join(line.split())


def _agree(shown: str, came: str) -> bool:
    """Whether a line is what is shown; of JSON, whether it has all that is shown."""
    if shown.startswith("{") and came.startswith("{"):
        return _has(json.loads(came), json.loads(shown))
    pattern = ".*".join(re.escape(part) for part in form(shown).split("…"))
    return re.fullmatch(pattern, form(came)) is not None


def _has(value: Any, shown: Any) -> bool:
    """Whether a JSON value has the keys and types of another."""
    if isinstance(shown, dict) and isinstance(value, dict):
        return all(key in value and _has(value[key], one) for key, one in shown.items())
    if isinstance(shown, list) and isinstance(value, list):
        return len(shown) == len(value) and all(map(_has, value, shown))
    return type(value) is type(shown)


def missing(shown: str, printed: str) -> str | None:
    """The first line that is shown and did not come, in its order; "…" stands for anything."""
    rest = iter(printed.splitlines())
    for line in shown.splitlines():
        if line != "…" and not any(_agree(line, came) for came in rest):
            return line
    return None
