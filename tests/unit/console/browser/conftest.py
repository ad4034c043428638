"""A server, a console as a user starts it, and a real browser."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright
from tests.conftest import server_path
from tests.integration.servers import Data, Server
from tests.waiting import PATIENCE

from mvprune import Client

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
STAND_IN = Path(__file__).parents[1] / "stand_in"
MVPCTL = Path(sys.executable).with_name("mvpctl")
_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]
SOON = 1000  # milliseconds in which a change is seen


class World:
    """A server, a console as a user starts it, and a browser."""

    def __init__(self, server: Server, client: Client, base: str, start: str, browser: Browser, data: Data) -> None:
        self.server, self.client, self.base, self.start, self.browser, self.data = (
            *(server, client, base, start),
            *(browser, data),
        )
        self.problems: list[str] = []

    def submit(self, steps: int, **more: Any) -> str:
        data = {"train": server_path(self.data.train), "validation": server_path(self.data.validation)}
        options = {
            "density": 0.1,
            "method": "movement",
            "max_steps": steps,
            "batch_size": 1,
            "cpus": 0.1,
            **data,
            **more,
        }
        return self.client.submit(model="bert-base-uncased", **options).id

    def sweep(self) -> str:
        """A sweep of two points that has ended."""
        data = {"train": server_path(self.data.train), "validation": server_path(self.data.validation)}
        options = {"method": "movement", "max_steps": 9, "batch_size": 1, "cpus": 0.1, **data}
        found = self.client.sweep(model="bert-base-uncased", axes={"density": [0.1, 0.2]}, **options)
        return found.wait(timeout=60).id

    @contextmanager
    def page(self, path: str = "", **context: Any) -> Iterator[Page]:
        """A page of a new browser that is logged in; whatever its console says is a problem."""
        with closing(self.browser.new_context(**context)) as made:
            page = made.new_page()
            page.on("console", lambda message: self._note(message.type, message.text))
            page.on("pageerror", lambda error: self.problems.append(str(error)))
            page.goto(self.start)
            if path:
                page.goto(self.base + path)
            yield page

    def _note(self, kind: str, text: str) -> None:
        if "frame is sandboxed" not in text and not (kind == "error" and "net::ERR" in text):
            self.problems.append(f"{kind}: {text}")


def violations(page: Page, *rules: str) -> list[Any]:
    """What axe finds on a page: by all rules, or by some. What passes is left out of the report, which takes long."""
    options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    found: list[Any] = Axe().run(page, options=options).response["violations"]
    return found


@pytest.fixture
def world(shared: World) -> World:
    """What is there, with no problems of other tests."""
    shared.problems = []
    return shared


@pytest.fixture(scope="module")  # Playwright's event loop runs until it ends, and asyncio's tests need their own
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if CHROMIUM is None:
        pytest.skip("there is no chromium")
    folder = tmp_path_factory.mktemp("console")
    data, server = Data.write(folder), Server(folder / "home")
    server.start({"PYTHONPATH": str(STAND_IN)}, drain_seconds=0)
    command = [MVPCTL, "console", "--no-browser", "--address", server.address]
    log = folder / "console.log"
    with log.open("wb") as written:
        env = {**os.environ, "MVPRUNE_CONFIG": os.devnull}
        console = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=written, text=True, env=env)
    assert console.stdout is not None
    found = re.search(r"(http://[^/]+)/start/\S+", console.stdout.readline())
    assert found
    try:
        with Client(server.address) as client, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_ARGUMENTS)
            yield World(server, client, found[1], found[0], browser, data)
            browser.close()
    finally:
        console.terminate()
        console.wait(PATIENCE)
        server.close()
    assert console.returncode == 0
    assert "graceful shutdown exceeded" not in log.read_text(), "streams of pages end at once"
