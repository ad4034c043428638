"""Reports of made-up sweeps, read again."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from tests.unit.sweep.report.made_up import sweep

from mvprune.artifact import LayerCount
from mvprune.client.sweep_models import SweepPoint, SweepRecord
from mvprune.sweep.report import PointDetails, write

DETAILS = (
    PointDetails(f"{1:064x}", (LayerCount("bert.encoder.layer.0.output.dense.weight", (8, 8), 0.0625, 4),), {"x": 15}),
    PointDetails(f"{11:064x}", (LayerCount("bert.encoder.layer.0.output.dense.weight", (8, 8), 0.0625, 4),), {"x": 30}),
)
DETAILS = tuple(replace(one, kept={one.layers[0].name: one.kept["x"]}) for one in DETAILS)


class Page(HTMLParser):
    """What is in a page; tags must close."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self.feed(content)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)

    def values(self, tag: str, name: str) -> list[str]:
        return [value for one, key, value in self.attributes if (one, key) == (tag, name)]


def report(folder: Path, points: list[SweepPoint], record: SweepRecord | None = None, **more: Any) -> dict[str, str]:
    """The files by their ending."""
    files = write(record or sweep(points), points, folder, **more)
    return {path.suffix[1:]: path.read_text() for path in files}


def section(page: str, key: str) -> str:
    """The plots of one measure of cost."""
    (found,) = re.findall(rf'<section class="[^"]*" id="by-{key}">(.*?)</section>', page, flags=re.DOTALL)
    return str(found)
