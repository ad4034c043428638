"""Patterns of the weights that stay: N of each M consecutive weights of a row, or blocks of four."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

LARGEST_GROUP = 64
BLOCK = 4
"""Consecutive inputs of an output that the pattern 1x4 keeps or drops together."""

_N_OF_M = re.compile(r"([1-9]\d{0,2}):([1-9]\d{0,2})")
_TOLERANCE = 0.01  # relative: a third may be given as 0.333


def parse_pattern(text: str) -> Pattern:
    """The pattern that `text` names, such as 1x4 or 2:4.

    Raises:
        ValueError: the text is neither 1x4 nor N:M with 1 ≤ N < M ≤ 64.
    """
    if text == str(BlocksOfFour()):
        return BlocksOfFour()
    found = _N_OF_M.fullmatch(text)
    if found is None or not int(found[1]) < int(found[2]) <= LARGEST_GROUP:
        raise ValueError(
            f"must be 1x{BLOCK}, or N:M with 1 <= N < M <= {LARGEST_GROUP}, got {text!r:.50}; 1x{BLOCK} keeps or drops "
            "four consecutive weights together, and 2:4 keeps two of every four"
        )
    return NOfM(int(found[1]), int(found[2]))


def gives_density(text: str | None) -> bool:
    """Whether a job with this pattern needs no density. A text that names no pattern is another error."""
    try:
        return bool(text) and parse_pattern(text or "").density is not None
    except ValueError:
        return True


class Pattern(ABC):
    """Which weights of a row stay together, or compete with each other. A row has the weights of one output.

    Attributes:
        group: how many consecutive weights do.
    """

    group: int

    @property
    @abstractmethod
    def _rule(self) -> str:
        """What must hold of rows."""

    @property
    def density(self) -> float | None:
        """Fraction of the weights that the pattern keeps; None: any."""
        return None

    @property
    def density_note(self) -> str:
        """The note on the pattern's density where none was given; "" if the pattern has any."""
        return "" if self.density is None else f"the density is {self.density:.4g}, that of the pattern {self}"

    def problem_with_rows(self, rows: Mapping[str, int]) -> str:
        """The error of a pattern whose groups do not fill the rows of matrices; "" if they fill all.

        Args:
            rows: name of a matrix to the weights of its rows.
        """
        for name, length in rows.items():
            if length % self.group:
                return (
                    f"{self._rule}, got {self} for {name} with rows of {length} weights; take another pattern, or "
                    "exclude the layer"
                )
        return ""

    def problem_with_density(self, density: float) -> str:
        """The error of a density that is given beside the pattern; "" if the pattern has it, within 1 %."""
        if self.density is None or abs(density / self.density - 1) <= _TOLERANCE:
            return ""
        return (
            f"must be {self.density:.4g} with the pattern {self}, got {density:g}; give {self.density:.4g}, or another "
            "pattern"
        )


def problem_with_heads(size: int, where: str) -> str:
    """The error of blocks in heads of `size` columns that they do not fill."""
    return (
        f"must be 1x{BLOCK} only where {BLOCK} divides the size of a head, got heads of {size} in {where}; leave out "
        "pattern, or structure"
    )


@dataclass(frozen=True)
class BlocksOfFour(Pattern):
    """1x4: four consecutive weights of a row, from a multiple of four on, are kept or dropped together."""

    group: int = BLOCK

    def __str__(self) -> str:
        return f"1x{BLOCK}"

    @property
    def _rule(self) -> str:
        return f"must be {self} only where {BLOCK} divides the rows of every pruned matrix"


@dataclass(frozen=True)
class NOfM(Pattern):
    """N:M: the `kept` most important weights of every `group` consecutive weights of a row stay."""

    kept: int
    group: int

    def __str__(self) -> str:
        return f"{self.kept}:{self.group}"

    @property
    def _rule(self) -> str:
        return "must be N:M with an M that divides the rows of every pruned matrix"

    @property
    def density(self) -> float:
        return self.kept / self.group
