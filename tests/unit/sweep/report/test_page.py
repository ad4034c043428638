"""The page: nothing from outside is markup or is loaded, it can be read by everyone, and its size is bounded."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from tests.unit.sweep.report.made_up import base_spec, failed, grid, sweep
from tests.unit.sweep.report.reports import DETAILS, Page, report

from mvprune.artifact import LayerCount
from mvprune.client.sweep_models import Recommendation, SweepPoint
from mvprune.sweep.report import PointDetails
from mvprune.sweep.report.markdown import sweep_markdown
from mvprune.sweep.report.page import sweep_page
from mvprune.sweep.report.results import arrange

EVIL = "\"'><script>alert(1)</script>|`*&"


def test_names_from_outside_are_no_markup(tmp_path: Path) -> None:
    points = [
        replace(one, method=EVIL, model=EVIL, task=EVIL, cell={EVIL: f"{EVIL}{one.number}", "seed": 0})
        for one in [*grid(["movement"], [0.1, 0.2]), failed(9, EVIL, EVIL)]
    ]
    choice = Recommendation(True, 1, (1,), EVIL)
    record = sweep(
        points,
        display_name=EVIL,
        notes=(EVIL,),
        recommendation=choice,
        name=f"projects/p/sweeps/{EVIL}",
        base=base_spec(model=EVIL),
    )
    details = PointDetails(f"{1:064x}", (LayerCount(f"layer.0.{EVIL}.weight", (4, 4), 0.5, 8),))
    files = report(tmp_path, points, record, details=[details])
    assert "script" not in Page(files["html"]).tags
    assert "<script" not in files["html"]
    assert re.search(r"(?<!\\)<script", re.sub(r"```shell\n.*?```", "", files["md"], flags=re.DOTALL)) is None
    assert json.loads(files["json"])["sweep"]["display_name"] == EVIL
    assert next(csv.DictReader(io.StringIO(files["csv"])))["method"] == EVIL


def test_nothing_comes_from_elsewhere(tmp_path: Path, points: list[SweepPoint]) -> None:
    page = report(tmp_path, points)["html"]
    found = Page(page)
    assert not {"script", "link", "img", "iframe", "object", "base", "form"} & set(found.tags)
    assert all(value.startswith("#by-") for value in found.values("a", "href"))
    assert not {"src", "onload", "style"} & {name for _, name, _ in found.attributes}
    assert "http:" not in page
    assert "https:" not in page
    assert "url(" not in page
    assert "Content-Security-Policy\" content=\"default-src 'none'" in page


def test_pictures_and_tables_can_be_read_aloud(tmp_path: Path, points: list[SweepPoint]) -> None:
    page = report(tmp_path, points, details=DETAILS)["html"]
    found = Page(page)
    pictures = [value for value in found.values("svg", "aria-label") if value]
    assert len(pictures) == 5 + len(DETAILS)
    assert page.count("<desc>") == 5
    assert "movement: -5.58 ± 0.26 at 2.0 %" in page
    assert set(found.values("th", "scope")) == {"col"}
    assert found.tags.count("th") == len(found.values("th", "scope"))
    regions = [value for tag, name, value in found.attributes if (tag, name) == ("div", "aria-label")]
    assert {"Every point", "Results over seeds", "Failures", "Cost"} <= set(regions)
    levels = [int(tag[1]) for tag in found.tags if re.fullmatch(r"h\d", tag)]
    assert all(after <= before + 1 for before, after in pairwise(levels))


def _luminance(colour: str) -> float:
    colour = colour.lstrip("#")
    full = colour if len(colour) == 6 else "".join(2 * one for one in colour)
    parts = [int(full[index : index + 2], 16) / 255 for index in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1])
def test_colours_have_contrast(tmp_path: Path, points: list[SweepPoint], scheme: int) -> None:
    """WCAG 2.2: 4.5 for text, 3 for what is drawn."""
    page = report(tmp_path, points)["html"]
    found: dict[str, list[str]] = {}
    for name, colour in re.findall(r"--(\w+):(#[0-9a-f]{3,6})", page):
        found.setdefault(name, []).append(colour)
    for name, least in {"text": 4.5, "faint": 4.5, **{f"s{index}": 3.0 for index in range(5)}}.items():
        for ground in ("back", "panel"):
            assert _contrast(found[name][scheme], found[ground][scheme]) >= least, name


def test_a_report_of_a_thousand_points_is_bounded(tmp_path: Path) -> None:
    methods = [f"method_{index}" for index in range(10)]
    densities = [0.01 + index / 60 for index in range(50)]
    points = grid(methods, densities)
    assert len(points) == 1000
    files = report(tmp_path, points)
    assert len(files["html"].encode()) < 1_500_000
    assert len(files["md"]) < 65_536  # the most that a comment on GitHub may have
    assert "500 of 1000 points are shown" in files["html"]
    assert "all are in report.csv" in files["html"]
    assert len(files["csv"].splitlines()) == 1001
    assert len(json.loads(files["json"])["points"]) == 1000


@pytest.mark.slow
def test_long_names_do_not_make_the_page_long() -> None:
    long = "<&'>" * 500
    points = [
        replace(one, model=long, cell={f"p{n}{long}": f"{long}{one.number % 7}" for n in range(12)})
        for one in grid(["movement"], [index / 600 for index in range(1, 601)], [0])
    ]
    record = sweep(points, notes=(long,) * 100, display_name=long, base=base_spec(model=long))
    results = arrange(record, points)
    assert len(sweep_page(results, {}).encode()) < 3_000_000
    assert len(sweep_markdown(results, {})) < 300_000
