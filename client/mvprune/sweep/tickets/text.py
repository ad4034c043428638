"""The table of tickets and controls, and the two matrices of transfer, as texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from mvprune.common.units import percent
from mvprune.data.tasks import LOSSES
from mvprune.sweep.tickets.criterion import CONFIDENCE, Summary
from mvprune.sweep.tickets.results import TicketResults, TicketRow, TransferCell
from mvprune.sweep.tickets.study import CONTROLS

MISSING = "–"
_HEADS = dict(zip(CONTROLS, ("random mask", "random weights", "shuffled weights", "shuffled layers"), strict=True))
_MASKS = {"random_mask": "random mask"}
EXPLANATION = (
    f"Metrics are percentages, mean ± standard deviation (number of seeds), but for {' and '.join(sorted(LOSSES))}. "
    f"`difference` is ticket − dense with its {100 * CONFIDENCE:g} % interval over the pairs of equal seeds. A ticket "
    "wins if the dense mean is at most one standard deviation of the ticket better than the ticket's mean."
)


class Grid(NamedTuple):
    """The texts of a table."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def ticket_table(found: TicketResults) -> Grid:
    """A row for each task, metric and density."""
    heads = [_HEADS[control] for control in found.controls]
    columns = ("task", "kept", "metric", "dense", "ticket", "difference", "wins", *heads)
    return Grid(columns, tuple(_row(found, row) for row in found.rows))


def matrices(found: TicketResults) -> tuple[Grid, Grid]:
    """A row for each mask, a column for each task that is trained, with all metrics of the task in each cell: values,
    and differences from the mask of the same task."""
    return (
        _matrix(found, lambda cell: _mean(cell.metric, cell.value), has_dense=True),
        _matrix(found, lambda cell: _mean(cell.metric, cell.difference, sign=True), has_dense=False),
    )


def standing(found: TicketResults) -> list[str]:
    """The missing runs, and why."""
    missing = [f"{found.missing:,} of {found.runs:,} runs have no result."] if found.missing else []
    return [*missing, *(f"{text}." for text in found.stopped)]


def _row(found: TicketResults, row: TicketRow) -> tuple[str, ...]:
    own = (row.task, percent(row.density), row.metric, _mean(row.metric, row.dense), _mean(row.metric, row.ticket))
    return (*own, *_compared(row), *(_mean(row.metric, row.controls.get(control)) for control in found.controls))


def _compared(row: TicketRow) -> tuple[str, str]:
    compared = row.comparison
    if compared is None:
        return MISSING, MISSING
    interval = "" if compared.interval is None else f" ± {_number(row.metric, compared.interval)}"
    wins = MISSING if compared.wins is None else "yes" if compared.wins else "no"
    return f"{_number(row.metric, compared.difference, sign=True)}{interval}", wins


def _matrix(found: TicketResults, shown: Callable[[TransferCell], str], *, has_dense: bool) -> Grid:
    cells: dict[tuple[str, str], list[TransferCell]] = {}
    for cell in found.transfer:
        cells.setdefault((cell.mask, cell.task), []).append(cell)
    tasks = dict.fromkeys(cell.task for cell in found.transfer)
    masks = [mask for mask in dict.fromkeys(cell.mask for cell in found.transfer) if has_dense or mask != "dense"]
    names = {task: ", ".join(dict.fromkeys(c.metric for c in found.transfer if c.task == task)) for task in tasks}
    rows = [(_MASKS.get(mask, mask), *(" / ".join(map(shown, cells[mask, task])) for task in tasks)) for mask in masks]
    return Grid(("mask of", *(f"{task} ({names[task]})" for task in tasks)), tuple(rows))


def _mean(metric: str, found: Summary | None, *, sign: bool = False) -> str:
    """81.2 ± 0.3 (5)"""
    if found is None:
        return MISSING
    deviation = "" if found.deviation is None else f" ± {_number(metric, found.deviation)}"
    return f"{_number(metric, found.mean, sign=sign)}{deviation} ({found.count})"


def _number(metric: str, value: float, *, sign: bool = False) -> str:
    scaled = value if metric in LOSSES else 100 * value
    return f"{scaled:+.1f}" if sign else f"{scaled:.1f}"
