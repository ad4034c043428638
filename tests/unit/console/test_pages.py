"""What pages say, and that they say what others wrote as text."""

from __future__ import annotations

import gzip
import hashlib
import re
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.unit.console.conftest import EVIL, World

import mvprune.console
from mvprune.console.app import FILES

STATIC = Path(mvprune.console.__file__).parent / "static"
VENDORED = {
    "htmx.min.js": "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130",
    "uPlot.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}


class Page(HTMLParser):
    """The elements and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


async def test_names_and_labels_are_text(world: World) -> None:
    browser = await world.logged_in("read")
    for path in (
        "/projects/search/jobs?column=name&column=labels",
        f"/projects/search/jobs/{world.job}",
        f"/projects/search/jobs/{world.job}/log",
        f"/projects/search/compare?job={world.job}&job={world.job}",
        f"/projects/search/jobs?filter={EVIL}",
        "/projects/search/sweeps",
        f"/projects/search/sweeps/{world.sweep}",
        "/projects/search/queue",
        "/projects/search/catalog",
        f"/projects/search/jobs/{world.job}?part=main&x={EVIL}",
    ):
        page = Page((await browser.get(path)).text)
        for tag, attributes in page.tags:
            assert tag != "img", path
            assert tag != "script" or str(attributes["src"]).startswith("/static/"), path
            assert not [name for name in attributes if name.startswith("on") or name == "style"], path
        assert tag_count(page, "h1") <= 1
    assert EVIL in Page((await browser.get(f"/projects/search/jobs/{world.job}")).text).text


def tag_count(page: Page, tag: str) -> int:
    return sum(name == tag for name, _ in page.tags)


@pytest.mark.slow
async def test_a_part_of_a_page_is_its_content(world: World) -> None:
    browser = await world.logged_in("read")
    for path in ("/projects/search/jobs", f"/projects/search/jobs/{world.job}"):
        part = (await browser.get(path, params={"part": "main"})).text.strip()
        assert part.startswith("<main ")
        assert part.endswith("</main>")


async def test_a_list_is_what_its_address_says(world: World) -> None:
    browser = await world.logged_in("read")
    page = Page(
        (await browser.get("/projects/search/jobs", params={"column": ["job", "model"], "state": ["FAILED"]})).text
    )
    assert "There is no such job" in page.text
    page = Page(
        (await browser.get("/projects/search/jobs", params={"column": ["job", "model"], "order": "model"})).text
    )
    headings = [attributes.get("aria-sort") for tag, attributes in page.tags if tag == "th"]
    assert headings == [None, "ascending"]
    assert "bert-base-uncased" in page.text
    for wrong in ("filter=nonsense", "state=NONE", "column=none", "size=7", "label=%C3%A4=1", "order=none", "page=x"):
        answer = await browser.get(f"/projects/search/jobs?{wrong}")
        assert answer.status_code == 400, wrong
        assert 'role="alert"' in answer.text, wrong


@pytest.mark.slow
async def test_what_there_is_not_is_said(world: World) -> None:
    browser = await world.logged_in("read")
    log = f"jobs/{world.job}/log"
    for path in ("jobs/none", "jobs/none/log", "compare?job=none", f"{log}?attempt=99", f"{log}.txt?attempt=99"):
        answer = await browser.get(f"/projects/search/{path}")
        assert answer.status_code == 404, path
        assert "Traceback" not in answer.text
    assert (await browser.get("/projects/UPPER/jobs")).status_code == 400
    for wrong in ("x", "-1", "1.5", "²", "9" * 30):
        assert (await browser.get(f"/projects/search/{log}", params={"attempt": wrong})).status_code == 400, wrong
    many = "&".join(f"job=j{number}" for number in range(60))
    assert (await browser.get(f"/projects/search/compare?{many}")).status_code == 400


async def test_pages_are_small_and_soon_there(world: World) -> None:
    browser = await world.logged_in("read")
    page = (await browser.get(f"/projects/search/jobs/{world.job}")).content
    files = {name: (await browser.get(f"/static/{name}")).content for name in FILES}
    assert sum(len(gzip.compress(one)) for one in [page, *files.values()]) < 120_000
    seconds = []
    for _ in range(10):  # the first one that nothing else held up
        started = time.perf_counter()
        await browser.get("/projects/search/jobs")
        seconds.append(time.perf_counter() - started)
    assert min(seconds) < 0.2


@pytest.mark.parametrize("name", VENDORED)
def test_files_of_others_are_unchanged_and_have_their_licences(name: str) -> None:
    assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == VENDORED[name]
    assert "Permission" in (STATIC / f"{name.partition('.')[0]}.LICENSE").read_text()


def test_pages_have_no_script_or_style_in_them() -> None:
    for template in (STATIC.parent / "templates").iterdir():
        text = template.read_text()
        assert "<style" not in text
        assert " style=" not in text
        assert "<script>" not in text
        drawn = set(re.findall(r"([\w.]+)\|safe", text))  # by this package, of numbers and escaped names
        assert drawn <= {"curve.svg", "picture.svg", "sample"}, template
