"""Plots of a metric against density, as SVG that is the same from the same values."""

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
    with matplotlib.rc_context({"svg.hashsalt": "mvprune", "svg.fonttype": "none", "font.size": 9}):
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
        figure.savefig(path, format="svg", metadata={"Date": None})
