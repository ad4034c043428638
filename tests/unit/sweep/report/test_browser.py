"""The report of a sweep in a browser: what a link shows, and whether a phone has to scroll sideways.

What is measured is written into the page's title by a script that the test adds to a copy of the page.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.sweep.report.made_up import failed, grid, small_model, sweep
from tests.unit.sweep.report.reports import DETAILS

from mvprune.sweep.report import write

BROWSER = next((found for name in ("chromium", "google-chrome", "chrome") if (found := shutil.which(name))), "")
MEASURE = """<script>
const shown = name => [...document.querySelectorAll(name)].filter(one => one.getBoundingClientRect().height > 0);
const measure = () => document.title = JSON.stringify({
  inner: innerWidth, page: document.documentElement.scrollWidth,
  sections: shown("section").map(one => one.id),
  outside: shown("body > *").filter(one => one.getBoundingClientRect().right > innerWidth + 0.5).length,
  overlaps: shown("svg[role=img]").flatMap(plot => {
    const boxes = [...plot.querySelectorAll("text")].map(one => one.getBoundingClientRect());
    return boxes.filter((one, i) => boxes.slice(i + 1).some(two => one.left < two.right - 1 && two.left < one.right - 1
      && one.top < two.bottom - 1 && two.top < one.bottom - 1));
  }).length,
  cut: shown("svg[role=img]").flatMap(plot => {
    const box = plot.getBoundingClientRect();
    return [...plot.querySelectorAll("text")].map(one => [one.getBoundingClientRect(), one.textContent]).filter(
      ([one]) => one.left < box.left - 1 || one.right > box.right + 1 || one.top < box.top - 1
        || one.bottom > box.bottom + 1).map(([_, text]) => text);
  }),
  hidden: shown(".data .wide").filter(one => one.scrollWidth > one.clientWidth + 1).length,
  back: getComputedStyle(document.body).backgroundColor,
});
addEventListener("load", () => setTimeout(measure, 100));
</script>"""

pytestmark = pytest.mark.skipif(not BROWSER, reason="needs Chromium or Chrome")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    points = [*grid(), small_model(41), failed(42)]
    html, *_ = write(sweep(points), points, folder, DETAILS)
    return measurable(html)


def measurable(html: Path) -> Path:
    """A copy of a page with the script."""
    content = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", html.read_text())
    copy = html.with_name("measured.html")
    copy.write_text(content.replace("</body>", f"{MEASURE}</body>"))
    return copy


def measured(page: Path, width: int, *, link: str = "", more: Sequence[str] = ()) -> dict[str, Any]:
    """What the script saw."""
    profile = page.parent / f"profile-{width}-{link.lstrip('#')}"
    command = [
        *(BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", f"--user-data-dir={profile}"),
        *(f"--window-size={width},900", "--virtual-time-budget=2000", "--dump-dom", *more, f"{page.as_uri()}{link}"),
    ]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    title = re.search(r"<title>(.*?)</title>", found, flags=re.DOTALL)
    assert title is not None
    values: dict[str, Any] = json.loads(title[1])
    return values


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_does_not_scroll_sideways_and_no_label_hides_another(page: Path, width: int) -> None:
    found = measured(page, width)
    assert found["page"] <= found["inner"]
    assert (found["outside"], found["overlaps"], found["cut"]) == (0, 0, [])


@pytest.mark.slow
def test_a_usual_screen_shows_whole_tables(tmp_path: Path) -> None:
    teachers = [f"upload:{digit * 64}/{name}" for digit, name in (("a", "tiny-bert"), ("b", "large-model"))]
    points = [replace(one, cell={**one.cell, "teacher": teachers[one.number % 2]}) for one in grid()]
    html, *_ = write(sweep(points), points, tmp_path)
    assert not re.search(r"[0-9a-f]{13}", html.read_text()), "12 digits of a digest are enough"
    assert measured(measurable(html), 1280)["hidden"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("key", ["nonzero", "bytes", "flops", "density"])
def test_a_link_shows_the_plots_of_its_cost(page: Path, key: str) -> None:
    found = measured(page, 360, link=f"#by-{key}")
    assert found["sections"] == [f"by-{key}"]
    assert (found["overlaps"], found["cut"]) == (0, [])


def test_without_a_link_the_density_is_shown(page: Path) -> None:
    assert measured(page, 1280)["sections"] == ["by-density"]


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "back"), [(1, "rgb(255, 255, 255)"), (0, "rgb(20, 24, 28)")])
def test_the_page_is_light_or_dark_as_the_reader_likes(page: Path, scheme: int, back: str) -> None:
    assert measured(page, 1280, more=[f"--blink-settings=preferredColorScheme={scheme}"])["back"] == back
