"""Sizes in bytes, counts, fractions and times, as people write them, and the longest time to wait."""

from __future__ import annotations

import re
from datetime import UTC, datetime

LONGEST_SECONDS = 365 * 86_400  # gRPC takes a timeout of centuries for none at all
_SIZE = re.compile(r"(\d{1,18}(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)
_DURATION = re.compile(r"(\d{1,9}(?:\.\d+)?)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_UNITS = {"B": 1} | {
    f"{prefix}{suffix}": base ** (power + 1)
    for suffix, base in (("B", 1000), ("iB", 1024))
    for power, prefix in enumerate(("k" if base == 1000 else "K", "M", "G", "T"))
}
_FACTORS = {"": 1} | {unit.lower(): factor for unit, factor in _UNITS.items()}


def parse_size(text: str) -> int:
    """8GiB -> 8589934592. Units are decimal (GB) or binary (GiB), in any case; a bare number is bytes. Raises
    ValueError."""
    found = _SIZE.fullmatch(text.strip())
    factor = _FACTORS.get(found[2].lower()) if found else None
    if found is None or factor is None:
        raise ValueError(f"must be a number with a unit, such as 8GiB or 500MB, got {text!r}")
    size: int = round(float(found[1]) * factor)  # 8.2 * 10**6 is a little less than 8,200,000
    return size


def parse_duration(text: str) -> float:
    """90s, 15m, 2h, 7d -> seconds. Raises ValueError."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"must be a number with s, m, h or d, such as 90s, 15m, 2h or 7d, got {text!r}")
    return float(found[1]) * _SECONDS[found[2]]


def exact_size(number: int) -> str:
    """10000000 -> 10MB, 8589934592 -> 8GiB, 1234567 -> 1234567B: in the largest unit that leaves nothing over."""
    fitting = ((factor, unit) for unit, factor in _UNITS.items() if number and number % factor == 0)
    factor, unit = max(fitting, default=(1, "B"))
    return f"{number // factor}{unit}"


def percent(fraction: float) -> str:
    """0.03 → "3.0 %"; more digits where one would not do. How every density is written for people."""
    value = 100 * fraction
    return f"{value:.1f} %" if value >= 0.1 else f"{value:.2g} %"


def count(number: float) -> str:
    """85054464 → "85.1 M"."""
    for unit, size in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.0f}"


def counted(number: float, what: str) -> str:
    """1, "job" → "1 job"; 1200, "job" → "1,200 jobs"; 0.5, "epoch" → "0.5 epochs"."""
    return f"{number:,g} {what}{'' if number == 1 else 's'}" if number < 1e5 else f"{number:,.0f} {what}s"


def size(number: int) -> str:
    """24117248 → "24.1 MB"."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= factor:
            return f"{number / factor:.1f} {unit}"
    return f"{number} B"


def duration(seconds: float) -> str:
    """80 → "1m20s"."""
    total = max(0, int(seconds))
    if total < 60:
        return f"{total}s"
    if total < 3600:
        return f"{total // 60}m{total % 60:02}s"
    if total < 86400:
        return f"{total // 3600}h{total % 3600 // 60:02}m"
    return f"{total // 86400}d{total % 86400 // 3600:02}h"


def smaller(dense: int, sparse: int) -> str:
    """How many times smaller, or larger; "" where that is not known."""
    if not (dense and sparse):
        return ""
    return f"{dense / sparse:.1f}x smaller" if sparse <= dense else f"{sparse / dense:.1f}x larger"


def timestamp(time: datetime | None) -> str:
    """2026-01-31 12:00:00, "" if there is none."""
    return f"{time:%Y-%m-%d %H:%M:%S}" if time else ""


def age(then: datetime | None) -> str:
    """Time since `then`, "" if there is none."""
    return duration((datetime.now(UTC) - then).total_seconds()) if then else ""
