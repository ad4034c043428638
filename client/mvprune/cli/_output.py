"""Answers: JSON, and tables that are drawn on a terminal and plain text elsewhere."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from mvprune.cli._text import advice, age, clean, details, keeps, percent, size, state, steps, timestamp

if TYPE_CHECKING:
    from mvprune._models import Artifact, Job


_METRIC_COLUMNS = (("dense", ""), ("eval", ""), ("delta", "+"))


def print_json(value: Any, *, one_line: bool = False) -> None:
    """A model, or a dict or sequence of models, as one JSON document."""
    print(json.dumps(as_json(value), indent=None if one_line else 2), flush=one_line)


def job_with_result(job: Job, artifact: Artifact | None) -> dict[str, Any]:
    """The JSON answer about one job: its fields and `result`, the artifact."""
    return {**as_json(job), "result": as_json(artifact)}


def as_json(value: Any) -> Any:
    """Dataclasses by field, times in RFC 3339; a number that JSON does not have (NaN, infinity) is null."""
    if dataclasses.is_dataclass(value):
        return {field.name: as_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: as_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(one) for one in value]
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = False) -> None:
    """A table with a heading.

    Args:
        numbers: whether all columns but the first are set flush right.
    """
    rows = [[clean(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for index, column in enumerate(columns):
            table.add_column(column, justify="right" if numbers and index else "left", overflow="fold")
        for row in rows:
            table.add_row(*map(Text, row))
        Console().print(table)
        return
    widths = [max(len(row[index]) for row in [columns, *rows]) for index in range(len(columns))]
    for row in [columns, *rows]:
        pairs = list(enumerate(zip(row, widths, strict=True)))
        cells = [cell.rjust(width) if numbers and index else cell.ljust(width) for index, (cell, width) in pairs]
        print("  ".join(cells).rstrip())


def print_fields(fields: Sequence[tuple[str, str]]) -> None:
    """Name and value a line; fields without a value are left out."""
    shown = [(name, clean(value)) for name, value in fields if value]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.panel import Panel
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        for name, value in shown:
            grid.add_row(Text(name, style="bold"), Text(value))
        Console().print(Panel(grid, expand=False))
        return
    width = max(len(name) for name, _ in shown)
    for name, value in shown:
        print(f"{name.ljust(width)}  {value}")


def print_job(job: Job) -> None:
    """All that matters of a job."""
    live = "" if job.state.is_terminal else "  ".join(filter(None, (steps(job.progress), details(job.progress))))
    print_fields(
        [
            ("job", job.id),
            ("name", job.display_name),
            ("state", state(job)),
            ("progress", live),
            ("failure", f"{job.failure.reason}: {job.failure.message}" if job.failure else ""),
            ("hint", advice(job)),
            ("model", job.spec.model),
            ("task", job.spec.task),
            ("method", job.spec.method),
            ("teacher", _teacher(job)),
            ("density", f"{job.spec.target_density:g}: {keeps(job)}"),
            ("priority", str(job.policy.priority or "")),
            ("attempt", str(job.attempt or "")),
            ("labels", ", ".join(f"{key}={value}" for key, value in sorted(job.labels.items()))),
            ("creator", job.creator),
            ("created", f"{timestamp(job.create_time)} UTC, {age(job.create_time)} ago" if job.create_time else ""),
            ("expires", f"{timestamp(job.expire_time)} UTC, with its artifact" if job.expire_time else ""),
            ("artifact", job.artifact),
        ]
    )


def _teacher(job: Job) -> str:
    teacher = job.spec.teacher
    return teacher.model or teacher.job if teacher else ""


def print_result(artifact: Artifact) -> None:
    """The pruned model beside the dense one."""
    counts, metrics, primary = artifact.accounting, artifact.metrics, artifact.primary_metric
    names = sorted((key[5:] for key in metrics if key.startswith("eval/")), key=lambda name: (name != primary, name))
    rows = [[name, *(_metric(metrics, f"{prefix}/{name}", sign) for prefix, sign in _METRIC_COLUMNS)] for name in names]
    ratio = f"{counts.dense_bytes / counts.sparse_bytes:.1f}x smaller" if counts.sparse_bytes else ""
    rows += [
        ["density asked", "", percent(counts.target_density), ""],
        ["density reached", "", percent(counts.density), ""],
        ["non-zero weights", f"{counts.prunable_weights:,}", f"{counts.kept_weights:,}", ""],
        ["bytes", size(counts.dense_bytes), size(counts.sparse_bytes), ratio],
    ]
    print_table(["", "dense", "pruned", "difference"], rows, numbers=True)


def _metric(metrics: Mapping[str, float], key: str, sign: str) -> str:
    return f"{metrics[key]:{sign}.4f}" if key in metrics else ""
