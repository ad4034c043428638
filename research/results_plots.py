"""Plots of a metric, as SVG that is the same from the same values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

Line = list[tuple[float, float, float]]  # density, mean and standard deviation, as fractions

# Colour-blind safe (Okabe and Ito, https://jfly.uni-koeln.de/color/); a method looks the same in every plot.
STYLES = {
    "MaP": ("#000000", "o"),
    "MvP": ("#D55E00", "s"),
    "MvP zero": ("#E69F00", "D"),
    "SMvP": ("#0072B2", "^"),
    "L0": ("#009E73", "v"),
    "random": ("#999999", "x"),
}
LOOK = {"svg.hashsalt": "mvprune", "svg.fonttype": "none", "font.size": 9}
WIDTH, HEIGHT = 4.2, 3.6  # inches, of a panel


def plot(path: Path, title: str, metric: str, panels: Mapping[str, Mapping[str, Line]], dense: float) -> None:
    """Writes a plot.

    Args:
        path: of the SVG.
        title: of all.
        metric: the name on the vertical axis.
        panels: by title: by method, its line.
        dense: the dense model's metric, as a fraction.
    """
    with matplotlib.rc_context(LOOK):
        columns = max(1, len(panels))
        figure = Figure(figsize=(WIDTH * columns, HEIGHT), layout="constrained")
        figure.suptitle(title)
        axes = figure.subplots(1, columns, sharey=True, squeeze=False)[0]
        ticks = sorted({density for lines in panels.values() for line in lines.values() for density, *_ in line})
        for panel, (name, lines) in zip(axes, panels.items(), strict=False):
            for label, line in lines.items():
                colour, marker = STYLES[label]
                densities, means, spreads = zip(*sorted(line), strict=True)
                panel.errorbar(
                    densities,
                    [100 * mean for mean in means],
                    yerr=[100 * spread for spread in spreads],
                    color=colour,
                    marker=marker,
                    markersize=4,
                    linewidth=1.2,
                    elinewidth=0.8,
                    capsize=2,
                    label=label,
                )
            panel.axhline(100 * dense, color="#555555", linestyle="--", linewidth=1, label="dense")
            panel.set_title(name, fontsize=9)
            panel.set_xscale("log")
            panel.set_xticks(ticks, [f"{density:.0%}" for density in ticks])
            panel.minorticks_off()
            panel.set_xlabel("weights left")
            panel.grid(color="#dddddd", linewidth=0.6)
            panel.spines[["top", "right"]].set_visible(False)
        axes[0].set_ylabel(f"{metric}, %")
        drawn = [axis.get_legend_handles_labels() for axis in axes]
        handles = {label: handle for pair in drawn for handle, label in zip(*pair, strict=True)}
        order = [label for label in (*STYLES, "dense") if label in handles]
        figure.legend([handles[label] for label in order], order, loc="outside right center", frameon=False, fontsize=8)
        _save(figure, path)


def bars(path: Path, title: str, groups: Mapping[str, Mapping[str, float]]) -> None:
    """Writes a group of bars for each title, one for each method, in points."""
    with matplotlib.rc_context(LOOK):
        figure = Figure(figsize=(1.2 + 1.5 * len(groups), HEIGHT), layout="constrained")
        axis = figure.subplots()
        labels = [label for label in STYLES if any(label in group for group in groups.values())]
        width = 0.8 / max(1, len(labels))
        for place, label in enumerate(labels):
            heights = {number: group[label] for number, group in enumerate(groups.values()) if label in group}
            left = [number - 0.4 + (place + 0.5) * width for number in heights]
            axis.bar(left, list(heights.values()), width, color=STYLES[label][0], label=label)
        axis.set_title(title, fontsize=9)
        axis.set_xticks(range(len(groups)), list(groups), fontsize=7)
        axis.axhline(0, color="#555555", linewidth=1)
        axis.grid(axis="y", color="#dddddd", linewidth=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right", "bottom"]].set_visible(False)
        axis.tick_params(axis="x", length=0)
        figure.legend(loc="outside right center", frameon=False, fontsize=8)
        _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, format="svg", metadata={"Date": None})
