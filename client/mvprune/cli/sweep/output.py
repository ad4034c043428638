"""Sweeps and their points as text."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mvprune.cli.shared.exit import ExitCode
from mvprune.cli.shared.output import Form, answer, as_json, print_fields, print_table
from mvprune.cli.shared.text import clean
from mvprune.common.units import percent
from mvprune.sweep.display import LIST_COLUMNS, counts, done, fields, front_grid, list_rows, point_grid, state
from mvprune.sweep.tickets.study import STRATEGY

if TYPE_CHECKING:
    from mvprune.client.blocking.sweep import Sweep
    from mvprune.client.sweep_models import SweepPoint, SweepRecord
    from mvprune.sweep.tickets.results import TicketResults

_BAR = 30  # characters
_EXPENDABLE = ("N", "STATE", "BYTES", "ABOVE_CONSTANT")


class Outcomes(NamedTuple):
    """The results of a sweep.

    Attributes:
        sweep: as it is now.
        front: its best points.
        tickets: the results of a study of lottery tickets; None for other sweeps.
    """

    sweep: SweepRecord
    front: Sequence[SweepPoint]
    tickets: TicketResults | None

    @classmethod
    def of(cls, sweep: SweepRecord, bound: Sweep) -> Outcomes:
        """Asks the server for the points.

        Args:
            sweep: what is shown.
            bound: the same sweep, or an earlier state of it.
        """
        if sweep.spec.strategy == STRATEGY:
            from mvprune.sweep.tickets.results import tickets_of  # most sweeps have none

            return cls(sweep, [], tickets_of(sweep, list(bound.points())))
        return cls(sweep, bound.front(), None)


def with_outcomes(found: Outcomes) -> dict[str, Any]:
    """The JSON answer about one sweep and its best points, or its tickets."""
    return {**as_json(found.sweep), "front": as_json(found.front), "tickets": as_json(found.tickets)}


def print_sweep(found: Outcomes, *, notes: bool = True) -> None:
    """All that matters of a sweep, and its front or its tickets. Its notes may have been shown before."""
    sweep = found.sweep
    total = sweep.counts.total
    filled = _BAR * done(sweep) // total if total else 0
    instead = {"points": f"[{'#' * filled}{'.' * (_BAR - filled)}] {counts(sweep)}"}
    if found.tickets:
        instead["result"] = found.tickets.winners
    shown = [(name, instead.get(name, value)) for name, value in fields(sweep) if notes or name != "note"]
    print_fields(shown)
    if found.front:
        print()
        print_front(found.front)
    if found.tickets is not None:
        _print_tickets(found.tickets)


def _print_tickets(found: TicketResults) -> None:
    """The table of tickets and controls, and the matrices of transfer."""
    from mvprune.sweep.tickets.text import matrices, standing, ticket_table  # most sweeps have none

    for line in standing(found):
        print(clean(line))
    grids = [("TICKETS", ticket_table(found))]
    if found.transfer:
        values, differences = matrices(found)
        kept = percent(found.transfer_density or 0)
        grids += [(f"TRANSFER AT {kept}", values), ("DIFFERENCE FROM THE MASK OF THE SAME TASK", differences)]
    for title, grid in grids:
        if grid.rows:
            print(f"\n{title}")
            print_table([column.upper() for column in grid.columns], grid.rows)


def print_front(points: Sequence[SweepPoint]) -> None:
    """The points that no other one is better than: means over seeds."""
    print_table(*front_grid(points))


def print_points(points: Sequence[SweepPoint]) -> None:
    """One point a row; N is how many seeds of its cell have a result."""
    print_table(*point_grid(points), expendable=_EXPENDABLE)


def print_sweeps(sweeps: Sequence[SweepRecord]) -> None:
    """One sweep a row."""
    print_table(LIST_COLUMNS, list_rows(sweeps), expendable=("NAME", "AGE", "TASK", "FAILED"))


def answer_change(form: Form, sweep: SweepRecord) -> None:
    """The answer of a command that changes a sweep."""
    text = f"sweep {sweep.id} is {sweep.state}; {counts(sweep)}"
    answer(form, sweep, [sweep.id], lambda: print(clean(text)))


def exit_code(sweep: SweepRecord) -> ExitCode:
    """The exit code for a sweep as it is; says on stderr that it has no result, or none that passes."""
    words = {"FAILED": ExitCode.FAILED, "CANCELLED": ExitCode.CANCELLED}
    if sweep.state in words:
        print(clean(f"error: sweep {sweep.id} is {state(sweep)}"), file=sys.stderr)
        return words[sweep.state]
    miss = sweep.recommendation
    if sweep.state != "SUCCEEDED" or miss is None or miss.passed:
        return ExitCode.OK
    print(clean(f"error: no point passes the gates; the closest miss: {miss.text}"), file=sys.stderr)
    return ExitCode.GATE
