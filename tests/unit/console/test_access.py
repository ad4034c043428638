"""Who may see and do what: every address of the console, for each kind of user."""

from __future__ import annotations

import re
from dataclasses import replace

import httpx
import pytest
from tests.receiver import receiving
from tests.tiers import first_fast
from tests.unit.console.conftest import OWN, World, form_token
from tests.waiting import until_seen, until_true

from mvprune.console.app import application
from mvprune.console.routes import ACTIONS, CHUNK, PAGES, SENDING
from mvprune.console.security import is_local_path

OPEN = {"/health", "/static/{file}", "/static/plots.css", "/login", "/logout", "/shared/{token}"}


def filled(path: str, world: World) -> str:
    there = {"project": "search", "job": world.job, "sweep": world.sweep, "webhook": "w"}
    return path.format(**there, upload="0" * 64, token="none")


def test_every_address_is_in_a_table(world: World) -> None:
    app = application(world.settings)
    known = {(route.path, method) for route in app.routes for method in route.methods - {"HEAD"}}  # type: ignore[attr-defined]
    tables = {(path, "GET") for path in PAGES} | {(path, "POST") for path in (*ACTIONS, SENDING, CHUNK)}
    assert {path for path, _ in known - tables} == OPEN
    assert tables <= known


async def test_nothing_is_shown_or_done_without_login(world: World) -> None:
    browser = world.browser()
    for path in PAGES:
        answer = await browser.get(filled(path, world))
        assert answer.status_code == 303, path
        assert answer.headers["location"].startswith("/login?next=%2F"), path
    for path in ACTIONS:
        assert (await browser.post(filled(path, world), data={"a": "b"}, headers=OWN)).status_code == 401, path
    browser.cookies.set(world.settings.cookie, "made-up")
    assert (await browser.get("/")).status_code == 303


async def test_an_action_needs_a_form_of_the_users_own_page(world: World) -> None:
    browser = await world.logged_in("submit")
    token = await form_token(browser, f"/projects/search/jobs/{world.job}")
    another = await form_token(await world.logged_in("submit"), f"/projects/search/jobs/{world.job}")
    for path in (filled(path, world) for path in ACTIONS):
        for site in ("cross-site", "same-site", "none", None):
            headers = {"sec-fetch-site": site} if site else {}
            answer = await browser.post(path, data={"form_token": token}, headers=headers)
            assert answer.status_code == 403, (path, site)
        for given in ({}, {"form_token": ""}, {"form_token": another}):
            assert (await browser.post(path, data=given, headers=OWN)).status_code in (403, 415), path
    assert "CANCEL" not in (await browser.get(f"/projects/search/jobs/{world.job}")).text


ROLES = ("read", "submit", "admin", "operator")
LEAST = {
    "/projects/{project}/submit": "submit",
    "/projects/{project}/jobs/{job}/cancel": "submit",
    "/projects/{project}/jobs/{job}/retry": "submit",
    "/projects/{project}/jobs/{job}/delete": "submit",
    "/projects/{project}/jobs/{job}/update": "submit",
    "/projects/{project}/jobs/{job}/share": "submit",
    "/projects/{project}/sweeps/{sweep}/change": "submit",
    "/projects/{project}/sweeps/{sweep}/delete": "submit",
    "/projects/{project}/sweeps/{sweep}/share": "submit",
    "/projects/{project}/uploads/begin": "submit",
    "/projects/{project}/uploads/{upload}/delete": "submit",
    "/projects/{project}/admin/tokens": "admin",
    "/projects/{project}/admin/tokens/{token}/revoke": "admin",
    "/projects/{project}/admin/quotas": "operator",
    "/projects/{project}/webhooks/new": "admin",
    "/projects/{project}/webhooks/{webhook}/change": "admin",
    "/projects/{project}/webhooks/{webhook}/redeliver": "admin",
}
"""The role that an action needs."""
JOB = {"model": "bert-base-uncased", "density": "0.1", "task": "sst2", "max_steps": "9", "do": "submit"}
FORM = {
    **{"change": "enable", "scope": "read", "url": "http://127.0.0.1:9/", "events": "job.cancelled", "id": "n"},
    **{"max_queued_jobs": "7", "delivery": "none", "days": "1", "kind": "data", "name": "a.tsv"},
    "files": f'[["a.tsv", 1, ["{"0" * 64}"]]]',
}
"""What the other actions need together, so that only the rights decide."""


def test_the_matrix_has_every_action() -> None:
    assert set(LEAST) == set(ACTIONS)


@pytest.mark.parametrize("role", first_fast([*ROLES], 2))
async def test_a_role_does_what_it_may_and_nothing_else(world: World, role: str) -> None:
    browser = await world.logged_in(role)
    for path, least in LEAST.items():
        form = dict(JOB) if path.endswith("/submit") else {**FORM, "change": "pause" if "sweep" in path else "enable"}
        form["form_token"] = "".join(_form_tokens(browser))
        answer = await browser.post(filled(path, world), data=form, headers=OWN)
        may = ROLES.index(role) >= ROLES.index(least)
        assert (answer.status_code == 403) == (not may), (path, answer.status_code, answer.text)
        assert answer.status_code < 500, (path, answer.text)


@pytest.mark.parametrize("role", first_fast([*ROLES], 2))
async def test_who_may_read_sees_all_pages_and_who_may_submit_changes(world: World, role: str) -> None:
    browser = await world.logged_in(role)
    for path in PAGES:
        answer = await browser.get(filled(path, world))
        if any(one in path for one in ("/admin", "/webhooks", "/audit")) and role in ("read", "submit"):
            assert answer.status_code == 403
        else:  # the job has no artifact
            assert answer.status_code in ((200, 409) if "report" in path else (200, 303)), (path, answer.text)
    page = (await browser.get(f"/projects/search/jobs/{world.job}")).text
    assert ("/cancel" in page) == (role != "read")
    form = {"form_token": "".join(_form_tokens(browser))}
    answer = await browser.post(f"/projects/search/jobs/{world.job}/cancel", data=form, headers=OWN)
    assert answer.status_code == (403 if role == "read" else 303), answer.text


async def test_a_token_of_another_project_sees_nothing(world: World) -> None:
    browser = await world.logged_in("other")
    form = {"form_token": "".join(_form_tokens(browser))}
    for path in PAGES:
        if "{project}" in path:
            answer = await browser.get(filled(path, world), params={"job": world.job})
            assert answer.status_code in (403, 404), path
            assert "team=" not in answer.text
    for path in ACTIONS:
        answer = await browser.post(filled(path, world), data=form, headers=OWN)
        assert answer.status_code in (403, 404), path


@pytest.mark.slow
async def test_a_shared_link_shows_one_thing(world: World) -> None:
    owner = await world.logged_in("submit")
    for kind, name in (("jobs", world.job), ("sweeps", world.sweep)):
        path = f"/projects/search/{kind}/{name}"
        form = {"form_token": "".join(_form_tokens(owner)), "days": "1"}
        page = (await owner.post(f"{path}/share", data=form, headers=OWN)).text
        link = re.search(r"https://console\.test(/shared/[^<]+)<", page)
        assert link
        guest = world.browser()
        asked = await guest.get(link[1])
        assert "set-cookie" not in asked.headers  # only a click logs in
        token = re.search(r'name="token" value="([^"]+)"', asked.text)
        assert token
        await guest.post("/login", data={"token": token[1]}, headers=OWN)
        assert (await guest.get("/")).headers["location"] == path
        shown = await guest.get(path)
        assert shown.status_code == 200
        assert "/delete" not in shown.text
        for other in ("jobs", "sweeps", "uploads", "queue", "admin", f"jobs/{'none' if kind == 'jobs' else world.job}"):
            assert (await guest.get(f"/projects/search/{other}")).status_code in (403, 404), other


async def test_an_admin_makes_and_revokes_tokens(world: World) -> None:
    browser = await world.logged_in("operator")
    form = {"form_token": "".join(_form_tokens(browser))}
    made = await browser.post("/projects/search/admin/tokens", data={**form, "scope": "read", "days": "1"}, headers=OWN)
    secret = re.search(r"mvp_(token-[a-z0-9]+)_[\w-]+", made.text)
    assert secret
    assert secret[0] not in (await browser.get("/projects/search/admin")).text
    guest = world.browser()
    assert (await guest.post("/login", data={"token": secret[0]}, headers=OWN)).status_code == 303
    revoked = await browser.post(f"/projects/search/admin/tokens/{secret[1]}/revoke", data=form, headers=OWN)
    assert revoked.status_code == 303
    assert (await guest.get("/projects/search/jobs")).headers["location"].startswith("/login")
    quotas = {**form, "max_queued_jobs": "7", "max_running_gpus": "", "max_upload_bytes": "2GiB"}
    assert (await browser.post("/projects/search/admin/quotas", data=quotas, headers=OWN)).status_code == 303
    assert 'value="7"' in (await browser.get("/projects/search/admin")).text
    for wrong in ({"max_queued_jobs": "x"}, {"max_upload_bytes": "2 parsecs"}):
        refused = await browser.post("/projects/search/admin/quotas", data={**form, **wrong}, headers=OWN)
        assert refused.status_code == 400


@pytest.mark.slow
async def test_names_labels_and_notes_change(world: World) -> None:
    browser = await world.logged_in("submit")
    path = f"/projects/search/jobs/{world.job}"
    form = {"form_token": "".join(_form_tokens(browser)), "display_name": "plain", "note": "a <b>\nb"}
    form["labels"] = "a=b, c=d"
    assert (await browser.post(f"{path}/update", data=form, headers=OWN)).status_code == 303
    page = (await browser.get(path)).text
    assert "<h1>plain</h1>" in page
    assert 'value="a=b, c=d"' in page
    assert "a &lt;b&gt;\nb" in page
    assert (await browser.post(f"{path}/update", data={**form, "labels": "x"}, headers=OWN)).status_code == 400


@pytest.mark.slow
async def test_a_sweep_is_paused_resumed_and_cancelled(world: World) -> None:
    browser = await world.logged_in("submit")
    path = f"/projects/search/sweeps/{world.sweep}"
    form = {"form_token": "".join(_form_tokens(browser))}
    for change, state in (("pause", "PAUSED"), ("resume", "ACTIVE"), ("cancel", "CANCELL")):
        assert (await browser.post(f"{path}/change", data={**form, "change": change}, headers=OWN)).status_code == 303
        assert state in (await browser.get(path)).text
    assert (await browser.post(f"{path}/change", data={**form, "change": "x"}, headers=OWN)).status_code == 400


async def test_login_takes_tokens_of_the_server_only(world: World) -> None:
    browser = world.browser()
    for token in ("", "wrong", "mvp_token-aaaa_bbbb", "zwei wörter"):
        answer = await browser.post("/login", data={"token": token, "project": "search"}, headers=OWN)
        assert answer.status_code == 401, token
        assert "set-cookie" not in answer.headers
        assert not token or token not in answer.text
    form = {"token": world.tokens["read"], "project": "search"}
    assert (await browser.post("/login", data=form)).status_code == 403  # from another site
    assert (await browser.post("/login", json=form, headers=OWN)).status_code == 415


async def test_the_cookie_is_for_this_host_alone_and_always_a_new_one(world: World) -> None:
    browser = world.browser()
    browser.cookies.set(world.settings.cookie, "fixed-by-another", domain="console.test")
    form = {"token": world.tokens["read"], "project": "search"}
    answer = await browser.post("/login", data=form, headers=OWN)
    cookie = answer.headers["set-cookie"]
    name, _, value = cookie.partition(";")[0].partition("=")
    assert (name, value) != ("__Host-mvprune", "fixed-by-another")
    assert name == "__Host-mvprune"
    for flag in ("HttpOnly", "Secure", "Path=/", "SameSite=lax"):
        assert flag in cookie
    assert "Domain" not in cookie
    before = dict(browser.cookies)
    await browser.post("/login", data=form, headers=OWN)
    stale = world.browser()
    stale.cookies.update(before)
    assert (await stale.get("/projects/search/jobs")).status_code == 303
    assert (await browser.get("/projects/search/jobs")).status_code == 200
    kept = dict(browser.cookies)
    assert (await browser.post("/logout", headers=OWN)).headers["location"] == "/login"
    stale.cookies.update(kept)
    assert (await stale.get("/projects/search/jobs")).status_code == 303


@pytest.mark.slow
async def test_an_admin_makes_webhooks_and_sends_again(world: World) -> None:
    browser = await world.logged_in("admin")
    form = {"form_token": "".join(_form_tokens(browser))}
    with receiving() as receiver:
        fields = {**form, "url": receiver.url, "events": "job.cancelled, sweep.*", "format": "slack", "id": "mine"}
        made = await browser.post("/projects/search/webhooks/new", data=fields, headers=OWN)
        secret = re.search(r"whsec_[\w+/=]+", made.text)
        assert secret
        path = "/projects/search/webhooks/mine"
        shown = (await browser.get(path)).text
        assert receiver.url in shown
        assert secret[0] not in shown
        tested = await browser.post(f"{path}/change", data={**form, "change": "test"}, headers=OWN)
        assert "delivered (HTTP 204)" in tested.text
        sent = len(receiver.got)
        await browser.post(f"/projects/search/jobs/{world.job}/cancel", data=form, headers=OWN)
        await until_true(lambda: len(receiver.got) > sent)
        page = await until_seen(
            lambda: browser.get(path, params={"state": "delivered"}), lambda seen: world.job in seen.text
        )
        delivery = re.search(r'name="delivery" value="([^"]+)"', page.text)
        assert delivery
        sent = len(receiver.got)
        again = await browser.post(f"{path}/redeliver", data={**form, "delivery": delivery[1]}, headers=OWN)
        assert again.headers["location"] == path
        await until_true(lambda: len(receiver.got) == sent + 1)
    rotated = await browser.post(f"{path}/change", data={**form, "change": "rotate"}, headers=OWN)
    assert "whsec_" in rotated.text
    await browser.post(f"{path}/change", data={**form, "change": "disable"}, headers=OWN)
    assert "disabled" in (await browser.get("/projects/search/webhooks")).text
    refused = await browser.post(f"{path}/change", data={**form, "change": "x"}, headers=OWN)
    assert refused.status_code == 400
    bad = await browser.post("/projects/search/webhooks/new", data={**fields, "url": "https://10.0.0.1/"}, headers=OWN)
    assert (bad.status_code, "must not be reached" in bad.text) == (400, True)
    await browser.post(f"{path}/change", data={**form, "change": "delete"}, headers=OWN)
    assert (await browser.get(path)).status_code == 404


async def test_an_admin_sees_who_did_what(world: World) -> None:
    browser = await world.logged_in("admin")
    form = {"form_token": "".join(_form_tokens(browser))}
    await browser.post(f"/projects/search/jobs/{world.job}/cancel", data=form, headers=OWN)
    page = await browser.get("/projects/search/audit", params={"filter": "method = CancelJob"})
    assert page.status_code == 200
    assert f"projects/search/jobs/{world.job}" in page.text
    assert "CreateJob" not in page.text
    wrong = await browser.get("/projects/search/audit", params={"filter": "method = <i>"})
    assert (wrong.status_code, "<i>" in wrong.text, "must be a value" in wrong.text) == (400, False, True)


ELSEWHERE = (
    *("//evil.test", "https://evil.test", "/\\evil.test", "\\\\evil.test", "javascript:alert(1)", "/\t/evil.test"),
    *("///evil.test", "http:evil.test", ""),
)


async def test_login_leads_nowhere_else(world: World) -> None:
    browser = world.browser()
    for then in ELSEWHERE:
        assert not is_local_path(then)
        assert 'name="next" value=""' in (await browser.get("/login", params={"next": then})).text, then
        form = {"token": world.tokens["read"], "project": "search", "next": then}
        assert (await browser.post("/login", data=form, headers=OWN)).headers["location"] == "/", then


async def test_login_leads_back_to_where_one_was(world: World) -> None:
    browser = world.browser()
    asked = await browser.get(f"/projects/search/jobs/{world.job}/log", params={"search": "a b"})
    page = await browser.get(asked.headers["location"])
    assert f'value="/projects/search/jobs/{world.job}/log?search=a+b"' in page.text.replace("%20", "+")


async def test_every_answer_has_the_headers(world: World) -> None:
    browser = await world.logged_in("read")
    paths = ["/health", "/login", "/static/console.js", "/static/../app.py", "/nowhere", "/projects/search/jobs"]
    for path in [*paths, f"/projects/search/jobs/{world.job}", "/projects/search/jobs/none"]:
        headers = (await browser.get(path)).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
    assert (await browser.get("/static/..%2Fapp.py")).status_code == 404


async def test_a_name_that_was_bound_to_this_address_is_refused(world: World) -> None:
    browser = await world.logged_in("read")
    for path in ("/login", "/projects/search/jobs", "/static/console.js"):
        assert (await browser.get(path, headers={"host": "evil.test"})).status_code == 421


async def test_a_console_of_one_user_wants_its_key(world: World) -> None:
    endpoint = world.settings.endpoint.with_token(world.tokens["read"])
    settings = replace(world.settings, endpoint=endpoint, key="the-key", secure=False)
    app = application(settings, once=["one-time"])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:1") as browser:
        assert (await browser.get("/projects/search/jobs")).status_code == 303
        assert (await browser.post("/login", data={"token": world.tokens["read"]}, headers=OWN)).status_code == 405
        for wrong in ("the-ke", "THE-KEY", "%00"):
            assert (await browser.get(f"/start/{wrong}")).status_code == 403
        assert (await browser.get("/start/one-time")).status_code == 303
        assert "Secure" not in str(browser.cookies.jar)
        assert (await browser.get("/projects/search/jobs")).status_code == 200
        browser.cookies.clear()
        assert (await browser.get("/start/one-time")).status_code == 403
        assert (await browser.get("/start/the-key")).status_code == 303
        assert (await browser.get("/projects/search/jobs")).status_code == 200
    await app.state.sessions.close()


def _form_tokens(browser: httpx.AsyncClient) -> list[str]:
    transport = browser._transport
    assert isinstance(transport, httpx.ASGITransport)
    sessions = transport.app.state.sessions  # type: ignore[attr-defined]
    return [sessions.get(value).form_token for value in browser.cookies.values()]
