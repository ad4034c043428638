"""Answers: JSON, YAML, ids alone, and tables that are drawn on a terminal and plain text elsewhere."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TextIO

from mvprune.cli.shared.text import clean
from mvprune.client.display import RESULT_COLUMNS, fields, result_rows, tone

if TYPE_CHECKING:
    from mvprune.client.models import Artifact, JobRecord


_PROSE = 24  # characters: wider columns hold sentences, which may be folded, but to no less than this
_GAP = 3  # between columns that are drawn


_STYLES = {"good": "green", "bad": "red", "stopped": "yellow", "active": "cyan", "waits": "blue"}


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
    for line in plain_table(columns, rows, numbers=numbers):
        print(line)


def plain_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = False) -> list[str]:
    """The lines of a table with a heading; `numbers` as of `print_table`."""
    rows = [columns, *([clean(cell) for cell in row] for row in rows)]
    widths = [max(len(row[index]) for row in rows) for index in range(len(columns))]
    lines = []
    for row in rows:
        pairs = list(enumerate(zip(row, widths, strict=True)))
        cells = [cell.rjust(width) if numbers and index else cell.ljust(width) for index, (cell, width) in pairs]
        lines.append("  ".join(cells).rstrip())
    return lines


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
    return _STYLES.get(tone(text), "")


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
    print_fields(fields(job))


def print_result(artifact: Artifact) -> None:
    """The pruned model beside the dense one."""
    print_table(RESULT_COLUMNS, result_rows(artifact), numbers=True)
