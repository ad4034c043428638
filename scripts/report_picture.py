"""The pictures of a report as one SVG, for the README: python scripts/report_picture.py ARTIFACT docs/images/report.svg

They are those of report.html, drawn by the same code from the artifact's manifest.json and history.json. The artifact
shown is that of `make demo`'s job with `--evaluate-every 50`.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

from mvprune.artifact import read_manifest
from mvprune.artifact.history import read_history
from mvprune.report.figures import Figure, figures
from mvprune.report.svg import HEIGHT, STYLE, WIDTH

SHOWN = ("Training", "Evaluations", "Density", "Density by layer and matrix", "Weights that are kept",
         "Scores over weights")  # fmt: skip
COLUMNS, GAP, TITLE = 3, 20, 26


def panel(figure: Figure, x: int, y: int) -> str:
    """A figure with its title, at a place."""
    title = f'<text x="{x}" y="{y + 16}" style="font-weight:bold;font-size:14px">{escape(figure.title)}</text>'
    place = f'<svg x="{x}" y="{y + TITLE}" width="{WIDTH}" height="{HEIGHT}" preserveAspectRatio="xMidYMin" '
    return title + figure.svg.replace("<svg ", place, 1)


def picture(shown: list[Figure]) -> str:
    """All figures side by side, on the report's background."""
    width = COLUMNS * (WIDTH + GAP) + GAP
    height = -(-len(shown) // COLUMNS) * (HEIGHT + TITLE + GAP) + GAP
    panels = (
        panel(one, GAP + index % COLUMNS * (WIDTH + GAP), GAP + index // COLUMNS * (HEIGHT + TITLE + GAP))
        for index, one in enumerate(shown)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"><style>{STYLE}</style>'
        f'<rect width="{width}" height="{height}" fill="var(--back)"/>{"".join(panels)}</svg>\n'
    )


def main(arguments: list[str]) -> int:
    """Writes the picture of an artifact."""
    if len(arguments) != 2:
        print("usage: report_picture.py ARTIFACT SVG", file=sys.stderr)
        return 2
    artifact, target = map(Path, arguments)
    drawn = {one.title: one for one in figures(read_manifest(artifact), read_history(artifact))}
    target.write_text(picture([drawn[title] for title in SHOWN]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
