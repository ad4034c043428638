"""The descent to the smallest density that passes: a ladder of densities, each from the result of the one above it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

RUNG_SHARE, RECOVERY_SHARE = 4, 2
"""A rung trains a quarter of the steps of a whole run, a recovery half of them."""
MISSES = 2
"""A descent ends after as many densities in a row that miss: one may do so by chance."""
TOLERANCE = 0.5
"""Neighbouring densities differ by at most this fraction, unless a search says otherwise."""


@dataclass(frozen=True)
class Stage:
    """One run of a descent.

    Attributes:
        kind: the dense model, the first result of a density, or a longer training of that result.
        density: fraction of the prunable weights that is kept.
    """

    kind: Literal["dense", "rung", "recovery"]
    density: float

    def steps(self, whole: int) -> int:
        """Optimizer steps, where a whole run has `whole`."""
        share = {"dense": 1, "rung": RUNG_SHARE, "recovery": RECOVERY_SHARE}[self.kind]
        return max(1, whole // share)


def stages(densities: Sequence[float], passed: Mapping[Stage, bool]) -> list[Stage]:
    """The stages whose results are known, in their order, and the one after them, unless the descent has ended.

    Args:
        densities: in any order.
        passed: whether the results of a stage pass, of those that have ended.
    """
    found, missed = [Stage("dense", 1.0)], list[float]()
    if found[0] not in passed:
        return found
    for density in sorted(densities, reverse=True):
        rung = Stage("rung", density)
        found.append(rung)
        if rung not in passed:
            return found
        missed = [] if passed[rung] else [*missed, density]
        if len(missed) == MISSES:
            break
    if missed:
        found.append(Stage("recovery", missed[0]))
    return found


def most_stages(densities: int) -> int:
    """How many stages there are at most."""
    return densities + 2


def most_steps(densities: int, whole: int) -> int:
    """Steps of all stages together, at most."""
    rungs = densities * Stage("rung", 1.0).steps(whole)
    return whole + rungs + Stage("recovery", 1.0).steps(whole)
