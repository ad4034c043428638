"""The points of a sweep as a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mvprune.client.sweep_models import SweepPoint


def frame(points: Iterable[SweepPoint]) -> Any:
    """A pandas DataFrame, one point a row: see `Sweep.frame`. Raises ImportError."""
    try:
        import pandas  # type: ignore[import-untyped, unused-ignore]
    except ImportError as error:
        raise ImportError("Sweep.frame needs the package pandas: pip install pandas") from error

    return pandas.DataFrame([row(point) for point in points])


def row(point: SweepPoint) -> dict[str, Any]:
    """Column to value."""
    counts = point.accounting
    return {
        "number": point.number,
        "state": str(point.state),
        "optimal": point.optimal,
        **point.cell,
        "method": point.method,
        "target_density": point.target_density,
        "seed": point.seed,
        "model": point.model,
        "task": point.task,
        "reached_density": counts.density if counts else None,
        "bytes": point.total_bytes if counts else None,
        "runtime": point.runtime,
        "gpu_hours": point.gpu_hours,
        **point.metrics,
    }
