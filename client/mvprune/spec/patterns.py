"""N:M patterns: of each M consecutive weights of a row, N are kept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

LARGEST_GROUP = 64

_PATTERN = re.compile(r"([1-9]\d{0,2}):([1-9]\d{0,2})")
_TOLERANCE = 0.01  # relative: a third may be given as 0.333


@dataclass(frozen=True)
class Pattern:
    """The largest `kept` weights of every `group` consecutive weights of a row stay."""

    kept: int
    group: int

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """The pattern that `text` names, such as 2:4.

        Raises:
            ValueError: the text is no N:M with 1 ≤ N < M ≤ 64.
        """
        found = _PATTERN.fullmatch(text)
        if found is None or not int(found[1]) < int(found[2]) <= LARGEST_GROUP:
            raise ValueError(
                f"must be N:M with 1 <= N < M <= {LARGEST_GROUP}, got {text!r:.50}; 2:4 keeps two of every four weights"
            )
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.kept}:{self.group}"

    @property
    def density(self) -> float:
        """Fraction of the weights that the pattern keeps."""
        return self.kept / self.group

    @property
    def density_note(self) -> str:
        """The note if no density was given."""
        return f"the density is {self.density:.4g}, that of the pattern {self}"

    def problem_with_rows(self, rows: Mapping[str, int]) -> str:
        """The error of a pattern whose groups do not fill the rows of matrices; "" if they fill all.

        Args:
            rows: name of a matrix to the weights of its rows.
        """
        for name, length in rows.items():
            if length % self.group:
                return (
                    f"must be N:M with an M that divides the rows of every pruned matrix, got {self} for {name} with "
                    f"rows of {length} weights; take another pattern, or exclude the layer"
                )
        return ""

    def problem_with_density(self, density: float) -> str:
        """The error of a density that is given beside the pattern; "" if it is the pattern's, within 1 %."""
        if abs(density / self.density - 1) <= _TOLERANCE:
            return ""
        return (
            f"must be {self.density:.4g} with the pattern {self}, got {density:g}; give {self.density:.4g}, or another "
            "pattern"
        )
