"""`make screenshots`: the pictures of docs/console.md, of a walk through the console in a real browser.

    python scripts/screenshots.py [FOLDER]

A server whose trainer is a stand-in, a console, a user who sends a model's folder and data, submits, watches, compares
and downloads by the command that the page shows. Needs chromium.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright
from tests.bert_folder import write_bert
from tests.integration.servers import Data, Server
from tests.unit.console.browser.conftest import CHROMIUM, MVPCTL, STAND_IN

ROOT = Path(__file__).parents[1]
WIDTH, HEIGHT = 1100, 760
COLOURS = 48  # of a picture: a page has few


def main(folder: Path) -> None:
    """Takes the pictures."""
    if CHROMIUM is None:
        sys.exit("error: chromium is needed")
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        data, server = Data.write(work), Server(work / "home")
        server.start({"PYTHONPATH": str(STAND_IN)}, drain_seconds=0)
        command = [MVPCTL, "console", "--no-browser", "--quiet", "--address", server.address]
        console = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
        try:
            assert console.stdout is not None  # noqa: S101
            start = console.stdout.readline().strip()
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
                page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
                page.goto(start)
                shown = walk(page, write_bert(work / "my-model"), data, folder)
                browser.close()
            download(shown, server.address, work)
        finally:
            console.terminate()
            console.wait()
            server.close()


def walk(page: Page, model: Path, data: Data, folder: Path) -> str:
    """What a user does, with a picture of each page. Returns the command that downloads the best job's artifact."""
    asked = (("0.2", "60"), ("0.05", "60"), ("0.1", "600"))
    jobs = [submit(page, model, data, density, steps) for density, steps in asked]
    expect(page.locator("[data-curve='pruning/loss'] canvas")).to_be_visible(timeout=20_000)
    page.wait_for_function("() => document.querySelector('.lead progress')?.value > 0.4", timeout=20_000)
    shot(page, folder / "console-job.png", at="Curves")
    page.get_by_role("link", name="Jobs", exact=True).click()
    for job in jobs[:2]:
        page.get_by_label(f"Compare {job}").check()
    shot(page, folder / "console-jobs.png")
    page.get_by_role("button", name="Compare the chosen jobs").click()
    expect(page.locator(".best").first).to_be_visible()
    shot(page, folder / "console-compare.png")
    page.get_by_role("link", name=jobs[0], exact=True).first.click()
    return page.locator("pre", has_text=f"mvpctl download {jobs[0]}").inner_text()


def submit(page: Page, model: Path, data: Data, density: str, steps: str) -> str:
    """Sends the model and the data, submits a job by the form, and follows it to its page; returns its id."""
    page.get_by_role("link", name="Jobs", exact=True).click()
    page.get_by_role("link", name="Submit a job").click()
    sent = (("model", "folder", model), ("train", "file", data.train), ("validation", "file", data.validation))
    for name, kind, path in sent:
        with page.expect_file_chooser() as chooser:
            page.get_by_role("button", name=f"Send a {kind} for {name}").click()
        chooser.value.set_files(path)
        expect(page.get_by_label(name, exact=True)).to_have_value(re.compile("upload:"))
    for name, text in {"density": density, "max_steps": steps, "batch_size": "1"}.items():
        page.get_by_label(name, exact=True).fill(text)
    page.get_by_label("method", exact=True).select_option("movement")
    page.get_by_text("More about resources").click()
    page.get_by_label("cpus", exact=True).fill("0.1")
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url(re.compile(r"/jobs/[^/]+$"))
    if int(steps) < 100:
        expect(page.locator(".lead .state")).to_have_text("SUCCEEDED", timeout=30_000)
    return page.url.rpartition("/")[2]


def download(command: str, address: str, work: Path) -> None:
    """Runs the command of a page."""
    program, *options = shlex.split(command)
    environment = {**os.environ, "MVPRUNE_ADDRESS": address, "MVPRUNE_CONFIG": os.devnull}
    subprocess.run([MVPCTL.with_name(program), *options], cwd=work, env=environment, check=True)
    (manifest,) = work.glob("*/manifest.json")
    print(f"downloaded and verified: {manifest.parent.name}")


def shot(page: Page, path: Path, at: str = "") -> None:
    """A picture of what is seen, in few colours; `at` is a heading that must be there."""
    if at:
        expect(page.get_by_role("heading", name=at)).to_be_visible(timeout=20_000)
    page.screenshot(path=path)
    with Image.open(path) as image:
        image.convert("RGB").quantize(COLOURS).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images")
