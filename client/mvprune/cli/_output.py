"""Answers: JSON, YAML, ids alone, and tables that are drawn on a terminal and plain text elsewhere."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TextIO

from mvprune.cli._text import (
    advice,
    age,
    clean,
    details,
    keeps,
    labels,
    smaller,
    state,
    steps,
    stored,
    timestamp,
)
from mvprune.common.units import percent, size
from mvprune.sources.schemes import shown

if TYPE_CHECKING:
    from mvprune.client.models import Artifact, JobRecord


RESULT_COLUMNS = ("", "dense", "pruned", "difference")
_METRIC_COLUMNS = (("dense", ""), ("eval", ""), ("delta", "+"))
_PROSE = 24  # characters: wider columns hold sentences, which may be folded, but to no less than this
_GAP = 3  # between columns that are drawn


_STYLES = {
    **dict.fromkeys(("SUCCEEDED", "passed"), "green"),
    **dict.fromkeys(("FAILED", "LOST", "missed"), "red"),
    **dict.fromkeys(("CANCELLED", "CANCELLING"), "yellow"),
    **dict.fromkeys(("STARTING", "RUNNING", "FINALIZING"), "cyan"),
    "QUEUED": "blue",
}


class Form(NamedTuple):
    """How a command answers.

    Attributes:
        output: text, json or yaml.
        quiet: in text, ids and paths alone; in all forms, no progress.
    """

    output: str = "text"
    quiet: bool = False

    @property
    def is_data(self) -> bool:
        """Whether stdout is for programs: JSON or YAML."""
        return self.output != "text"

    @property
    def is_text(self) -> bool:
        """Whether stdout is for people."""
        return not (self.is_data or self.quiet)

    @property
    def progress(self) -> TextIO | None:
        """Where progress goes: with data stdout is for the answer alone."""
        if self.quiet:
            return None
        return sys.stderr if self.is_data else sys.stdout


def answer(form: Form, value: Any, ids: Iterable[str], text: Callable[[], None]) -> None:
    """Prints an answer in the form that was asked for.

    Args:
        value: a model, or a dict or sequence of models, for JSON and YAML.
        ids: what --quiet shows of it, a line each.
        text: prints it for people.
    """
    if form.is_data:
        print_data(value, form.output)
    elif form.quiet:
        for one in ids:
            print(clean(one))
    else:
        text()


def print_data(value: Any, output: str, *, one_of_many: bool = False) -> None:
    """A model, or a dict or sequence of models, as one document of JSON or YAML.

    Args:
        one_of_many: whether more documents may follow: JSON takes a line then, YAML begins with ---.
    """
    if output == "yaml":
        import yaml  # slow to import

        dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # libyaml's is several times as fast, where it is there
        text = yaml.dump(as_json(value), Dumper=dumper, sort_keys=False, allow_unicode=True, explicit_start=one_of_many)
        print(text, end="", flush=one_of_many)
    else:
        print(json.dumps(as_json(value), indent=None if one_of_many else 2), flush=one_of_many)


def job_with_result(job: JobRecord, artifact: Artifact | None) -> dict[str, Any]:
    """The JSON answer about one job: its fields and `result`, the artifact."""
    return {**as_json(job), "result": as_json(artifact)}


def as_json(value: Any) -> Any:
    """Dataclasses by field, and by the properties that they name as COMPUTED; times in RFC 3339; a number that JSON
    does not have (NaN, infinity) is null."""
    if isinstance(value, str):
        return str(value)  # not the subclass that an enum's word is: YAML knows none
    if dataclasses.is_dataclass(value):
        names = (*(field.name for field in dataclasses.fields(value)), *getattr(value, "COMPUTED", ()))
        return {name: as_json(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {key: as_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(one) for one in value]
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = False, expendable: Sequence[str] = ()
) -> None:
    """A table with a heading.

    Args:
        numbers: whether all columns but the first are set flush right.
        expendable: the columns that a narrow terminal does without first, in this order; then it leaves out columns
            from the right. The first column always stays.
    """
    rows = [[clean(cell) for cell in row] for row in rows]
    widths = [max(len(row[index]) for row in [columns, *rows]) for index in range(len(columns))]
    if sys.stdout.isatty() and _draw_table(columns, rows, widths, numbers=numbers, expendable=expendable):
        return
    for row in [columns, *rows]:
        pairs = list(enumerate(zip(row, widths, strict=True)))
        cells = [cell.rjust(width) if numbers and index else cell.ljust(width) for index, (cell, width) in pairs]
        print("  ".join(cells).rstrip())


def _draw_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    widths: Sequence[int],
    *,
    numbers: bool,
    expendable: Sequence[str],
) -> bool:
    """Draws a table, if the terminal is wide enough for its first column: names stay whole, so that they can be copied.
    Columns that do not fit beside it are left out; only prose is folded."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console, table = Console(), Table(box=box.SIMPLE_HEAD, pad_edge=False)
    shown = _fitting(columns, widths, expendable, console.width)
    if not shown:
        return False
    for index in shown:
        justify: Literal["left", "right"] = "right" if numbers and index else "left"
        is_name = index == 0 or widths[index] <= _PROSE
        table.add_column(columns[index], justify=justify, overflow="fold", no_wrap=is_name)
    for row in rows:
        table.add_row(*(Text(row[index], style=state_style(row[index])) for index in shown))
    console.print(table)
    if hidden := [name for index, name in enumerate(columns) if name and index not in shown]:
        text = f"not shown: {', '.join(hidden)}; a wider terminal shows them, as does -o json"
        console.print(Text(text, style="dim"))
    return True


def _fitting(columns: Sequence[str], widths: Sequence[int], expendable: Sequence[str], width: int) -> list[int]:
    """The columns that a terminal of so many characters has room for; none where it is too narrow for the first."""
    first = [columns.index(name) for name in expendable if name in columns]
    order = [*first, *(index for index in range(len(columns) - 1, 0, -1) if index not in first)]
    shown = list(range(len(columns)))
    least = [min(given, _PROSE) for given in widths]
    least[0] = widths[0]  # which is never folded
    while sum(least[index] for index in shown) + _GAP * (len(shown) - 1) > width:
        if not order:
            return []
        shown.remove(order.pop(0))
    return shown


def state_style(text: str) -> str:
    """The style, as rich names it, of a state of a job or a gate; "" for any other text. rich leaves colours out where
    NO_COLOR is set and where there is no terminal."""
    return _STYLES.get(text.partition(":")[0].partition(" ")[0], "")


def print_fields(fields: Sequence[tuple[str, str]]) -> None:
    """Name and value a line; fields without a value are left out."""
    shown = [(name, clean(value)) for name, value in fields if value]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.panel import Panel
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        grid.add_column()
        grid.add_column(overflow="fold")  # a name that was cut could not be copied
        for name, value in shown:
            grid.add_row(Text(name, style="bold"), Text(value, style=state_style(value) if name == "state" else ""))
        Console().print(Panel(grid, expand=False))
        return
    width = max(len(name) for name, _ in shown)
    for name, value in shown:
        print(f"{name.ljust(width)}  {value}")


def print_job(job: JobRecord) -> None:
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
            ("model", shown(job.spec.model)),
            ("task", job.spec.task),
            ("method", job.spec.method),
            ("mask", _mask(job)),
            ("teacher", _teacher(job)),
            ("baseline", _baseline(job)),
            ("density", keeps(job)),
            ("stored", stored(job.spec)),
            ("priority", str(job.policy.priority or "")),
            ("attempt", str(job.attempt or "")),
            ("labels", labels(job)),
            ("creator", job.creator),
            ("created", f"{timestamp(job.create_time)} UTC, {age(job.create_time)} ago" if job.create_time else ""),
            ("expires", f"{timestamp(job.expire_time)} UTC, with its artifact" if job.expire_time else ""),
            ("sweep", job.sweep),
            ("artifact", job.artifact),
            *(("note", note) for note in job.notes),
        ]
    )


def _mask(job: JobRecord) -> str:
    return shown(str(job.spec.method_options.get("mask_from", "")))


def _teacher(job: JobRecord) -> str:
    teacher = job.spec.teacher
    return shown(teacher.model) or teacher.job or ("none" if teacher.none else "") if teacher else ""


def _baseline(job: JobRecord) -> str:
    baseline = job.spec.baseline
    return baseline.job or ("none" if baseline.none else "") if baseline else ""


def print_result(artifact: Artifact) -> None:
    """The pruned model beside the dense one."""
    print_table(RESULT_COLUMNS, result_rows(artifact), numbers=True)


def result_rows(artifact: Artifact) -> list[list[str]]:
    """The cells below RESULT_COLUMNS."""
    counts, metrics, primary = artifact.accounting, artifact.metrics, artifact.primary_metric
    names = sorted((key[5:] for key in metrics if key.startswith("eval/")), key=lambda name: (name != primary, name))
    rows = [[name, *(_metric(metrics, f"{prefix}/{name}", sign) for prefix, sign in _METRIC_COLUMNS)] for name in names]
    encoder = 4 * counts.encoder_parameters
    above = _metric(metrics, "above_constant", "+")
    return [
        *rows,
        *([["above a constant answer", "", "", above]] if above else []),
        ["density asked", "", percent(counts.target_density), ""],
        ["density reached", "", percent(counts.density), ""],
        ["non-zero weights", f"{counts.prunable_weights:,}", f"{counts.kept_weights:,}", ""],
        [
            "bytes",
            size(counts.dense_bytes),
            size(artifact.total_bytes),
            smaller(counts.dense_bytes, artifact.total_bytes),
        ],
        ["of the encoder", size(encoder), size(counts.encoder_bytes), smaller(encoder, counts.encoder_bytes)],
        ["of the embeddings", "", size(counts.embedding_bytes), ""],
    ]


def _metric(metrics: Mapping[str, float], key: str, sign: str) -> str:
    return f"{metrics[key]:{sign}.4f}" if key in metrics else ""
