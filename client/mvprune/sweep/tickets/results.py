"""The results of a study of lottery tickets: which tickets win, and what masks are worth on other tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mvprune.client.sweep_models import PointState, SweepPoint, SweepRecord, SweepSpec
from mvprune.common.units import percent
from mvprune.data.tasks import LOSSES
from mvprune.sweep.tickets.criterion import Comparison, Summary, compare
from mvprune.sweep.tickets.study import (
    DENSE,
    DENSITY,
    RANDOM_MASK,
    SEED,
    STRATEGY,
    TASK,
    TICKET,
    TRANSFER,
    Key,
    Run,
    Study,
    arranged,
    key_of,
)

_EVAL = "eval/"
_STOPPED = (PointState.FAILED, PointState.CANCELLED, PointState.SKIPPED, PointState.DELETED)


@dataclass(frozen=True)
class TicketRow:
    """A ticket beside the dense model, by one metric.

    Attributes:
        task: it is trained on.
        density: fraction of the prunable weights that it keeps.
        metric: of the task.
        is_primary: whether it is the task's primary metric.
        dense: of the dense model; None without a result.
        ticket: of the ticket; None without a result.
        comparison: None until dense model and ticket have a seed in common.
        controls: control to its metric; without those that have no result.
    """

    task: str
    density: float
    metric: str
    is_primary: bool
    dense: Summary | None
    ticket: Summary | None
    comparison: Comparison | None
    controls: Mapping[str, Summary]


@dataclass(frozen=True)
class TransferCell:
    """A mask that is trained on a task, by one metric.

    Attributes:
        mask: the task that it was found on, `random_mask`, or `dense` for no mask.
        task: it is trained on.
        metric: of the task.
        value: None without a result.
        difference: from the mask of the same task, over the seeds that both have; None where there are none.
    """

    mask: str
    task: str
    metric: str
    value: Summary | None
    difference: Summary | None


@dataclass(frozen=True)
class TicketResults:
    """The results of a study's runs together.

    Attributes:
        controls: those of the study.
        rows: the table, by task, metric and density.
        transfer_density: of the masks of other tasks; None: none are trained.
        transfer: the two matrices.
        runs: how many there are when the study is complete.
        missing: runs without a result.
        winners: the sparsest winning ticket of each task, in words.
        stopped: the points that did not end well, with how many runs are missing because of each, in words.
    """

    controls: tuple[str, ...]
    rows: tuple[TicketRow, ...]
    transfer_density: float | None
    transfer: tuple[TransferCell, ...]
    runs: int
    missing: int
    winners: str
    stopped: tuple[str, ...]


def study_of(spec: SweepSpec) -> Study:
    """The study of a sweep of tickets."""
    axes = {axis.parameter: axis.values for axis in spec.axes}
    base = {TASK: spec.base.task, DENSITY: spec.base.target_density, SEED: spec.base.seed}
    return arranged(axes, spec.points, base, spec.strategy_options)


def tickets_of(sweep: SweepRecord, points: Sequence[SweepPoint]) -> TicketResults | None:
    """The results of a study; None for a sweep with another strategy.

    Args:
        points: all of the sweep.
    """
    if sweep.spec.strategy != STRATEGY:
        return None
    study = study_of(sweep.spec)
    runs = study.runs()
    by_key = {key_of(point.cell): point for point in points}
    found = _Found(points)
    transfer, rows = study.transfer, tuple(_rows(study, found))
    return TicketResults(
        controls=study.controls,
        rows=rows,
        transfer_density=None if transfer is None else transfer.density,
        transfer=tuple(_matrix(study, found)),
        runs=len(runs),
        missing=sum(not _has_result(by_key.get(run.key)) for run in runs),
        winners=_winners(rows),
        stopped=tuple(_stopped(runs, by_key)),
    )


class _Found:
    """Results, to be looked up."""

    def __init__(self, points: Sequence[SweepPoint]) -> None:
        self._values: dict[tuple[str, str, float, str, str], dict[int, float]] = {}
        self._primary: dict[str, str] = {}
        self._metrics: dict[str, set[str]] = {}
        for point in filter(_has_result, points):
            key = key_of(point.cell)
            self._primary.setdefault(key.task, point.primary_metric)
            own = {name.removeprefix(_EVAL): value for name, value in point.metrics.items() if name.startswith(_EVAL)}
            self._metrics.setdefault(key.task, set()).update(own)
            for name, value in own.items():
                place = (key.run, key.task, key.density, key.mask_task, name)
                self._values.setdefault(place, {})[key.seed] = value

    def values(self, run: str, task: str, density: float, metric: str, mask_task: str = "") -> dict[int, float]:
        """A metric by seed."""
        return self._values.get((run, task, density, mask_task, metric), {})

    def metrics(self, task: str) -> list[str]:
        """The metrics of a task, its primary one first; [] without a result."""
        return sorted(self._metrics.get(task, ()), key=lambda name: (not self.is_primary(task, name), name))

    def is_primary(self, task: str, metric: str) -> bool:
        """Whether it is the primary metric of a task."""
        return self._primary.get(task) == metric


def _rows(study: Study, found: _Found) -> Iterator[TicketRow]:
    for task in study.table_tasks:
        for metric in found.metrics(task):
            dense = found.values(DENSE, task, 1.0, metric)
            for density in sorted(study.densities, reverse=True):
                ticket = found.values(TICKET, task, density, metric)
                is_loss = metric in LOSSES
                controls = {one: found.values(one, task, density, metric) for one in study.controls}
                yield TicketRow(
                    task,
                    density,
                    metric,
                    found.is_primary(task, metric),
                    _summary(dense),
                    _summary(ticket),
                    compare(dense, ticket, less_is_better=is_loss) if dense.keys() & ticket.keys() else None,
                    {name: Summary.of(values) for name, values in controls.items() if values},
                )


def _matrix(study: Study, found: _Found) -> Iterator[TransferCell]:
    """A row for each mask, a column for each task that is trained."""
    if (transfer := study.transfer) is None:
        return
    extra = [RANDOM_MASK] if RANDOM_MASK in study.controls else []
    for mask in (*transfer.sources, *extra, DENSE):
        for task in transfer.targets:
            for metric in found.metrics(task):
                same = found.values(TICKET, task, transfer.density, metric)
                if mask == DENSE:
                    own = found.values(DENSE, task, 1.0, metric)
                elif mask == task:
                    own = same
                elif mask == RANDOM_MASK:
                    own = found.values(RANDOM_MASK, task, transfer.density, metric)
                else:
                    own = found.values(TRANSFER, task, transfer.density, metric, mask)
                differences = {seed: own[seed] - same[seed] for seed in own.keys() & same.keys()}
                yield TransferCell(mask, task, metric, _summary(own), _summary(differences))


def _winners(rows: Sequence[TicketRow]) -> str:
    found = []
    for task in dict.fromkeys(row.task for row in rows):
        primary = [row for row in rows if row.task == task and row.is_primary]
        won = [row.density for row in primary if row.comparison is not None and row.comparison.wins]
        known = any(row.comparison is not None and row.comparison.wins is not None for row in primary)
        if won:
            found.append(f"{task}: the ticket of {percent(min(won))} wins")
        else:
            found.append(f"{task}: no ticket wins" if known else f"{task}: not known with fewer than two seeds")
    return "; ".join(found)


def _summary(values: Mapping[int, float]) -> Summary | None:
    return Summary.of(values) if values else None


def _has_result(point: SweepPoint | None) -> bool:
    return point is not None and point.state is PointState.SUCCEEDED and bool(point.metrics)


def _stopped(runs: Sequence[Run], points: Mapping[Key, SweepPoint]) -> Iterator[str]:
    """The points that did not end well, with the number of runs that wait for each."""
    waiting: dict[Key, int] = {}
    for run in runs:
        mask = run.mask if run.key not in points else None
        while mask is not None and mask.key not in points:
            mask = mask.mask
        if mask is not None:
            waiting[mask.key] = waiting.get(mask.key, 0) + 1
    for run in runs:
        point = points.get(run.key)
        if point is None or point.state not in _STOPPED:
            continue
        reason = point.failure.reason if point.failure else point.state_reason
        why = f" ({reason})" if reason else ""
        count = waiting.get(run.key, 0)
        rest = f"; {count} run{'s' if count != 1 else ''} after it {'are' if count != 1 else 'is'} missing" * bool(
            count
        )
        yield f"{_named(run)}: point {point.number} is {point.state}{why}{rest}"


def _named(run: Run) -> str:
    """sst2, seed 0, ticket 90.0 %"""
    of = f" of {run.key.mask_task}" if run.kind == TRANSFER else ""
    return f"{run.task}, seed {run.seed}, {run.kind}{of}{'' if run.kind == DENSE else f' {percent(run.density)}'}"
