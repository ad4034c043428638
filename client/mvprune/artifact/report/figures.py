"""The charts of a report, drawn from the manifest and the history."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from mvprune.artifact.card import method_name
from mvprune.artifact.history import Histogram, History, Phase
from mvprune.artifact.kinds import KINDS, place
from mvprune.artifact.manifest import LayerCount, ResultInfo
from mvprune.artifact.report.svg import WIDTH, Axis, Plot
from mvprune.common.units import percent

_SMOOTHING = 0.05  # a moving average over this share of a curve's points
_LEVELS = 8
_MAX_CELLS = 300  # in the heat map; more than any BERT has
_MAX_DOTS = 50
_MAX_NAME = 100  # characters, from its end
_STYLES = {"dense": "dense", "pruning": "pruned"}
_NAMES = {"dense": "dense baseline", "pruning": "pruning"}


@dataclass(frozen=True)
class Figure:
    """A chart; if `svg` is "", the caption says why there is none."""

    title: str
    caption: str
    svg: str = ""


def figures(info: ResultInfo, history: History) -> list[Figure]:
    """All pictures, in the order of the page."""
    makers: tuple[Callable[[ResultInfo, History], Figure], ...] = (
        training_curve,
        dense_training_curve,
        evaluations,
        density_schedule,
        density_map,
        kept_weights,
        score_histogram,
        scores_by_weight,
    )
    return [make(info, history) for make in makers]


def training_curve(info: ResultInfo, history: History) -> Figure:
    """Loss of the pruned model over the steps."""
    caption = "Loss of the pruned model on the training batches"
    if info.spec.get("teacher"):
        caption += ", including the distillation loss; not comparable with the dense baseline's"
    return _loss("Training", caption, history, "pruning")


def dense_training_curve(_: ResultInfo, history: History) -> Figure:
    """Loss of the dense baseline over the steps."""
    caption = "Loss of the dense baseline on the labels of the training batches"
    return _loss("Training of the dense baseline", caption, history, "dense")


def _loss(title: str, caption: str, history: History, name: str) -> Figure:
    """Loss over the steps of one phase, as recorded and smoothed. Each phase has its own axes: losses with and
    without a teacher are not comparable."""
    found = [phase for phase in history.phases if phase.name == name and phase.steps]
    if not found:
        return Figure(title, "No training was recorded.")
    (phase,), style = found, _STYLES[name]
    plot = Plot(title, _steps_axis(found), Axis("loss", *_span(_bulk(phase.loss))))
    plot.line(zip(phase.steps, phase.loss, strict=True), f"raw {style}")
    plot.line(zip(phase.steps, _smooth(phase.loss), strict=True), f"curve {style}", _NAMES[name])
    return Figure(title, f"{caption}; thin: as recorded, thick: a moving mean.", plot.svg())


def evaluations(info: ResultInfo, history: History) -> Figure:
    """The primary metric on the validation data, if it was measured during training."""
    title, metric = "Evaluations", info.primary_metric
    found = {
        phase.name: [(one.step, one.metrics[metric]) for one in phase.evaluations if metric in one.metrics]
        for phase in history.phases
    }
    if all(len(points) < 2 for points in found.values()):
        return Figure(title, "The models were evaluated only at the end: evaluate_every was not set.")
    plot = Plot(title, _steps_axis(history.phases), Axis(metric, *_span([v for p in found.values() for _, v in p])))
    for name, points in found.items():
        style = _STYLES.get(name, "pruned")
        if len(points) > 1:
            plot.line(points, f"curve {style}", _NAMES.get(name, name))
        plot.dots(points if len(points) <= _MAX_DOTS else points[-1:], f"in-{style}")
    return Figure(title, f"{metric} on the validation data; the last points are the results.", plot.svg())


def density_schedule(info: ResultInfo, history: History) -> Figure:
    """The actual density over the steps."""
    title, counts = "Density", info.accounting
    phase = next((phase for phase in history.phases if phase.name == "pruning" and phase.steps), None)
    if phase is None:
        return Figure(title, "No training was recorded.")
    plot = Plot(title, _steps_axis([phase]), Axis("weights kept", 0.0, 1.0, ".0%"))
    plot.line([(0, counts.target_density), (phase.total_steps, counts.target_density)], "target")
    plot.line([(0, 1.0), *zip(phase.steps, phase.density, strict=True)], "curve pruned")
    asked, reached = percent(counts.target_density), percent(counts.density)
    return Figure(title, f"Fraction of the prunable weights kept: requested {asked}, reached {reached}.", plot.svg())


def density_map(info: ResultInfo, _: History) -> Figure:
    """A table of layers and kinds of matrices, each cell as dark as it is dense."""
    return layers_map("Density by layer and matrix", info.layers)


def layers_map(title: str, layers: Sequence[LayerCount]) -> Figure:
    """The same of any pruned weights, under a title."""
    shown = layers[:_MAX_CELLS]
    if not shown:
        return Figure(title, "No matrix was pruned.")
    places = [place(layer.name) for layer in shown]
    rows, kinds = list(dict.fromkeys(block for block, _ in places)), list(dict.fromkeys(kind for _, kind in places))
    kinds.sort(key=lambda kind: KINDS.index(kind) if kind in KINDS else len(KINDS))
    left, top, height = 70, 34, 22
    width, densities = (WIDTH - left - 4) / len(kinds), [layer.density for layer in shown]
    low, high = min(densities), max(densities)
    parts = [
        _cell_text(left + (index + 0.5) * width, top - 8 - 11 * (len(words) - 1 - line), word)
        for index, kind in enumerate(kinds)
        for words in [_words(kind)]
        for line, word in enumerate(words)
    ]
    parts += [_cell_text(left / 2, top + (row + 0.66) * height, name) for row, name in enumerate(_block_names(rows))]
    for layer, (block, kind) in zip(shown, places, strict=True):
        x, y = left + kinds.index(kind) * width, top + rows.index(block) * height
        darkness = (layer.density - low) / (high - low) if high > low else 0.5
        parts.append(_cell(layer, x, y, width, height, 0.08 + 0.62 * darkness))
    hidden = len(layers) - len(shown)
    more = f" The first {len(shown)} of {len(layers)} matrices." if hidden else ""
    svg = (
        f'<svg viewBox="0 0 {WIDTH} {top + height * len(rows) + 4}" role="img" aria-label="{escape(title)}">'
        f"{''.join(parts)}</svg>"
    )
    return Figure(
        title, f"Weights kept of each matrix, in %: from {percent(low)}, the lightest, to {percent(high)}.{more}", svg
    )


def kept_weights(_: ResultInfo, history: History) -> Figure:
    """The weights that are left, beside all weights before training."""
    title, histogram = "Weights that are kept", history.histograms.get("weights")
    if histogram is None:
        return Figure(title, "No weights were recorded.")
    shares = {name: _shares(histogram.counts[name]) for name in ("kept", "original")}
    top = max(max(bins) for bins in shares.values()) or 1.0
    plot = Plot(title, Axis("weight", histogram.low, histogram.high), Axis("share", 0.0, 1.05 * top, ".1%"))
    plot.steps(histogram.low, histogram.high, shares["kept"], "in-pruned", "kept, after pruning")
    plot.steps(histogram.low, histogram.high, shares["original"], "outline", "all, before training")
    return Figure(title, "Share of the weights in each bin. The outer bins include values beyond.", plot.svg())


def score_histogram(info: ResultInfo, history: History) -> Figure:
    """The scores of the weights that are kept and of those that are pruned."""
    title, histogram = "Scores", history.histograms.get("scores")
    if histogram is None:
        return Figure(title, _no_scores(info, history))
    top = max(max(bins) for bins in histogram.counts.values())
    plot = Plot(title, _score_axis(histogram), Axis("weights", 0.5, 2.0 * max(top, 1), logarithmic=True))
    for name, style in (("pruned", "outline"), ("kept", "in-pruned")):
        plot.steps(histogram.low, histogram.high, [max(n, 0.5) for n in histogram.counts[name]], style, name)
    return Figure(title, "Number of weights by their final score. The outer bins include values beyond.", plot.svg())


def scores_by_weight(info: ResultInfo, history: History) -> Figure:
    """Every weight by its value and its score, as in figure 4 of the movement pruning paper."""
    title, plane = "Scores over weights", history.planes.get("scores")
    weights, scores = history.histograms.get("weights"), history.histograms.get("scores")
    if plane is None or weights is None or scores is None:
        return Figure(title, _no_scores(info, history))
    plot = Plot(title, Axis("weight, as trained", weights.low, weights.high), _score_axis(scores))
    highest = max(max(map(max, rows)) for rows in plane.counts.values()) or 1
    for name, style in (("pruned", "in-faint"), ("kept", "in-pruned")):
        levels = [[_level(count, highest) for count in row] for row in plane.counts[name]]
        plot.cells(levels, _LEVELS, style, name)
    caption = "All prunable weights, each by its value and its score; the darker, the more of them (logarithmic)."
    return Figure(title, caption, plot.svg())


def _no_scores(info: ResultInfo, history: History) -> str:
    if not history.histograms:
        return "No scores were recorded."
    return f"The method {method_name(info)} learns no scores beside the weights, so there are none to show."


def _steps_axis(phases: Sequence[Phase]) -> Axis:
    return Axis("step", 0.0, 1.01 * max(1, *(phase.total_steps for phase in phases)))


def _score_axis(histogram: Histogram) -> Axis:
    return Axis("score", histogram.low, histogram.high)


def _smooth(values: Sequence[float]) -> list[float]:
    """The mean of the values around each."""
    reach = max(1, round(_SMOOTHING * len(values) / 2))
    windows = (values[max(0, index - reach) : index + reach + 1] for index in range(len(values)))
    return [sum(window) / len(window) for window in windows]


def _bulk(values: Sequence[float]) -> list[float]:
    """Without the hundredth at the top, which would press all others to the ground."""
    return sorted(values)[: max(1, math.ceil(0.99 * len(values)))]


def _span(values: Sequence[float]) -> tuple[float, float]:
    """From a little below the values to a little above, wide enough to have ticks."""
    low, high = min(values), max(values)
    room = max(0.06 * (high - low), 0.01 * abs(high), 1e-6)
    return low - room if low < 0 or low - room > 0 else 0.0, high + room


def _shares(counts: Sequence[int]) -> list[float]:
    total = sum(counts) or 1
    return [count / total for count in counts]


def _level(count: int, highest: int) -> int:
    """From 0 for none to `_LEVELS` for the most, by the logarithm."""
    return 0 if count == 0 else 1 + round((_LEVELS - 1) * math.log1p(count) / math.log1p(highest))


def _cell(layer: LayerCount, x: float, y: float, width: float, height: float, opacity: float) -> str:
    label = f"{layer.name[-_MAX_NAME:]}: {layer.nonzero:,} kept, {percent(layer.density)}"
    box = f'x="{x:.1f}" y="{y:.1f}" width="{width - 2:.1f}" height="{height - 2}" rx="2"'
    number = _cell_text(x + width / 2 - 1, y + height * 0.64, f"{100 * layer.density:.3g}")
    return f'<g><title>{escape(label)}</title><rect {box} class="in-pruned" opacity="{opacity:.2f}"/>{number}</g>'


def _cell_text(x: float, y: float, text: str) -> str:
    return f'<text class="cell-text" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _block_names(blocks: Sequence[str]) -> list[str]:
    """bert.encoder.layer.3 → layer 3: the name and number of a block."""
    paths = [block.split(".") for block in blocks]
    shared = next((depth for depth, parts in enumerate(zip(*paths, strict=False)) if len(set(parts)) > 1), 0)
    if len(paths) == 1:
        shared = len(paths[0]) - 1
    return [_short(" ".join(dict.fromkeys((path[max(0, shared - 1)], path[-1])))) for path in paths]


def _words(kind: str) -> list[str]:
    """The heading of a column, in at most three lines."""
    return [_short(word) for word in kind.split(" ")[:3]]


def _short(name: str) -> str:
    """The end of a long name."""
    return name if len(name) <= 12 else "…" + name[-11:]
