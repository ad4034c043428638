"""Plots as SVG, by hand: no plotting library in the worker, a few kilobytes each, and colours that follow the page.

What is drawn has classes, for which `STYLE` has the colours, light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 440, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 26, 40
_HALF_CHARACTER = 4.2  # of a tick's text, in a wide font
INNER_WIDTH, INNER_HEIGHT = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_MAX_TICKS = 6  # on a logarithmic axis
_CAP = 3  # half of the width of the ends of an error bar
# Marks around a point, as paths with relative commands; each has about the same area.
_SHAPES = {
    "circle": "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "square": "m-3.5-3.5h7v7h-7z",
    "triangle": "m0-4.8l4.6 8h-9.2z",
    "diamond": "m0-5l5 5l-5 5l-5-5z",
    "wedge": "m0 4.8l4.6-8h-9.2z",
    "cross": "m-4-4l8 8m-8 0l8-8",
    "ring": "m-7.5 0a7.5 7.5 0 1 0 15 0a7.5 7.5 0 1 0-15 0z",
}

STYLE = """
:root{--back:#fff;--text:#1b1f24;--faint:#5b6570;--line:#d5dade;--pruned:#0072b2;--dense:#c2570c;--panel:#f5f7f8}
@media screen and (prefers-color-scheme:dark){:root{--back:#14181c;--text:#e6e9ec;--faint:#9aa5af;--line:#39424b;
--pruned:#56b4e9;--dense:#e69f00;--panel:#1d2329}}
svg text{font:12px system-ui,sans-serif;fill:var(--text)}
svg .tick{font-size:11px;fill:var(--faint)}
svg .axis{stroke:var(--line);fill:none}
svg .curve{fill:none;stroke-width:1.8;stroke-linejoin:round}
svg .raw{fill:none;stroke-width:.8;opacity:.35}
svg .target{stroke:var(--faint);stroke-dasharray:4 4;fill:none}
svg .dense{stroke:var(--dense)} svg .pruned{stroke:var(--pruned)}
svg .in-dense{fill:var(--dense)} svg .in-pruned{fill:var(--pruned)} svg .in-faint{fill:var(--faint)}
svg .outline{fill:none;stroke:var(--faint);stroke-width:1.2}
svg .cell-text{font-size:11px;text-anchor:middle}
"""


@dataclass(frozen=True)
class Axis:
    """One axis: what the numbers from `low` to `high` are called and how their ticks read.

    Attributes:
        form: a format of Python's for the ticks of a linear axis.
        logarithmic: `low` and `high` are greater than 0.
        text: how a tick reads, in place of `form` and of powers of ten.
        factor: ticks of a linear axis are round after multiplication with it, as percent are with 100.
    """

    label: str
    low: float
    high: float
    form: str = ",.6g"
    logarithmic: bool = False
    text: Callable[[float], str] | None = None
    factor: float = 1.0

    def place(self, value: float) -> float:
        """Where a value lies: 0 at `low`, 1 at `high`."""
        if self.logarithmic:
            value, low, high = math.log(max(value, 1e-300)), math.log(self.low), math.log(self.high)
        else:
            low, high = self.low, self.high
        return (value - low) / (high - low)

    def tick_text(self, value: float) -> str:
        """How a tick reads."""
        if self.text:
            return self.text(value)
        if self.logarithmic:
            power = math.floor(math.log10(value) + 1e-9)
            factor = "" if round(value / 10.0**power) == 1 else f"{value / 10.0**power:.3g}·"
            return f"{factor}10" + f"{power}".translate(_RAISED)
        return f"{value:{self.form}}".replace("%", " %")

    def ticks(self) -> list[float]:
        """Round numbers inside the axis, about five."""
        found = self._logarithmic_ticks() if self.logarithmic else []
        if len(found) > 2:
            return found
        low, high = self.factor * self.low, self.factor * self.high
        rough = (high - low) / 5
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.8)
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        return [number * step / self.factor for number in range(first, last + 1)]

    def _logarithmic_ticks(self) -> list[float]:
        """As many of 1, 2, 5, 10, … as there is room for; fewer than three if the axis is short."""
        lowest, highest = math.log10(self.low) - 1e-9, math.log10(self.high) + 1e-9
        powers = range(math.floor(lowest), math.ceil(highest) + 1)
        for factors in ((1, 2, 5), (1, 3), (1,)):
            places = [factor * 10.0**power for power in powers for factor in factors]
            found = [place for place in places if lowest <= math.log10(place) <= highest]
            if len(found) <= _MAX_TICKS:
                return found
        return found[:: math.ceil(len(found) / _MAX_TICKS)]


class Plot:
    """One plot with two axes.

    Args:
        title: read aloud in place of the picture.
        x: the axis below.
        y: the axis on the left.
        description: read aloud after the title.
    """

    def __init__(self, title: str, x: Axis, y: Axis, description: str = "") -> None:
        self._title, self._x, self._y, self._description = title, x, y, description
        self._parts: list[str] = []
        self._legend: list[tuple[str, str]] = []

    def x(self, value: float) -> float:
        """Horizontal place of a value inside the axes, in pixels."""
        return self._x.place(value) * INNER_WIDTH

    def y(self, value: float) -> float:
        """Vertical place of a value, in pixels from above."""
        return (1 - self._y.place(value)) * INNER_HEIGHT

    def line(self, points: Iterable[tuple[float, float]], style: str, legend: str = "") -> None:
        """A line through points."""
        self._path("M" + "L".join(_point(self.x(x), self.y(y)) for x, y in points), style)
        if legend:
            self._legend.append((style, legend))

    def dots(self, points: Iterable[tuple[float, float]], style: str) -> None:
        """A dot at each point, with its values as tooltip."""
        for x, y in points:
            place = f'cx="{_number(self.x(x))}" cy="{_number(self.y(y))}" r="3"'
            self._parts.append(f'<circle {place} class="{style}"><title>{x:,.6g}: {y:.4f}</title></circle>')

    def mark(self, x: float, y: float, shape: str, style: str, note: str, runs: Iterable[int] = ()) -> None:
        """One of the shapes at a point, with a note as tooltip.

        Args:
            runs: the numbers of those whose result it is: pages with scripts light them up together.
        """
        path = f"M{_point(self.x(x), self.y(y))}{_SHAPES[shape]}"
        of = f' data-run="{numbers}"' if (numbers := " ".join(map(str, runs))) else ""
        self._parts.append(f'<path class="{style}" d="{path}"{of}><title>{escape(note)}</title></path>')

    def error_bar(self, x: float, low: float, high: float, style: str) -> None:
        """A vertical bar with ends."""
        place, above, below = self.x(x), _number(self.y(high)), _number(self.y(low))
        left = _number(place - _CAP)
        self._path(f"M{_number(place)} {above}V{below}M{left} {above}h{2 * _CAP}M{left} {below}h{2 * _CAP}", style)

    def level(self, y: float, style: str) -> None:
        """A line across the plot."""
        self._path(f"M0 {_number(self.y(y))}H{INNER_WIDTH}", style)

    def upright(self, x: float, style: str, label: str = "", start: float = 0.0) -> None:
        """A line from the bottom of the plot to its top, with a label along it, which starts so many pixels above the
        bottom."""
        place = _number(self.x(x))
        self._path(f"M{place} 0V{INNER_HEIGHT}", style)
        if label:
            height = _number(INNER_HEIGHT - start)
            turn = f'class="tick" transform="rotate(-90 {place} {height}) translate(0 -4)"'
            self._parts.append(_text(place, height, label, turn))

    def steps(self, low: float, high: float, heights: Sequence[float], style: str, legend: str = "") -> None:
        """A histogram: one bar for each height, of one width, from the axis up."""
        width = (self.x(high) - self.x(low)) / len(heights)
        start, base = self.x(low), _number(INNER_HEIGHT)
        path = [f"M{_number(start)} {base}"]
        for index, height in enumerate(heights):
            path.append(f"V{_number(self.y(height))}H{_number(start + (index + 1) * width)}")
        self._path("".join([*path, f"V{base}Z"]), style)
        if legend:
            self._legend.append((style, legend))

    def cells(self, levels: Sequence[Sequence[int]], highest: int, style: str, legend: str = "") -> None:
        """A raster over all of the plot, the first row at the bottom; a level is an opacity, from 0 to `highest`."""
        rows, columns = len(levels), len(levels[0])
        paths = []
        for level in range(1, highest + 1):
            runs = [(row, *run) for row, line in enumerate(levels) for run in _runs(line, level)]
            path = "".join(f"M{first} {rows - 1 - row}h{last - first}v1H{first}z" for row, first, last in runs)
            if path:
                paths.append(f'<path class="{style}" opacity="{level / highest:.2f}" d="{path}"/>')
        grid = f'viewBox="0 0 {columns} {rows}" preserveAspectRatio="none" shape-rendering="crispEdges"'
        self._parts.append(f"<svg {grid}>{''.join(paths)}</svg>")
        if legend:
            self._legend.append((style, legend))

    def svg(self) -> str:
        """The picture. What lies outside of the axes is cut off."""
        inner = "".join(self._parts)
        described = f"<desc>{escape(self._description)}</desc>" if self._description else ""
        return (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(self._title)}">{described}'
            f'<svg x="{_LEFT}" y="{_TOP}" width="{INNER_WIDTH}" height="{INNER_HEIGHT}">{inner}</svg>'
            f"{self._axes()}{self._legend_text()}</svg>"
        )

    def _path(self, path: str, style: str) -> None:
        self._parts.append(f'<path class="{style}" d="{path}"/>')

    def _axes(self) -> str:
        bottom, right = _TOP + INNER_HEIGHT, _LEFT + INNER_WIDTH
        parts = [f'<path class="axis" d="M{_LEFT} {_TOP}V{bottom}H{right}"/>']
        for value in self._x.ticks():
            text = self._x.tick_text(value)
            place = min(_LEFT + self.x(value), WIDTH - len(text) * _HALF_CHARACTER)  # all of it is within the picture
            parts.append(_text(_number(place), bottom + 15, text, 'class="tick" text-anchor="middle"'))
        for value in self._y.ticks():
            height = _TOP + self.y(value)
            parts.append(f'<path class="axis" opacity=".5" d="M{_LEFT} {_number(height)}H{right}"/>')
            parts.append(
                _text(_LEFT - 5, _number(height + 4), self._y.tick_text(value), 'class="tick" text-anchor="end"')
            )
        parts.append(_text(_LEFT + INNER_WIDTH / 2, HEIGHT - 6, self._x.label, 'text-anchor="middle"'))
        turn = f'text-anchor="middle" transform="rotate(-90 14 {_TOP + INNER_HEIGHT / 2:g})"'
        parts.append(_text(14, _TOP + INNER_HEIGHT / 2, self._y.label, turn))
        return "".join(parts)

    def _legend_text(self) -> str:
        parts = []
        for index, (style, text) in enumerate(self._legend):
            left = _LEFT + index * INNER_WIDTH / 2
            parts.append(
                f'<path class="{style}" d="M{_number(left)} 10h18v{3 if style.startswith("in-") else 0}h-18z"/>'
            )
            parts.append(_text(_number(left + 24), 15, text, ""))
        return "".join(parts)


def sample(style: str, shape: str = "", mark_style: str = "") -> str:
    """A short line, with a mark on it if there is a shape: what a legend outside of the plot shows."""
    mark = f'<path class="{mark_style}" d="M15 8{_SHAPES[shape]}"/>' if shape else ""
    line = f'<path class="{style}" d="M1 8H29"/>' if style else ""
    return f'<svg class="sample" viewBox="0 0 30 16" aria-hidden="true">{line}{mark}</svg>'


def _runs(line: Sequence[int], level: int) -> Iterable[tuple[int, int]]:
    """Where neighbours are all of one level: from, and the place after."""
    first = None
    for index, one in enumerate([*line, -1]):
        if one == level and first is None:
            first = index
        elif one != level and first is not None:
            yield first, index
            first = None


def _text(x: float | str, y: float | str, text: str, attributes: str) -> str:
    return f'<text x="{x}" y="{y}" {attributes}>{escape(text)}</text>'


def _point(x: float, y: float) -> str:
    return f"{_number(x)} {_number(y)}"


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
