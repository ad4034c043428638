"""IssuerService on both databases: what is refused, and which tokens are accepted on every server from then on."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import grpc
import pytest
from tests.issuer import CONFIGURATION, Issuer, ec_key, issuing, public
from tests.unit.service.conftest import TestClock

from mvprune.v1 import issuer_pb2
from mvprune_service import issuers as accepting
from mvprune_service.api.access.errors import ApiError
from mvprune_service.api.issuers import IssuerServicer, issuer_settings
from mvprune_service.db.engine.database import Database
from mvprune_service.issuers import Issuers, TokenRefused

CONTEXT: Any = None
RULE: Any = {"claims": [{"name": "repository", "text": "acme/models"}], "project": "search", "scope": "SUBMIT"}
FIXED = {"url": "https://a.example", "audience": "x", "rule": [{"claims": {"a": 1}, "project": "-", "scope": "admin"}]}


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as made:
        yield made


@pytest.fixture
def clock() -> TestClock:
    return TestClock(time.time_ns() // 1000)


@pytest.fixture
def replicas(db: Database, clock: TestClock) -> list[Issuers]:
    fixed = [accepting.Issuer.model_validate(FIXED)]
    return [Issuers(fixed, clock, partial(issuer_settings, db)) for _ in range(2)]


@pytest.fixture
def api(db: Database, replicas: list[Issuers]) -> IssuerServicer:
    return IssuerServicer(db, replicas[0])


async def create(api: IssuerServicer, url: str, issuer_id: str = "ci", **fields: Any) -> issuer_pb2.Issuer:
    given = {"url": url, "audience": "mvprune", "rules": [RULE], **fields}
    return await api.CreateIssuer(issuer_pb2.CreateIssuerRequest(issuer_id=issuer_id, issuer=given), CONTEXT)


async def update(api: IssuerServicer, name: str, etag: str = "", **fields: Any) -> issuer_pb2.Issuer:
    request = issuer_pb2.UpdateIssuerRequest(name=name, issuer=fields, etag=etag)
    request.update_mask.paths.extend(fields)
    return await api.UpdateIssuer(request, CONTEXT)


async def delete(api: IssuerServicer, name: str, etag: str = "") -> None:
    await api.DeleteIssuer(issuer_pb2.DeleteIssuerRequest(name=name, etag=etag), CONTEXT)


async def refused(call: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await call
    return caught.value


async def reason(accepted: Issuers, token: str) -> str:
    try:
        return (await accepted.caller(token)).project
    except TokenRefused as error:
        return error.reason


async def test_tokens_are_accepted_by_all_servers_while_the_issuer_is_there(
    api: IssuerServicer, replicas: list[Issuers], issuer: Issuer, clock: TestClock
) -> None:
    async def seen(token: str) -> list[str]:
        return [await reason(one, token) for one in replicas]

    token = issuer.token()
    assert await seen(token) == ["UNKNOWN_ISSUER", "UNKNOWN_ISSUER"]
    made = await create(api, issuer.url)
    assert (made.name, made.source, made.creator, made.problem) == ("issuers/ci", issuer_pb2.Issuer.API, "local", "")
    assert await seen(token) == ["search", "UNKNOWN_ISSUER"], "the other server has not looked yet"
    clock.pass_seconds(5)
    assert await seen(token) == ["search", "search"]
    changed = await update(api, made.name, made.etag, rules=[{**RULE, "project": "other"}])
    assert changed.etag != made.etag
    clock.pass_seconds(5)
    assert await seen(token) == ["other", "other"]
    assert (await refused(delete(api, made.name, made.etag))).code is grpc.StatusCode.ABORTED
    await delete(api, made.name, changed.etag)
    clock.pass_seconds(5)
    assert await seen(token) == ["UNKNOWN_ISSUER", "UNKNOWN_ISSUER"]
    assert (await refused(delete(api, made.name))).code is grpc.StatusCode.NOT_FOUND


async def test_keys_that_come_with_the_issuer(api: IssuerServicer, replicas: list[Issuers], issuer: Issuer) -> None:
    issuer.answers = dict.fromkeys((CONFIGURATION, "/jwks"), 500)
    await create(api, issuer.url, jwks=json.dumps({"keys": issuer.keys}))
    assert await reason(replicas[0], issuer.token()) == "search"
    assert issuer.asked == []


async def test_those_of_the_file_are_listed_and_stay(api: IssuerServicer, db: Database) -> None:
    await create(api, "https://b.example", "b")
    await create(api, "https://c.example", "z")
    listed: list[str] = []
    token = ""
    while True:
        request = issuer_pb2.ListIssuersRequest(page_size=1, page_token=token)
        answer = await api.ListIssuers(request, CONTEXT)
        listed += [one.name for one in answer.issuers]
        token = answer.next_page_token
        if not token:
            break
    fixed = listed[1]
    assert listed == ["issuers/b", fixed, "issuers/z"]
    shown = await api.GetIssuer(issuer_pb2.GetIssuerRequest(name=fixed), CONTEXT)
    assert (shown.url, shown.source, shown.rules[0].claims[0].number) == (
        "https://a.example",
        issuer_pb2.Issuer.FILE,
        1,
    )
    for call in (update(api, fixed, audience="y"), delete(api, fixed)):
        assert (await refused(call)).reason == "OF_FILE"
    assert f"{fixed} of the server's file has the url" in (await refused(create(api, "https://a.example"))).message
    # On a server with another file.
    other = Issuers([accepting.Issuer.model_validate({**FIXED, "url": "https://b.example"})])
    hidden = await IssuerServicer(db, other).GetIssuer(issuer_pb2.GetIssuerRequest(name="issuers/b"), CONTEXT)
    assert "is used instead" in hidden.problem


async def test_what_is_refused(api: IssuerServicer) -> None:
    made = await create(api, "https://b.example")
    for call, said in (
        (create(api, "https://b.example", "c"), "issuers/ci has the url https://b.example already"),
        (create(api, "https://c.example"), "issuers/ci exists already"),
        (create(api, "https://c.example", "file-1"), "issuer_id: must be 1 to 63 characters"),
        (create(api, "http://c.example", "c"), "issuer.url: must be an https URL"),
        (create(api, "https://c.example", "c", audience=""), "issuer.audience: "),
        (create(api, "https://c.example", "c", rules=[]), "issuer.rules: "),
        (create(api, "https://c.example", "c", rules=[{**RULE, "claims": []}]), "issuer.rules[0].claims: "),
        (create(api, "https://c.example", "c", rules=[{**RULE, "project": "P"}]), "issuer.rules[0].project: must be a"),
        (create(api, "https://c.example", "c", rules=[{**RULE, "scope": 0}]), "issuer.rules[0].scope: must be READ"),
        (create(api, "https://c.example", "c", rules=[{**RULE, "claims": [{"name": "a"}]}]), "must have a text"),
        (create(api, "https://c.example", "c", rules=[{**RULE, "claims": 2 * RULE["claims"]}]), "no other one names"),
        (create(api, "https://c.example", "c", jwks="{}"), "issuer.jwks: it has no list of keys"),
        (
            create(
                api,
                "https://c.example",
                "c",
                jwks_url="https://c.example",
                jwks=json.dumps({"keys": [public("k", ec_key())]}),
            ),
            "must have one of",
        ),
        (update(api, made.name, url="https://d.example"), "update_mask: must be some of audience"),
        (update(api, made.name, audience=""), "issuer.audience: "),
        (update(api, made.name, "7", audience="b"), "has changed"),
        (update(api, "issuers/none", audience="b"), "there is no issuers/none"),
        (update(api, "projects/p", audience="b"), "name: must be issuers/ISSUER"),
    ):
        assert said in (await refused(call)).message, said
