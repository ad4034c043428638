"""A real server with tokens, a console of it, and users who are logged in."""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from tests.conftest import server_path

from mvprune import AsyncClient
from mvprune.client import endpoint
from mvprune.console.app import application
from mvprune.console.settings import Settings as ConsoleSettings
from mvprune_service.assembly.service import Service
from mvprune_service.config import Settings
from mvprune_service.executors.processes import kill_marked

ORIGIN = "https://console.test"
OWN = {"sec-fetch-site": "same-origin"}
EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


@dataclass
class World:
    """A server, its console, and what is there.

    Attributes:
        job: the id of a job in the project `search`, which runs until it is cancelled.
        sweep: the id of a sweep there.
        tokens: role to token: operator; admin, submit and read of the project; other, of another project.
        browser: makes a browser without cookies.
    """

    service: Service
    settings: ConsoleSettings
    job: str
    sweep: str
    tokens: dict[str, str]
    browser: Callable[[], httpx.AsyncClient]

    async def logged_in(self, role: str, then: str = "") -> httpx.AsyncClient:
        """A browser of a user."""
        browser = self.browser()
        project = "other" if role == "other" else "search"
        form = {"token": self.tokens[role], "project": project, "next": then}
        answer = await browser.post("/login", data=form, headers=OWN)
        assert answer.status_code == 303, answer.text
        return browser


async def form_token(browser: httpx.AsyncClient, path: str) -> str:
    """The token that is in the forms of a page."""
    found = re.search(r'name="form_token" value="([^"]+)"', (await browser.get(path)).text)
    assert found
    return found[1]


@pytest.fixture
async def world(tmp_path: Path, sqlite_template: Path) -> AsyncIterator[World]:
    waiting = tmp_path / "waits"  # a worker that only waits
    waiting.write_text("#!/bin/sh\nexec sleep 120\n")
    waiting.chmod(0o755)
    data = tmp_path / "train.tsv"
    data.write_text("text\tlabel\ngood\t1\nbad\t0\n")
    (tmp_path / "home").mkdir()
    shutil.copy(sqlite_template, tmp_path / "home" / "mvprune.sqlite")
    server = Settings(
        home=tmp_path / "home",
        address="127.0.0.1:0",
        worker_address="127.0.0.1:0",
        executor="local",
        roots=(tmp_path,),
        auth="required",
        webhook_allow=("127.0.0.0/8",),
        worker_python=waiting,
    )
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(Service(server))
        operator = (tmp_path / "home" / "operator-token").read_text().strip()
        client = await stack.enter_async_context(AsyncClient(service.address, token=operator, project="search"))
        tokens = {"operator": operator}
        for role in ("admin", "submit", "read"):
            tokens[role] = (await client.admin.create_token("search", role)).secret
        tokens["other"] = (await client.admin.create_token("other", "submit")).secret
        await client.webhooks.create("http://127.0.0.1:9/", ["job.cancelled"], webhook_id="w")
        files = {"train": server_path(data), "validation": server_path(data)}
        job = await client.submit(
            model="bert-base-uncased", density=0.1, **files, display_name=EVIL, labels={"team": EVIL[:60]}, max_steps=9
        )
        sweep = await client.sweep(
            model="bert-base-uncased", axes={"density": [0.1, 0.2]}, **files, display_name=EVIL, max_steps=9
        )
        found = endpoint.find(service.address, token="of-a-user")
        settings = ConsoleSettings(found.with_token(""), "search", host_names=("console.test",))
        app = application(settings)
        app.state.drain()  # httpx reads an answer to its end

        def browser() -> httpx.AsyncClient:
            made = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=ORIGIN)
            stack.push_async_callback(made.aclose)
            return made

        yield World(service, settings, job.id, sweep.id, tokens, browser)
        await app.state.sessions.close()
    kill_marked("MVPRUNE_SCRATCH", str(tmp_path / "home" / "scratch"))
