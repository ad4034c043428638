"""The report of the writer of a format on an export."""

from __future__ import annotations

from typing import NamedTuple


class Written(NamedTuple):
    """The fields of `Exported` that depend on the format."""

    difference: float | None = None
    tolerance: float | None = None
    notes: tuple[str, ...] = ()
