"""The pictures of a report as one SVG, for the README (`make pictures`).

They are those of report.html, drawn by the same code from the artifact's manifest.json and history.json, below the
primary metric of the dense and of the pruned model.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from mvprune.artifact import ResultInfo, read_manifest
from mvprune.artifact.history import read_history
from mvprune.artifact.report.figures import Figure, figures
from mvprune.artifact.report.svg import HEIGHT, STYLE, WIDTH

SHOWN = ("Training", "Density by layer and matrix", "Weights that are kept")
COLUMNS, GAP, TITLE, HEAD = 3, 20, 26, 24


def panel(figure: Figure, x: int, y: int) -> str:
    """A figure with its title, at a place."""
    title = f'<text x="{x}" y="{y + 16}" style="font-weight:bold;font-size:14px">{escape(figure.title)}</text>'
    place = f'<svg x="{x}" y="{y + TITLE}" width="{WIDTH}" height="{HEIGHT}" preserveAspectRatio="xMidYMin" '
    return title + figure.svg.replace("<svg ", place, 1)


def heading(info: ResultInfo) -> str:
    """accuracy: dense 0.8410, pruned 0.7695"""
    dense, pruned = (info.metrics[f"{part}/{info.primary_metric}"] for part in ("dense", "eval"))
    text = f"{info.primary_metric}: dense {dense:.4f}, pruned {pruned:.4f}"
    return f'<text x="{GAP}" y="{GAP + 14}" style="font-size:14px">{escape(text)}</text>'


def picture(info: ResultInfo, shown: list[Figure]) -> str:
    """All figures side by side, on the report's background."""
    width, top = COLUMNS * (WIDTH + GAP) + GAP, GAP + HEAD
    height = top + -(-len(shown) // COLUMNS) * (HEIGHT + TITLE + GAP)
    panels = (
        panel(one, GAP + index % COLUMNS * (WIDTH + GAP), top + index // COLUMNS * (HEIGHT + TITLE + GAP))
        for index, one in enumerate(shown)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"><style>{STYLE}</style>'
        f'<rect width="{width}" height="{height}" fill="var(--back)"/>{heading(info)}{"".join(panels)}</svg>\n'
    )


def write_picture(artifact: Path, target: Path) -> None:
    """Writes the picture of an artifact."""
    manifest = read_manifest(artifact)
    drawn = {one.title: one for one in figures(manifest, read_history(artifact))}
    target.write_text(picture(manifest, [drawn[title] for title in SHOWN]), encoding="utf-8")
