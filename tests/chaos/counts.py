"""What the chaos tests have done, for the summary."""

from __future__ import annotations

from collections import Counter

COUNTS: Counter[str] = Counter()


def summary() -> str:
    """One line."""
    return ", ".join(f"{name} {count}" for name, count in sorted(COUNTS.items()))
