"""The plots of a sweep's report: the front, and the difference from dense by five measures of cost."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mvprune.artifact.report.svg import Axis, Plot, sample
from mvprune.common.metrics import DENSE_INT8_LATENCY_MS, DENSE_LATENCY_MS
from mvprune.common.units import percent, size
from mvprune.spec.gates import gate_text
from mvprune.sweep.report.quantities import BYTES, DENSITY, DIFFERENCE, LATENCY, Cost, Stat, plain_percent
from mvprune.sweep.report.results import Cell, Line, Panel, Results, shortened

# A line is told by the shape of its marks and by its dashes too, not by its colour only.
_SHAPES = ("circle", "square", "triangle", "diamond", "wedge")
MAX_PANELS = 4  # tasks with plots of their own
_MAX_SMALL = 20  # small dense models in a plot
_REACH = 5  # times as far from the best as the median: what is shown at least
_ROOM = 0.08  # of an axis, beyond the values
_COLOURS = (
    ("#0072b2", "#56b4e9"),
    ("#b8500a", "#f0923e"),
    ("#00785a", "#2fcf9f"),
    ("#94398a", "#e48fd0"),
    ("#6d5a00", "#e0c64a"),
)  # on the light and on the dark page
# Labels above each other do not collide, wherever the lines are.
_RIVALS = {DENSE_LATENCY_MS: ("torch fp32", 90.0), DENSE_INT8_LATENCY_MS: ("torch int8", 4.0)}
_DASHES = ("none", "7 3", "2 3", "8 3 2 3", "4 2")

STYLE = (
    ":root{"
    + "".join(f"--s{index}:{light};" for index, (light, _) in enumerate(_COLOURS))
    + "}\n@media screen and (prefers-color-scheme:dark){:root{"
    + "".join(f"--s{index}:{dark};" for index, (_, dark) in enumerate(_COLOURS))
    + "}}\n"
    + "".join(
        f"svg .s{index}{{stroke:var(--s{index});fill:none;stroke-width:1.5;stroke-dasharray:{dash}}}"
        f"svg .m{index}{{fill:var(--s{index});stroke:var(--back);stroke-width:.6}}"
        f"svg .e{index}{{stroke:var(--s{index});fill:none;stroke-width:1.2}}\n"
        for index, dash in enumerate(_DASHES)
    )
    + "svg .front{stroke:var(--faint);fill:none;stroke-width:5;opacity:.3;stroke-linejoin:round}\n"
    + "svg .is-dense{stroke:var(--text);fill:none;stroke-width:1.2}\n"
    + "svg .gate{stroke:var(--faint);fill:none;stroke-width:1.2;stroke-dasharray:5 4}\n"
    + "svg .rival{stroke:var(--text);fill:none;stroke-width:1.2;stroke-dasharray:1 3}\n"
    + "svg .small{stroke:var(--text);fill:none;stroke-width:2}\n"
    + "svg .chosen{stroke:var(--text);fill:none;stroke-width:1.6}\n"
)
"""The colours of the lines; each has a contrast of at least 3 with its page."""


@dataclass(frozen=True)
class Picture:
    """A plot, or why there is none.

    Attributes:
        svg: the plot, "" where there is none.
        legend: of each entry a sample, as SVG, and its text.
        caption: what is shown, or why there is nothing.
    """

    title: str
    svg: str
    legend: tuple[tuple[str, str], ...]
    caption: str


def first_plot(results: Results, panel: Panel) -> Picture:
    """The difference from dense against latency; quality against bytes where no result has a latency."""
    found = difference_plot(results, panel, LATENCY)
    return found if found.svg else front_plot(results, panel)


def front_plot(results: Results, panel: Panel) -> Picture:
    """Quality against bytes, with the front."""
    metric = f"eval/{panel.quality.metric}"
    title = f"{shortened(panel.task)}: {panel.quality.metric} against bytes{panel.quality.direction}"
    others = [cell for cell in panel.cells if cell.on_front and cell.line in panel.hidden]
    drawing = _Drawing(results, panel, BYTES, metric, others)
    if not drawing.found:
        return Picture(title, "", (), "No result has a metric and a size yet.")
    if panel.dense:
        drawing.levels.append(panel.dense.mean)
    for gate in results.sweep.spec.gates:
        bound = gate.min if gate.min is not None else gate.max
        if gate.metric == metric and bound is not None:
            drawing.gate(gate_text(gate), y=bound)
        elif gate.metric == f"delta/{panel.quality.metric}" and panel.dense and bound is not None:
            drawing.gate(gate_text(gate), y=panel.dense.mean + bound)
    drawing.start(title, panel.quality.label, signed=False)
    best = sorted((x, y.mean) for cell, x, y in drawing.found if cell.on_front)
    if len(best) > 1:
        drawing.plot.line(best, "front")
        drawing.legend.append((sample("front"), "front: nothing is both smaller and better"))
    if panel.dense:
        drawing.plot.level(panel.dense.mean, "is-dense")
        drawing.legend.append((sample("is-dense"), _dense(panel)))
    return drawing.picture("")


def difference_plot(results: Results, panel: Panel, cost: Cost) -> Picture:
    """The difference from dense against one measure of cost."""
    title = f"{shortened(panel.task)}: difference from dense against {cost.title}{panel.quality.direction}"
    drawing = _Drawing(results, panel, cost, DIFFERENCE)
    if not drawing.found:
        known = any(cell.stat(DIFFERENCE) for cell in panel.cells)
        why = f"No point of {panel.task} states {cost.title}. {cost.missing}"
        return Picture(title, "", (), why if known else f"No point of {panel.task} has a dense model to compare with.")
    drawing.levels.append(0.0)
    for gate in results.sweep.spec.gates:
        bound = gate.min if gate.min is not None else gate.max
        if gate.metric == f"delta/{panel.quality.metric}" and bound is not None:
            drawing.gate(gate_text(gate), y=bound)
        elif gate.metric == f"eval/{panel.quality.metric}" and panel.dense and bound is not None:
            drawing.gate(gate_text(gate), y=bound - panel.dense.mean)
    rivals = {name: time for name, time in panel.dense_latencies.items() if time and cost is LATENCY}
    drawing.start(title, panel.quality.difference_label, signed=True, beside=rivals.values())
    drawing.plot.level(0.0, "is-dense")
    drawing.legend.append((sample("is-dense"), _dense(panel)))
    for name, time in rivals.items():
        rival, height = _RIVALS[name]
        drawing.plot.upright(time, "rival", rival, height)
        text = f"dense in {rival}: {cost.text(time)}, the least that was measured"
        drawing.legend.append((sample("rival"), text))
    left_out = len(_drawn(panel)) - len(drawing.found)
    return drawing.picture(f" {left_out} results do not state it. {cost.missing}" if left_out else "")


def _dense(panel: Panel) -> str:
    value = f": {panel.quality.text(panel.dense)}, n {panel.dense.n}" if panel.dense else ""
    weight = f"; {size(panel.dense_bytes)} in fp32" if panel.dense_bytes else ""
    return f"dense {panel.dense_model}{value}{weight}"


def _drawn(panel: Panel) -> list[Cell]:
    return [*(cell for line in panel.lines for cell in line.cells), *panel.small[:_MAX_SMALL]]


class _Drawing:
    """The base of the plots: lines, marks, bars over seeds, small dense models, gates.

    Attributes:
        found: the cells that have both values: their costs and their values over seeds.
        levels: what the axis on the left must show beside the results.
    """

    def __init__(self, results: Results, panel: Panel, cost: Cost, name: str, others: Sequence[Cell] = ()) -> None:
        self._results, self._panel, self._cost, self._name = results, panel, cost, name
        self.found: list[tuple[Cell, float, Stat]] = []
        self.legend: list[tuple[str, str]] = []
        self._gates: list[tuple[str, float | None, float | None]] = []
        for cell in (*_drawn(panel), *others):
            x, y = cell.stat(cost.name), cell.stat(name)
            if x is not None and y is not None and x.mean > 0:
                self.found.append((cell, x.mean, y))
        self.levels: list[float] = []
        for gate in results.sweep.spec.gates:
            bound = gate.min if gate.min is not None else gate.max
            if gate.metric == cost.name and bound:
                self.gate(gate_text(gate), x=bound)

    def gate(self, text: str, x: float | None = None, y: float | None = None) -> None:
        """Adds the line of a gate; a level is always inside the plot."""
        self._gates.append((text, x, y))
        if y is not None:
            self.levels.append(y)

    def start(self, title: str, label: str, *, signed: bool, beside: Iterable[float] = ()) -> None:
        """Makes the plot, with its lines. The axis below shows costs `beside` those of the results too."""
        self._title, self._signed = title, signed
        costs = [*(x for _, x, _ in self.found), *(x for _, x, _ in self._gates if x), *beside]
        scale, form = self._panel.quality.scale, "+.4g" if signed else ".4g"
        values = [*self.levels, *self._spans()]
        low, high = _padded(min(values), max(values), 1e-3 * abs(max(values)) or 1e-3)
        first, last = _padded(math.log(min(costs)), math.log(max(costs)), 0.05)
        text = plain_percent if self._cost is DENSITY else self._cost.text
        across = Axis(self._cost.title, math.exp(first), math.exp(last), logarithmic=True, text=text)
        up = Axis(label, low, high, text=lambda value: f"{scale * value:{form}}" if value else "0", factor=scale)
        self.plot = Plot(title, across, up, self._description())
        for gate, x, y in self._gates:
            if x is not None:
                self.plot.upright(x, "gate")
            if y is not None:
                self.plot.level(y, "gate")
            self.legend.append((sample("gate"), f"gate {gate}"))

    def _spans(self) -> list[float]:
        """What the axis on the left shows of the results. A few that are far worse than the others are cut off, or
        they would press the others together."""
        sign = -1.0 if self._panel.quality.is_loss else 1.0
        best = max(sign * y.mean for _, _, y in self.found)
        limit = _REACH * statistics.median(best - sign * y.mean for _, _, y in self.found)
        self._cut = [one for one in self.found if limit and best - sign * one[2].mean > limit]
        shown = [y for cell, _, y in self.found if all(cell is not one for one, _, _ in self._cut)]
        return [value for y in shown for value in _ends(y)]

    def picture(self, note: str) -> Picture:
        """The plot with everything on it."""
        entries = [self._line(index, line) for index, line in enumerate(self._panel.lines)]
        small = [one for one in self.found if one[0].is_dense]
        for cell, x, y in small:
            self.plot.error_bar(x, *_ends(y), "is-dense")
            self._mark(cell, x, y, "cross", "small")
        if small:
            entries.append((sample("", "cross", "small"), "dense models, density 100 %"))
        others = [one for one in self.found if one[0].line in self._panel.hidden]
        for cell, x, y in others:
            self._mark(cell, x, y, "circle", "in-faint")
        if others:
            entries.append((sample("", "circle", "in-faint"), "lines that are not drawn, where they are on the front"))
        for cell, x, y in self.found:
            if self._results.is_chosen(cell):
                verdict = self._results.verdict
                self._mark(cell, x, y, "ring", "chosen", f"{verdict}: ")
                entries.append((sample("", "ring", "chosen"), verdict))
        caption = "Means over seeds; bars: one standard deviation to each side, where there are two seeds or more."
        if hidden := len(self._panel.hidden):
            names = ", ".join(map(shortened, self._panel.hidden[:MAX_PANELS]))
            more = f" and {hidden - MAX_PANELS} more" if hidden > MAX_PANELS else ""
            caption += (
                f" The {len(self._panel.lines)} best lines are drawn, those that lose the least against the best "
            )
            caption += f"one at each density. In the table only: {names}{more}."
        if len(self._panel.small) > _MAX_SMALL:
            caption += f" The first {_MAX_SMALL} of {len(self._panel.small)} small dense models are drawn."
        if self._cut:
            names = "; ".join(self._note(*one) for one in self._cut[:MAX_PANELS])
            more = f"; and {len(self._cut) - MAX_PANELS} more" if len(self._cut) > MAX_PANELS else ""
            caption += f" Worse than the plot shows: {names}{more}."
        return Picture(self._title, self.plot.svg(), (*entries, *self.legend), caption + note)

    def _line(self, index: int, line: Line) -> tuple[str, str]:
        found = sorted(self._of(line), key=lambda one: one[1])
        if len(found) > 1:
            self.plot.line([(x, y.mean) for _, x, y in found], f"s{index}")
        for cell, x, y in found:
            if y.deviation is not None:
                self.plot.error_bar(x, *_ends(y), f"e{index}")
            self._mark(cell, x, y, _SHAPES[index], f"m{index}")
        absent = "" if found else " (no value)"
        return sample(f"s{index}", _SHAPES[index], f"m{index}"), line.name + absent

    def _mark(self, cell: Cell, x: float, y: Stat, shape: str, style: str, verdict: str = "") -> None:
        note = verdict + self._note(cell, x, y)
        self.plot.mark(x, y.mean, shape, style, note, (point.number for point in cell.points))

    def _of(self, line: Line) -> list[tuple[Cell, float, Stat]]:
        return [one for one in self.found if not one[0].is_dense and one[0].line == line.name]

    def _note(self, cell: Cell, x: float, y: Stat) -> str:
        value = self._text(y)
        at = "" if self._cost is DENSITY else f" at density {percent(cell.density)}"
        return f"{shortened(cell.line)}{at}, {self._cost.text(x)}: {value}, n {y.n}"

    def _text(self, value: Stat) -> str:
        quality = self._panel.quality
        return quality.difference(value) if self._signed else quality.text(value)

    def _description(self) -> str:
        """What is seen, for those who do not see it."""
        lines = []
        for line in self._panel.lines:
            found = sorted(((x, y) for _, x, y in self._of(line)), key=lambda one: one[0])
            if found:
                (first, low), (last, high) = found[0], found[-1]
                ends = f"{self._text(low)} at {self._cost.text(first)}, {self._text(high)} at {self._cost.text(last)}"
                lines.append(f"{shortened(line.name)}: {ends}.")
        return " ".join(lines)


def _ends(value: Stat) -> tuple[float, float]:
    spread = value.deviation or 0.0
    return value.mean - spread, value.mean + spread


def _padded(low: float, high: float, least: float) -> tuple[float, float]:
    room = max(_ROOM * (high - low), least)
    return low - room, high + room
