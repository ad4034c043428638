"""Logging in by an issuer: a real one on loopback, a real server that knows it, and a browser without JavaScript."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from tests.issuer import CONFIGURATION, Issuer, issuing, settings
from tests.unit.console.conftest import ORIGIN
from tests.waiting import until_seen

from mvprune import NotAuthorised
from mvprune.cli import main
from mvprune.client import endpoint
from mvprune.console.app import application
from mvprune.console.issuer import Logins, Provider
from mvprune.console.settings import Settings as ConsoleSettings
from mvprune_service.assembly.service import Service

RULES = """
[[issuer]]
url = "{url}"
audience = "the-console"
[[issuer.rule]]
claims = {{ groups = "search-team" }}
project = "search"
scope = "submit"
"""
CLIENT = "the-console"


class Accounts:
    """The issuer's side of the login: codes that it gives to browsers, and tokens that it gives for them.

    Attributes:
        claims: of the tokens.
        asked: the query with which the browser came.
        refreshed: how often a refresh token was used.
    """

    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer
        self.claims: dict[str, Any] = {"aud": CLIENT, "sub": "ada", "groups": ["search-team"]}
        self.asked: dict[str, str] = {}
        self.refreshed = 0
        self.more: dict[str, str] = {}
        self._code = ""
        issuer.post = self._post  # type: ignore[method-assign]
        issuer.answers[CONFIGURATION] = json.dumps(
            {
                "issuer": issuer.url,
                "jwks_uri": f"{issuer.url}/jwks",
                "authorization_endpoint": f"{issuer.url}/authorize",
                "token_endpoint": f"{issuer.url}/token",
            }
        ).encode()

    def consent(self, url: str) -> str:
        """The user agrees: returns the path and the query with which the browser comes back."""
        assert url.startswith(f"{self._issuer.url}/authorize?")
        self.asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        self._code = f"code-{time.monotonic_ns()}"
        return f"/login/return?code={self._code}&state={self.asked['state']}"

    def _post(self, path: str, form: dict[str, str], authorization: str) -> bytes | int:
        client = base64.b64decode(authorization.removeprefix("Basic ")).decode()
        if path != "/token" or client != f"{CLIENT}:s3cr3t%2F" or form["client_id"] != CLIENT:
            return 401
        nonce = {"nonce": self.asked["nonce"]}
        if form["grant_type"] == "refresh_token":
            if form["refresh_token"] != self.more.get("refresh_token"):
                return 400
            self.refreshed += 1
            nonce = {}
        else:
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            if (form["code"], challenge) != (self._code, self.asked["code_challenge"]):
                return 400
            assert form["redirect_uri"] == self.asked["redirect_uri"] == f"{ORIGIN}/login/return"
            self._code = ""
        token = self._issuer.token(**{**nonce, **self.claims})
        return json.dumps({"id_token": token, "token_type": "Bearer", **self.more}).encode()


@dataclass
class World:
    """A console whose users log in at `accounts`."""

    accounts: Accounts
    issuer: Issuer
    browser: Callable[[], httpx.AsyncClient]
    restart: Callable[[], Awaitable[None]]  # another process; browsers made before speak to the old one

    async def begun(self, browser: httpx.AsyncClient, then: str = "") -> str:
        """The address with which a browser comes back from the issuer."""
        answer = await browser.get("/login/issuer", params={"next": then})
        assert answer.status_code == 303, answer.text
        return self.accounts.consent(answer.headers["location"])


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as made:
        yield made


@pytest.fixture
async def world(tmp_path: Path, issuer: Issuer) -> AsyncIterator[World]:
    accounts = Accounts(issuer)
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(Service(settings(tmp_path, RULES.format(url=issuer.url))))
        found = endpoint.find(service.address, token="of-a-user").with_token("")
        provider = Provider(issuer.url, CLIENT, "s3cr3t/", "openid groups")
        console = ConsoleSettings(found, "search", provider=provider, host_names=("console.test",))
        console = replace(console, sessions=tmp_path / "sessions")
        apps = [application(console)]

        async def restart() -> None:
            await apps.pop().state.sessions.close()
            apps.append(application(console))

        def browser() -> httpx.AsyncClient:
            made = httpx.AsyncClient(transport=httpx.ASGITransport(apps[0]), base_url=ORIGIN)
            stack.push_async_callback(made.aclose)
            return made

        yield World(accounts, issuer, browser, restart)
        await apps[0].state.sessions.close()


@pytest.mark.slow
async def test_a_user_logs_in_and_comes_to_the_page_that_was_wanted(world: World) -> None:
    browser = world.browser()
    form = await browser.get("/login", params={"next": "/projects/search/jobs?state=FAILED"})
    assert 'href="/login/issuer?next=/projects/search/jobs%3Fstate%3DFAILED"' in form.text
    back = await world.begun(browser, "/projects/search/jobs?state=FAILED")
    asked = world.accounts.asked
    assert (asked["response_type"], asked["code_challenge_method"], asked["scope"]) == ("code", "S256", "openid groups")
    answer = await browser.get(back)
    assert (answer.status_code, answer.headers["location"]) == (303, "/projects/search/jobs?state=FAILED")
    assert (await browser.get(answer.headers["location"])).status_code == 200
    assert set(browser.cookies) == {"__Host-mvprune"}
    assert "s3cr3t" not in str(browser.cookies)
    assert (await browser.get(back)).status_code == 401  # good once


async def test_nobody_is_logged_in_as_someone_else(world: World) -> None:
    attacker, victim = world.browser(), world.browser()
    back = await world.begun(attacker)
    await world.begun(victim)
    for browser in (victim, world.browser()):
        answer = await browser.get(back)
        assert answer.status_code == 401
        assert "had not begun to log in here" in answer.text
        assert "__Host-mvprune" not in browser.cookies
    for query in ("", "state=", "state=x&code=y"):
        assert (await attacker.get(f"/login/return?{query}")).status_code == 401
    assert (await attacker.get(back)).status_code == 401  # another login has begun since, and its code is another
    assert (await attacker.get(await world.begun(attacker, "//evil.test"))).headers["location"] == "/"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"nonce": "another"}, "is not for this login"),
        ({"aud": "another"}, "is not for this login"),
        ({"iss": "https://another.example"}, "is not for this login"),
        ({"groups": ["others"]}, "no rule of the server allows the token of ada"),
        ({"exp": 1}, "has expired"),
        ({"kid": "ec"}, "is not that of its issuer"),
    ],
)
async def test_tokens_that_begin_no_session(world: World, changed: dict[str, Any], said: str) -> None:
    world.accounts.claims |= changed
    browser = world.browser()
    answer = await browser.get(await world.begun(browser))
    assert answer.status_code == 401
    assert said in answer.text
    assert "__Host-mvprune" not in browser.cookies


async def test_an_issuer_that_refuses_or_is_away(world: World) -> None:
    browser = world.browser()
    configuration = world.issuer.answers[CONFIGURATION]
    world.issuer.answers[CONFIGURATION] = 500
    answer = await browser.get("/login/issuer")
    assert "does not answer as it should (HTTP 500)" in answer.text
    world.issuer.answers[CONFIGURATION] = configuration
    await world.begun(browser)
    state = world.accounts.asked["state"]
    answer = await browser.get(f"/login/return?error=<b>access_denied&state={state}")
    assert answer.status_code == 401
    assert "refuses the login (&#39;&lt;b&gt;access_denied&#39;)" in answer.text
    back = await world.begun(browser)
    wrong = back.replace("code=", "code=wrong-")
    assert "does not accept this login" in (await browser.get(wrong)).text


@pytest.mark.slow
async def test_a_session_outlives_its_tokens_while_the_issuer_renews_them(world: World) -> None:
    accounts = world.accounts
    accounts.more = {"refresh_token": "r1"}
    accounts.claims["exp"] = int(time.time()) + 30
    browser = world.browser()
    assert (await browser.get(await world.begun(browser))).status_code == 303
    assert accounts.refreshed == 1  # at the first call: the token ends within a minute
    accounts.claims["exp"] = int(time.time()) + 300
    assert (await browser.get("/projects/search/jobs")).status_code == 200
    assert (await browser.get("/projects/search/jobs")).status_code == 200
    assert accounts.refreshed == 2
    await world.restart()
    same = world.browser()
    same.cookies.update(browser.cookies)
    assert (await same.get("/projects/search/jobs")).status_code == 200
    assert accounts.refreshed == 2  # the renewed tokens were kept
    accounts.claims |= {"exp": int(time.time()) + 30}
    other = world.browser()
    await other.get(await world.begun(other))
    accounts.claims |= {"sub": "eve"}
    answer = await other.get("/projects/search/jobs")
    assert answer.headers["location"] == "/login?next=%2Fprojects%2Fsearch%2Fjobs"


@pytest.mark.slow
async def test_a_session_ends_with_its_last_token(world: World) -> None:
    async def logged_in() -> httpx.AsyncClient | None:
        world.accounts.claims["exp"] = int(time.time()) - 28  # which the server takes for two seconds more
        browser = world.browser()
        return browser if (await browser.get(await world.begun(browser))).status_code == 303 else None

    browser = await until_seen(logged_in, bool)
    assert browser
    answer = await until_seen(lambda: browser.get("/projects/search/jobs"), lambda seen: seen.status_code == 303)
    assert answer.headers["location"] == "/login?next=%2Fprojects%2Fsearch%2Fjobs"
    assert (await browser.get("/projects/search/jobs")).status_code == 303


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--issuer", "https://login.example", "--client-id", "c"], "is given with --client-id and --login only"),
        (["--login", "--issuer", "https://login.example"], "is given with --client-id and --login only"),
        (["--login", "--client-id", "c"], "is given with --client-id and --login only"),
        (["--login", "--issuer", "http://login.example", "--client-id", "c"], "--issuer must be an https URL"),
        (
            ["--login", "--issuer", "https://login.example", "--client-id", "c", "--client-secret-file", "/none"],
            "--client-secret-file must be a file that can be read",
        ),
    ],
)
def test_options_that_do_not_fit(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["console", *argv]) == 2
    assert said in capsys.readouterr().err


async def test_what_a_browser_keeps_of_a_login_is_good_for_a_while_and_cannot_be_changed(issuer: Issuer) -> None:
    accounts = Accounts(issuer)
    now = 0.0
    provider = Provider(issuer.url, CLIENT)
    logins = Logins(provider, lambda: now)
    url, kept = await logins.begin("/", f"{ORIGIN}/login/return")
    accounts.consent(url)
    query = {"state": accounts.asked["state"], "code": "c"}
    text, _, seal = kept.partition(".")
    for other in ("", ".", text, f"{text}.{'0' * 64}", f"{text[:-4]}AAAA.{seal}", "é.é"):
        with pytest.raises(NotAuthorised, match="had not begun"):
            await logins.finish(query, other)
    with pytest.raises(NotAuthorised, match="had not begun"):
        await Logins(provider).finish(query, kept)  # of another console
    with pytest.raises(NotAuthorised, match="took too long"):
        await logins.finish({**query, "iss": "https://another.example"}, kept)
    now = 601.0
    with pytest.raises(NotAuthorised, match="took too long"):
        await logins.finish(query, kept)
    assert issuer.asked == [CONFIGURATION]
    await logins.begin("/" + "x" * 5000, ORIGIN)
    assert issuer.asked == [CONFIGURATION] * 2
    _, kept = await logins.begin("/" + "x" * 5000, ORIGIN)
    assert len(kept) < 1000
    assert issuer.asked == [CONFIGURATION] * 2
