"""Sessions that outlive the process of a console."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from tests.unit.console.conftest import ORIGIN, OWN, World, form_token

from mvprune.cli import main
from mvprune.console import sessions
from mvprune.console.app import application
from mvprune.console.settings import Settings
from mvprune.console.store import Store


@asynccontextmanager
async def console(settings: Settings, cookies: httpx.Cookies | None = None) -> AsyncIterator[httpx.AsyncClient]:
    """A process of a console, and a browser."""
    app = application(settings)
    app.state.drain()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=ORIGIN, cookies=cookies) as browser:
        yield browser
    await app.state.sessions.close()


async def test_a_user_stays_logged_in_over_a_restart_until_the_end(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "sessions"
    settings = replace(world.settings, sessions=folder)
    job = f"/projects/search/jobs/{world.job}"
    async with console(settings) as browser:
        form = {"token": world.tokens["submit"], "project": "search"}
        assert (await browser.post("/login", data=form, headers=OWN)).status_code == 303
        token, cookies = await form_token(browser, job), browser.cookies
    (file,) = folder.iterdir()
    assert (folder.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
    (cookie,) = cookies.values()
    for secret in (world.tokens["submit"], cookie, token):
        assert secret.encode() not in file.read_bytes()
        assert secret not in file.name
    for other in (
        Settings(replace(settings.endpoint, address="127.0.0.1:1"), "search", sessions=folder),
        world.settings,
    ):
        async with console(replace(other, host_names=("console.test",)), cookies) as browser:
            assert (await browser.get(job)).status_code == 303  # of another server; without the folder
    async with console(settings, cookies) as browser, console(settings, cookies) as second:
        form = {"form_token": token, "note": "after the restart", "display_name": "", "labels": ""}
        assert (await browser.post(f"{job}/update", data=form, headers=OWN)).status_code == 303
        assert "after the restart" in (await second.get(job)).text
        await browser.post("/logout", headers=OWN)
        assert not list(folder.iterdir())
        assert (await second.get(job)).status_code == 303  # whoever has the cookie has nothing
    async with console(settings, cookies) as browser:
        assert (await browser.get(job)).status_code == 303
        assert not list(folder.iterdir())


async def test_a_session_that_another_brings_along_is_none(world: World, tmp_path: Path) -> None:
    settings = replace(world.settings, sessions=tmp_path / "sessions")
    form = {"token": world.tokens["read"], "project": "search"}
    for made_up in ("fixed", "../../x", "", "x" * 10_000):
        async with console(settings) as browser:
            browser.cookies.set(settings.cookie, made_up, domain="console.test")
            assert (await browser.get("/projects/search/jobs")).status_code == 303
            await browser.post("/login", data=form, headers=OWN)
            assert made_up not in [*browser.cookies.values()]


@pytest.mark.slow
async def test_old_sessions_end_and_leave_no_files(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "sessions"
    settings = replace(world.settings, sessions=folder)
    form = {"token": world.tokens["read"], "project": "search"}
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 3)

    async def begin() -> httpx.Cookies:
        async with console(settings) as browser:
            await browser.post("/login", data=form, headers=OWN)
            return browser.cookies

    async def is_in(cookies: httpx.Cookies) -> bool:
        async with console(settings, cookies) as browser:
            return (await browser.get("/projects/search/jobs")).status_code == 200

    idle = await begin()
    (file,) = folder.iterdir()
    os.utime(file, (0, time.time() - sessions.IDLE_SECONDS - 60))
    assert not await is_in(idle)
    assert not list(folder.iterdir())
    several = [await begin() for _ in range(5)]
    assert [await is_in(one) for one in several[-3:]] == [True] * 3
    assert len(list(folder.iterdir())) == 3
    monkeypatch.setattr(sessions, "LONGEST_SECONDS", -1.0)
    assert not await is_in(several[-1])


def test_a_session_that_has_ended_is_not_saved_again(tmp_path: Path) -> None:
    store = Store(tmp_path, "c")
    store.save("name", {"a": 1}, is_new=True)
    assert store.load("name") == {"a": 1}
    store.save("name", {"a": 2})
    assert store.load("name") == {"a": 2}
    (file,) = tmp_path.iterdir()
    changed = bytearray(file.read_bytes())
    changed[-1] ^= 1
    file.write_bytes(changed)
    assert store.load("name") is None
    store.remove("name")
    store.save("name", {"a": 3})
    assert not list(tmp_path.iterdir())
    assert (store.load("name"), store.used("name"), store.touch("name")) == (None, None, False)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--sessions", "x"], "--sessions: is for many users; it needs --login"),
        (["--login", "--sessions", "/proc/none", "--listen", "127.0.0.1:0"], "must be a folder that can be written"),
    ],
)
def test_options_that_do_not_fit(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["console", *argv]) == 2
    assert said in capsys.readouterr().err
