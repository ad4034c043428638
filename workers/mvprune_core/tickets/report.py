"""The table of tickets and controls, and the two matrices of transfer, as Markdown and as rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

from mvprune.common.markdown import escaped, table
from mvprune.common.units import percent
from mvprune.data.tasks import LOSSES
from mvprune_core.settings import Training
from mvprune_core.tickets.criterion import CONFIDENCE, Summary, compare
from mvprune_core.tickets.running import Finished
from mvprune_core.tickets.study import Study

_CONTROLS = {
    "random_mask": "random mask",
    "random": "random weights",
    "shuffled": "shuffled weights",
    "shuffled_layers": "shuffled layers",
}
_COLUMNS = ("kind", "task", "mask_task", "density", "seed", "metric", "is_primary", "value", "seconds")
_MISSING = "–"


@dataclass(frozen=True)
class Results:
    """Finished runs of a study, to be looked up."""

    found: Sequence[Finished]

    def values(self, kind: str, task: str, density: float, metric: str, source: str | None = None) -> dict[int, float]:
        """A metric by seed. `source` is the task of the mask, for transfer."""
        return {
            each.cell.seed: each.metrics[metric]
            for each in self.found
            if (each.cell.kind, each.cell.task, each.cell.density) == (kind, task, density)
            and (source is None or (each.cell.mask is not None and each.cell.mask.task == source))
            and metric in each.metrics
        }

    def metrics(self, task: str) -> list[str]:
        """The metrics of a task, its primary one first; [] without a result."""
        for each in self.found:
            if each.cell.task == task:
                return sorted(each.metrics, key=lambda name: (name != each.primary_metric, name))
        return []


def report(study: Study, found: Sequence[Finished]) -> str:
    """The report, in Markdown. What has not been run yet is left out or shown as a dash."""
    results = Results(found)
    missing = len(study.cells()) - len(found)
    parts = ["# Lottery tickets", _conditions(study, missing), "## Tickets and controls", _tickets(study, results)]
    if study.transfer is not None:
        kept = percent(study.transfer.density)
        parts += [f"## Transfer at {kept} kept", _matrix(study, results, is_difference=False)]
        parts += ["## Transfer: differences from the same task", _matrix(study, results, is_difference=True)]
    return "\n\n".join(parts) + "\n"


def rows(found: Iterable[Finished]) -> str:
    """The results as CSV, a row for each run and metric."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for each in found:
        cell = each.cell
        mask = cell.mask.task if cell.mask else ""
        for metric, value in sorted(each.metrics.items()):
            is_primary = int(metric == each.primary_metric)
            start = (cell.kind, cell.task, mask, f"{cell.density:g}", cell.seed)
            writer.writerow((*start, metric, is_primary, f"{value:.6f}", f"{each.seconds:.1f}"))
    return file.getvalue()


def _conditions(study: Study, missing: int) -> str:
    rewind = f"those after {percent(study.rewind)} of the steps" if study.rewind else "the original ones"
    lines = [
        f"Model: {escaped(study.model)}. A round prunes {percent(study.step)} of the original weights, by "
        f"magnitude over all matrices. It starts from the same weights ({rewind}), with a new head, optimizer and "
        "learning rate schedule.",
        "Metrics are percentages, mean ± standard deviation (number of seeds), but for "
        f"{' and '.join(sorted(LOSSES))}. `difference` is ticket − dense with its {100 * CONFIDENCE:g} % interval over "
        "the pairs of equal seeds. A ticket wins if the dense mean is at most one standard deviation of the ticket "
        "better than the ticket's mean.",
    ]
    settings = (f"{escaped(name)}: {_settings(task.training)}" for name, task in study.tasks.items())
    lines.append(f"Training: {'; '.join(settings)}.")
    if missing:
        lines.append(f"{missing} of {len(study.cells())} runs are missing.")
    return "\n\n".join(lines)


def _settings(training: Training) -> str:
    """max_steps 300, batch_size 16"""
    given = ((each.name, getattr(training, each.name)) for each in fields(training))
    return escaped(", ".join(f"{name} {value}" for name, value in given if value != getattr(Training, name)))


def _tickets(study: Study, results: Results) -> str:
    controls = [control for control in _CONTROLS if control in study.controls]
    header = [
        "task",
        "kept",
        "metric",
        "dense",
        "ticket",
        "difference",
        "wins",
        *(_CONTROLS[each] for each in controls),
    ]
    lines = []
    for task in study.tickets or study.tasks:
        for metric in results.metrics(task):
            dense = results.values("dense", task, 1.0, metric)
            for density in sorted(study.densities, reverse=True):
                ticket = results.values("ticket", task, density, metric)
                cells = [task, percent(density), metric, _mean(metric, dense), _mean(metric, ticket)]
                cells += _compared(metric, dense, ticket)
                cells += [_mean(metric, results.values(each, task, density, metric)) for each in controls]
                lines.append(cells)
    return table(header, lines)


def _compared(metric: str, dense: Mapping[int, float], ticket: Mapping[int, float]) -> list[str]:
    if not dense.keys() & ticket.keys():
        return [_MISSING, _MISSING]
    found = compare(dense, ticket, less_is_better=metric in LOSSES)
    interval = "" if found.interval is None else f" ± {_number(metric, found.interval)}"
    wins = _MISSING if found.wins is None else "yes" if found.wins else "no"
    return [f"{_number(metric, found.difference, sign=True)}{interval}", wins]


def _matrix(study: Study, results: Results, *, is_difference: bool) -> str:
    """A row for each mask, a column for each task that is trained; all metrics of the task in each cell."""
    transfer = study.transfer
    if transfer is None:
        return ""
    rows = [(source, source) for source in transfer.sources]
    extra = [("random mask", "random_mask")] if "random_mask" in study.controls else []
    extra += [] if is_difference else [("dense", "dense")]
    names = {task: results.metrics(task) for task in transfer.targets}
    header = ["mask of", *(f"{task} ({', '.join(found)})" if found else task for task, found in names.items())]

    def values(row: str, task: str, metric: str) -> dict[int, float]:
        if row == "dense":
            return results.values("dense", task, 1.0, metric)
        if row == "random_mask" or row == task:
            return results.values("ticket" if row == task else row, task, transfer.density, metric)
        return results.values("transfer", task, transfer.density, metric, row)

    def shown(row: str, task: str, metric: str) -> str:
        own = {seed: value for seed, value in values(row, task, metric).items() if seed in transfer.seeds}
        if not is_difference:
            return _mean(metric, own)
        same = values(task, task, metric)
        both = own.keys() & same.keys()
        if not both:
            return _MISSING
        return _mean(metric, {seed: own[seed] - same[seed] for seed in both}, sign=True)

    lines = [
        [name, *(" / ".join(shown(row, task, metric) for metric in names[task]) or _MISSING for task in names)]
        for name, row in (*rows, *extra)
    ]
    return table(header, lines)


def _mean(metric: str, values: Mapping[int, float], *, sign: bool = False) -> str:
    """81.2 ± 0.3 (5)"""
    if not values:
        return _MISSING
    found = Summary.of(values)
    deviation = "" if found.deviation is None else f" ± {_number(metric, found.deviation)}"
    return f"{_number(metric, found.mean, sign=sign)}{deviation} ({found.count})"


def _number(metric: str, value: float, *, sign: bool = False) -> str:
    scaled = value if metric in LOSSES else 100 * value
    return f"{scaled:+.1f}" if sign else f"{scaled:.1f}"
