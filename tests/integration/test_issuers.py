"""Tokens of an issuer, from the sources of CI systems to a server: the issuer is a real one, on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mvprune import AsyncClient, InvalidArgument, NotAuthorised, ServerUnreachable
from mvprune.client import tokens
from mvprune.client.issuers import IssuerRule
from mvprune_service.assembly.service import Service
from mvprune_service.assembly.startup import StartError
from mvprune_service.executors.processes import kill_marked

from ..issuer import Issuer, issuing, settings
from ..waiting import PATIENCE, until_true
from .servers import Data

RULE = """
[[issuer]]
url = "{url}"
audience = "mvprune"
[[issuer.rule]]
claims = {{ repository = "acme/models" }}
project = "search"
scope = "submit"
"""
SUBJECT = "repo:acme/models:ref:refs/heads/main"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as made:
        yield made


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Without settings of the client; trainers only talk until they are killed."""
    for name in list(os.environ):
        if name.startswith(("MVPRUNE_", "ACTIONS_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("MVPRUNE_HOME", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).with_name("chatty")))
    return monkeypatch


@pytest.fixture
async def service(issuer: Issuer, tmp_path: Path) -> AsyncIterator[Service]:
    async with Service(settings(tmp_path, RULE.format(url=issuer.url))) as made:
        yield made
    kill_marked("MVPRUNE_SCRATCH", str(tmp_path / "home" / "scratch"))


async def test_a_caller_has_the_name_of_its_issuer_and_subject(service: Service, issuer: Issuer) -> None:
    async with AsyncClient(service.address, token=issuer.token(), project="search") as client:
        caller = await client.admin.caller()
        assert caller.id == f"{issuer.url.removeprefix('http://')}/{SUBJECT}"
        assert (caller.project, caller.scope) == ("search", "submit")
        assert caller.expire_time is not None
        assert [job async for job in client.list()] == []
        with pytest.raises(NotAuthorised, match="needs a token with the scope admin"):
            await client.webhooks.get("w")
    async with AsyncClient(service.address, token=issuer.token(), project="other") as client:
        with pytest.raises(NotAuthorised, match="valid only for projects/search"):
            [job async for job in client.list()]


async def test_an_operator_adds_and_deletes_an_issuer_while_the_server_runs(issuer: Issuer, tmp_path: Path) -> None:
    given = settings(tmp_path, "").model_copy(update={"issuers_file": None, "auth": "required"})
    async with Service(given) as service:
        operator = (tmp_path / "home" / "operator-token").read_text().strip()
        async with (
            AsyncClient(service.address, token=operator) as admin,
            AsyncClient(service.address, token=issuer.token(), project="search") as client,
        ):
            with pytest.raises(NotAuthorised, match="does not accept"):
                await client.admin.caller()
            rule = IssuerRule({"repository": "acme/models"}, "search", "submit")
            made = await admin.issuers.create(issuer.url, "mvprune", [rule])
            assert (made.rules, made.source) == ((rule,), "api")
            assert [one async for one in admin.issuers.list()] == [made]
            assert (await client.admin.caller()).scope == "submit"
            with pytest.raises(NotAuthorised, match="operator's token"):
                [one async for one in client.issuers.list()]
            changed = await admin.issuers.update(made.id, rules=[replace(rule, scope="read")], etag=made.etag)
            assert (await client.admin.caller()).scope == changed.rules[0].scope == "read"
            await admin.issuers.delete(made.id)
            with pytest.raises(NotAuthorised, match="does not accept"):
                await client.admin.caller()
            audited = [(one.method, one.code, one.resource) async for one in admin.admin.audit("-")]
            denied = ("ListIssuers", "PERMISSION_DENIED", "")
            methods = ("DeleteIssuer", "UpdateIssuer", "CreateIssuer")
            assert [one for one in audited if one != denied] == [(one, "OK", made.name) for one in methods]
            assert denied in audited


async def test_what_a_refused_caller_reads(service: Service, issuer: Issuer) -> None:
    async with AsyncClient(service.address, token=issuer.token(aud="other")) as client:
        with pytest.raises(NotAuthorised, match="must be for the audience mvprune") as caught:
            await client.admin.caller()
        assert (caught.value.code, caught.value.reason) == ("UNAUTHENTICATED", "WRONG_AUDIENCE")
    async with AsyncClient(service.address, token=issuer.token(repository="acme/other")) as client:
        with pytest.raises(NotAuthorised, match=f"allows the token of {SUBJECT}; rules are about repository"):
            await client.admin.caller()


async def test_an_issuer_that_is_away_is_waited_for(service: Service, issuer: Issuer) -> None:
    issuer.answers = {"/jwks": 500}
    async with AsyncClient(service.address, token=issuer.token()) as client:
        asking = asyncio.create_task(client.admin.caller())
        await until_true(lambda: "/jwks" in issuer.asked)
        issuer.answers = {}
        assert (await asyncio.wait_for(asking, PATIENCE)).project == "search"


async def test_a_token_file_is_read_again_when_it_changes(
    service: Service, issuer: Issuer, tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    """As kubelet renews the token of a service account."""
    file = tmp_path / "token"
    file.write_text(issuer.token(sub="first"))
    environment.setenv("MVPRUNE_TOKEN_FILE", str(file))
    async with AsyncClient(service.address) as client:
        assert (await client.admin.caller()).id.endswith("/first")
        (tmp_path / "new").write_text(issuer.token(sub="second"))
        (tmp_path / "new").replace(file)
        assert (await client.admin.caller()).id.endswith("/second")
        file.unlink()
        with pytest.raises(InvalidArgument, match=r"MVPRUNE_TOKEN_FILE.* cannot be read"):
            await client.admin.caller()


class GitHub:
    """What GitHub gives a job that may ask for tokens: `issuer` answers on a path of its own."""

    def __init__(self, issuer: Issuer, environment: pytest.MonkeyPatch, lasts: float = 300) -> None:
        self.issued = 0
        self._issuer, self._lasts = issuer, lasts
        answer = issuer.answer

        def with_tokens(path: str) -> bytes | int:
            if path != "/tokens?api-version=2&audience=mvprune":
                return answer(path)
            self.issued += 1
            token = issuer.token(exp=int(time.time() + self._lasts), jti=f"{self.issued}")
            return json.dumps({"value": token}).encode()

        issuer.answer = with_tokens  # type: ignore[method-assign]
        environment.setenv("ACTIONS_ID_TOKEN_REQUEST_URL", f"{issuer.url}/tokens?api-version=2")
        environment.setenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "s3cr3t")
        environment.setenv("MVPRUNE_OIDC_AUDIENCE", "mvprune")


async def test_github_is_asked_once_for_many_calls(
    service: Service, issuer: Issuer, environment: pytest.MonkeyPatch
) -> None:
    github = GitHub(issuer, environment)
    async with AsyncClient(service.address) as client:
        for _ in range(3):
            assert (await client.admin.caller()).project == "search"
        assert github.issued == 1
        assert "s3cr3t" not in repr(client.__dict__)


@pytest.mark.slow
async def test_a_stream_outlives_its_token(
    service: Service, issuer: Issuer, environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    github = GitHub(issuer, environment, lasts=-22)  # which the server takes for eight seconds more
    data = Data.write(tmp_path)
    async with AsyncClient(service.address, project="search") as client:
        job = await client.submit(
            model="bert-base-uncased",
            task="text-classification",
            train=f"server:{data.train}",
            validation=f"server:{data.validation}",
            density=0.1,
            max_attempts=1,
        )
        assert job.creator.endswith(SUBJECT)
        watching = asyncio.create_task(_last(client, job.id))
        await until_true(lambda: github.issued >= 3)  # for submit, the watch, and the watch again
        await client.cancel(job.id)
        assert await asyncio.wait_for(watching, PATIENCE) == "CANCELLED"
    async with AsyncClient(service.address, project="search", token=issuer.token(exp=int(time.time() - 22))) as client:
        again = await client.retry(job.id)
        with pytest.raises(NotAuthorised, match="has expired"):
            await asyncio.wait_for(_last(client, again.id), PATIENCE)


async def _last(client: AsyncClient, job_id: str) -> str:
    state = ""
    async for update in client.watch(job_id):
        state = update.job.state
    return state


def test_what_github_has_to_allow(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("MVPRUNE_OIDC_AUDIENCE", "mvprune")
    with pytest.raises(InvalidArgument, match=r"MVPRUNE_OIDC_AUDIENCE.*`permissions: id-token: write`"):
        AsyncClient("127.0.0.1:1")
    environment.setenv("MVPRUNE_TOKEN", "mvp_a")
    with pytest.raises(InvalidArgument, match=r"MVPRUNE_OIDC_AUDIENCE.*unset one of the two"):
        AsyncClient("127.0.0.1:1")
    environment.delenv("MVPRUNE_TOKEN")
    environment.setenv("ACTIONS_ID_TOKEN_REQUEST_URL", "http://far.example/")
    environment.setenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "t")
    with pytest.raises(InvalidArgument, match="must be an https URL"):
        AsyncClient("127.0.0.1:1")


async def test_github_that_gives_no_token(issuer: Issuer, environment: pytest.MonkeyPatch) -> None:
    environment.setattr(tokens, "_PAUSE_SECONDS", 0.0)
    GitHub(issuer, environment)
    environment.setenv("MVPRUNE_OIDC_AUDIENCE", "other")
    async with AsyncClient("127.0.0.1:1") as client:
        with pytest.raises(ServerUnreachable, match=r"GitHub gave no token for this job \(HTTP 404\)"):
            await client.admin.caller()
    assert len(issuer.asked) == 3


async def test_a_server_does_not_start_with_a_file_it_cannot_use(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"issuers.toml must have tables \[\[issuer\]\]"):
        async with Service(settings(tmp_path, "")):
            pass
