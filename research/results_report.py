"""The tables and plots of research/results.md, from the csv."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, stdev

from results_log import METRICS, Key, Row, Run
from results_plan import DENSE, LABELS, RECIPES, SELF, TEACHERS, TELLING
from results_plots import Line, bars, plot

OVERVIEW, TABLES = "overview", "results"  # parts of the page, each between two markers
PECULIARITIES = {"dropout": "with dropout", "constant": "at a constant learning rate"}


def markers(part: str) -> tuple[str, str]:
    """The lines around a part of the page."""
    return f"<!-- {part}: begin -->", f"<!-- {part}: end -->"


NEW_PAGE = "\n".join(["# Results", *("\n".join(["", *markers(part)]) for part in (OVERVIEW, TABLES)), ""])


class BadPage(Exception):
    """The page has no place for the tables; the text says what to do."""


@dataclass(frozen=True)
class Cell:
    """A metric over seeds, as fractions; `deltas` are differences from the dense model of the same run."""

    values: tuple[float, ...]
    deltas: tuple[float, ...] = ()

    @property
    def mean(self) -> float:
        """Over seeds."""
        return fmean(self.values)

    @property
    def std(self) -> float:
        """The sample's standard deviation; 0 of a single value."""
        return stdev(self.values) if len(self.values) > 1 else 0.0

    @property
    def lost(self) -> float:
        """The mean difference from dense, in points."""
        return 100 * fmean(self.deltas)

    def __str__(self) -> str:
        spread = f" ± {100 * self.std:.1f}" if len(self.values) > 1 else ""
        delta = f", {self.lost:+.1f}" if self.deltas else ""
        return f"{100 * self.mean:.1f}{spread} ({len(self.values)}){delta}"


@dataclass(frozen=True)
class Group:
    """The runs of one model and task, trained alike, that have ended.

    Attributes:
        runs: with their rows, in the order of the plan.
    """

    runs: tuple[tuple[Run, Row], ...]

    @property
    def title(self) -> str:
        """What is the same in all of them."""
        run, _ = self.runs[0]
        return ", ".join([f"{run.model} on {run.data}", *(PECULIARITIES[word] for word in run.peculiarities)])

    @property
    def peculiar(self) -> bool:
        """Whether they are trained otherwise than by default."""
        run, _ = self.runs[0]
        return bool(run.peculiarities)

    @property
    def picture(self) -> str:
        """The name of their plot."""
        run, _ = self.runs[0]
        return f"{'-'.join([run.model, run.task, *run.peculiarities])}.svg"

    @property
    def finished(self) -> tuple[tuple[Run, Row], ...]:
        """Those that did not fail."""
        return tuple((run, row) for run, row in self.runs if not row["error"])

    @property
    def metrics(self) -> list[str]:
        """What was measured: the task's primary metric first."""
        rows = [row for _, row in self.finished]
        primary = rows[0]["primary_metric"]
        return [primary, *(name for name in METRICS if name != primary and all(row[f"eval_{name}"] for row in rows))]

    def cells(self, metric: str) -> Mapping[tuple[str, str, float], Cell]:
        """By label, teacher and density."""
        pairs: dict[tuple[str, str, float], list[tuple[float, float]]] = {}
        for run, row in self.finished:
            pairs.setdefault((run.label, run.teacher, run.density), []).append(_measured(row, metric))
        return {
            place: Cell(tuple(here for here, _ in found), tuple(here - dense for here, dense in found))
            for place, found in pairs.items()
        }

    def losses(self, density: float) -> Mapping[str, Cell]:
        """By label, in the primary metric, of the runs that the dense model itself has taught."""
        metric, *_ = self.metrics
        cells = self.cells(metric).items()
        return {label: cell for (label, teacher, at), cell in cells if (teacher, at) == (SELF, density)}

    def dense(self, metric: str) -> Cell:
        """The dense model: one value a seed, however many runs have measured it."""
        return Cell(tuple({run.seed: _measured(row, metric)[1] for run, row in self.finished}.values()))


def read_page(page: Path) -> str:
    """The text of the page, or of a new one where there is none. Raises BadPage: it lacks a marker."""
    text = page.read_text(encoding="utf-8") if page.exists() else NEW_PAGE
    for part in OVERVIEW, TABLES:
        begin, end = markers(part)
        if not 0 <= text.find(begin) < text.find(end):
            raise BadPage(f"{page} lacks the lines {begin} and {end}, between which tables go; put them back")
    return text


def write_report(page: Path, folder: Path, plan: Sequence[Run], rows: Mapping[Key, Row]) -> None:
    """Rewrites what stands between the markers of `page`, and the plots in `folder`, which lies beside it.

    Args:
        page: what stands around the markers stays; a new one is made where there is none.
        folder: for a plot of every model and task.
        plan: rows of other runs are left out.
        rows: of `Log.rows`.

    Raises:
        BadPage: the page lacks a marker.
    """
    ended_runs = [(run, rows[run.key]) for run in plan if run.key in rows]
    groups = _groups(ended_runs)
    usual = [group for group in groups if group.finished and not group.peculiar]
    telling = [group for group in usual if group.losses(TELLING[0])]
    picture = f"\n![differences from dense]({folder.name}/{OVERVIEW}.svg)\n" if telling else ""
    raw = f"[runs.csv]({folder.name}/runs.csv)"
    tables = [f"{len(ended_runs)} of {len(plan)} runs are done; raw values are in {raw}.\n"]
    tables += [section(group, f"{folder.name}/{group.picture}") for group in groups]
    text = _replaced(read_page(page), OVERVIEW, overview(usual) + picture)
    text = _replaced(text, TABLES, "\n".join(tables))
    folder.mkdir(parents=True, exist_ok=True)
    if telling:
        _draw_overview(telling, folder / f"{OVERVIEW}.svg")
    for group in groups:
        if group.finished:
            _draw(group, folder / group.picture)
    _write(page, text)


def overview(groups: Sequence[Group]) -> str:
    """What is lost on each model and task at the telling densities, method by method, as Markdown."""
    labels = [label for label, *_ in RECIPES]
    lines = [
        f"| | metric | dense | weights left | {' | '.join(labels)} |",
        f"|---|---|--:|--:{'|--:' * len(labels)}|",
    ]
    for group, density in product(groups, TELLING):
        found = group.losses(density)
        if found:
            metric, *_ = group.metrics
            dense = f"{100 * group.dense(metric).mean:.1f}"
            lost = [
                f"{found[label].lost:+.1f} ({len(found[label].deltas)})" if label in found else "" for label in labels
            ]
            lines.append(f"| {' | '.join([group.title, metric, dense, _percent(density), *lost])} |")
    return "\n".join([*lines, ""])


def section(group: Group, picture: str) -> str:
    """Heading, table, plot and failures of one model and task, as Markdown."""
    lines = [f"### {group.title}", ""]
    if group.finished:
        primary, *others = group.metrics
        lines += [_caption(group, primary), "", *_table(group, primary), *_counts(group), ""]
        for metric in others:
            lines += [f"The same in {metric}:", "", *_table(group, metric), ""]
        lines += [f"![{group.title}]({picture})", ""]
    failures = [f"- failed: {run.name}: {row['error']}" for run, row in group.runs if row["error"]]
    return "\n".join([*lines, *failures, *([""] if failures else [])])


def _measured(row: Row, metric: str) -> tuple[float, float]:
    """The pruned model's metric, and the dense one's beside it."""
    if metric == row["primary_metric"]:
        return float(row["metric"]), float(row["dense"])
    return float(row[f"eval_{metric}"]), float(row[f"dense_{metric}"])


def _caption(group: Group, metric: str) -> str:
    run, _ = group.finished[0]
    precisions = sorted({row["precision"] for _, row in group.finished})
    rates = sorted({float(row["used_learning_rate"]) for _, row in group.finished})
    return (
        f"{metric} in %: mean ± standard deviation (number of seeds), difference from the dense model "
        f"of the same run. {run.steps:,} steps of {run.batch_size}, learning rate "
        f"{', '.join(f'{rate:g}' for rate in rates)}, {' and '.join(precisions)}."
    )


def _densities(group: Group) -> list[float]:
    return sorted({1.0, *(run.density for run, _ in group.finished)}, reverse=True)


def _table(group: Group, metric: str) -> list[str]:
    densities = _densities(group)
    cells = {**group.cells(metric), (DENSE, "", 1.0): group.dense(metric)}
    body = []
    for teacher, label in product(TEACHERS, LABELS):
        found = [cells.get((label, teacher, density)) for density in densities]
        if any(found):
            body.append(_line(label, teacher, ["" if cell is None else str(cell) for cell in found]))
    head = ["method", "distilled from", *map(_percent, densities)]
    return [f"| {' | '.join(head)} |", "|---" * 2 + "|--:" * len(densities) + "|", *body]


def _counts(group: Group) -> list[str]:
    """Lines at the end of the first table."""
    return [
        _line(title, "", [_count(group, density, left, of) for density in _densities(group)])
        for title, left, of in (
            ("weights left", "kept_weights", "prunable_weights"),
            ("non-zero in the encoder", "encoder_nonzero", "encoder_parameters"),
        )
    ]


def _line(label: str, teacher: str, cells: Iterable[str]) -> str:
    return f"| {label} | {_teacher_name(teacher)} | {' | '.join(cells)} |"


def _percent(density: float) -> str:
    return f"{100 * density:.0f} %"


def _teacher_name(teacher: str) -> str:
    return {"": "–", SELF: "its dense self"}.get(teacher, teacher)


def _count(group: Group, density: float, left: str, of: str) -> str:
    if density == 1:
        return f"{int(group.finished[0][1][of]):,}"
    return f"{fmean(int(row[left]) for run, row in group.finished if run.density == density):,.0f}"


def _groups(ended: Iterable[tuple[Run, Row]]) -> list[Group]:
    groups: dict[tuple[str, ...], list[tuple[Run, Row]]] = {}
    for run, row in ended:
        groups.setdefault((run.model, run.task, *run.peculiarities), []).append((run, row))
    return [Group(tuple(pairs)) for pairs in groups.values()]


def _draw(group: Group, path: Path) -> None:
    metric, *_ = group.metrics
    lines: dict[str, dict[str, Line]] = {teacher: {} for teacher in TEACHERS}
    for (label, teacher, density), cell in group.cells(metric).items():
        if label != DENSE:
            lines[teacher].setdefault(label, []).append((density, cell.mean, cell.std))
    panels = {
        f"distilled from {_teacher_name(teacher)}" if teacher else "labels alone": drawn
        for teacher, drawn in lines.items()
        if drawn
    }
    plot(path, group.title, metric, panels, group.dense(metric).mean)


def _draw_overview(groups: Iterable[Group], path: Path) -> None:
    density, *_ = TELLING
    losses = {group.title.replace(" on ", "\non "): group.losses(density) for group in groups}
    found = {title: {label: cell.lost for label, cell in cells.items()} for title, cells in losses.items()}
    bars(path, f"difference from dense at {_percent(density)} of the weights, points", found)


def _replaced(text: str, part: str, content: str) -> str:
    begin, end = markers(part)
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{content.rstrip()}\n{end}{after}"


def _write(page: Path, text: str) -> None:
    page.parent.mkdir(parents=True, exist_ok=True)
    aside = page.with_name(f".{page.name}.{os.getpid()}")
    aside.write_text(text, encoding="utf-8")
    aside.replace(page)
