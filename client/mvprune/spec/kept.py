"""How many weights a density keeps, and whether that is the density."""

from __future__ import annotations

import math

from mvprune.spec.structures import TOLERANCE

REMEDY = "take a density that the model's matrices are large enough for, global selection"
"""Of `problem_with_kept`, where any weights may be kept."""


def kept_count(size: int, density: float) -> int:
    """Number of entries that `density` keeps of `size`: ⌊density · size⌋, robust to rounding (0.1 · 30 keeps 3).

    Exact for densities of three decimals up to 10^8 entries.
    """
    return min(size, math.floor(density * size + 1e-12 * max(1.0, density * size)))


def problem_with_kept(density: float, kept: int, prunable: int, remedy: str = REMEDY) -> str:
    """The error of a density of which `kept` of `prunable` weights differs by more than 10 %; "" where it does not.

    Args:
        remedy: what to do, other than to allow the difference.
    """
    if abs(kept / prunable - density) <= TOLERANCE * density:
        return ""
    return (
        f"must be {density:g} within 10 %, got {kept / prunable:g} ({kept:,} of {prunable:,} weights); {remedy}, or "
        "allow_density_miss"
    )
