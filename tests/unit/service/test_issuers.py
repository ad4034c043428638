"""Tokens of issuers: which are accepted, and what is said about others. The issuer is a real one, on loopback."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from tests.issuer import CONFIGURATION, Issuer, ec_key, issuing, public, rsa_key
from tests.unit.service.conftest import TestClock

from mvprune_service import issuers
from mvprune_service.clock import SECOND
from mvprune_service.issuers import BadIssuers, Issuers, IssuerUnreachable, TokenRefused, load_issuers

FILE = """
[[issuer]]
url = "{url}"
audience = "mvprune"
{more}
[[issuer.rule]]
claims = {{ repository = "acme/models", environment = "prod" }}
project = "search"
scope = "submit"
[[issuer.rule]]
claims = {{ groups = "operators", mfa = true }}
project = "-"
scope = "admin"
"""


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as made:
        yield made


@pytest.fixture
def clock() -> TestClock:
    return TestClock(time.time_ns() // 1000)


def accepting(issuer: Issuer, folder: Path, clock: TestClock, more: str = "") -> Issuers:
    file = folder / "issuers.toml"
    file.write_text(FILE.format(url=issuer.url, more=more))
    return Issuers(load_issuers(file), clock)


@pytest.fixture
def accepted(issuer: Issuer, tmp_path: Path, clock: TestClock) -> Issuers:
    return accepting(issuer, tmp_path, clock)


def encoded(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


async def refused(accepted: Issuers, token: str) -> str:
    with pytest.raises(TokenRefused) as caught:
        await accepted.caller(token)
    assert str(caught.value)
    return caught.value.reason


async def test_who_calls_and_what_they_may(
    accepted: Issuers, issuer: Issuer, clock: TestClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    host = issuer.url.removeprefix("http://")
    end = int(time.time()) + 200
    caller = await accepted.caller(issuer.token(exp=end))
    assert (caller.project, caller.scope) == ("search", "submit")
    assert caller.id == f"{host}/repo:acme/models:ref:refs/heads/main"
    assert caller.expire_us == (end + 30) * SECOND
    assert "jti 'id-1'" in caplog.text
    groups = {"repository": None, "groups": ["users", "operators"], "mfa": True, "aud": ["other", "mvprune"]}
    operator = await accepted.caller(issuer.token(kid="ec", key=ec_key(), alg="ES256", **groups))
    assert (operator.project, operator.scope) == ("-", "admin")
    token = issuer.token()
    asked = len(issuer.asked)
    for _ in range(3):
        await accepted.caller(token)
        clock.pass_seconds(61)
    assert len(issuer.asked) == asked == 2
    clock.pass_seconds(300)
    assert await refused(accepted, token) == "TOKEN_EXPIRED"
    assert token not in caplog.text


def changes() -> dict[str, tuple[dict[str, Any], str]]:
    now = int(time.time())
    return {
        "wrong audience": ({"aud": "other"}, "WRONG_AUDIENCE"),
        "no audience": ({"aud": None}, "BAD_TOKEN"),
        "expired": ({"exp": now - 31}, "TOKEN_EXPIRED"),
        "no end": ({"exp": None}, "BAD_TOKEN"),
        "an end that is no number": ({"exp": True}, "BAD_TOKEN"),
        "an end beyond all time": ({"exp": 1e300}, "BAD_TOKEN"),
        "not yet valid": ({"nbf": now + 60}, "TOKEN_NOT_YET_VALID"),
        "of the future": ({"iat": now + 60}, "TOKEN_NOT_YET_VALID"),
        "no issue time": ({"iat": None}, "BAD_TOKEN"),
        "another issuer": ({"iss": "https://token.actions.example"}, "UNKNOWN_ISSUER"),
        "no issuer": ({"iss": None}, "UNKNOWN_ISSUER"),
        "no subject": ({"sub": None}, "BAD_TOKEN"),
        "a long subject": ({"sub": "x" * 256}, "BAD_TOKEN"),
        "a subject that hides": ({"sub": "a\u202eb"}, "BAD_TOKEN"),
        "another repository": ({"repository": "acme/models2"}, "CLAIMS_NOT_ALLOWED"),
        "another case": ({"repository": "Acme/models"}, "CLAIMS_NOT_ALLOWED"),
        "one claim of two": ({"environment": None}, "CLAIMS_NOT_ALLOWED"),
        "a number for a word": ({"environment": None, "groups": ["operators"], "mfa": 1}, "CLAIMS_NOT_ALLOWED"),
        "unknown key": ({"kid": "another"}, "UNKNOWN_KEY"),
        "no key": ({"kid": None}, "BAD_TOKEN"),
        "a key of someone else": ({"key": rsa_key(1)}, "BAD_TOKEN"),
        "the id of another key": ({"kid": "ec"}, "BAD_TOKEN"),
        "another algorithm": ({"alg": "RS512"}, "BAD_TOKEN"),
        "PSS": ({"alg": "PS256"}, "BAD_TOKEN"),
    }


@pytest.mark.parametrize("name", changes())
async def test_tokens_that_are_refused(name: str, accepted: Issuers, issuer: Issuer) -> None:
    changed, reason = changes()[name]
    assert await refused(accepted, issuer.token(**changed)) == reason


async def test_forged_tokens(accepted: Issuers, issuer: Issuer) -> None:
    claims, good = encoded(issuer.claims()), issuer.token()
    for algorithm in ("none", "None", "NONE", ""):
        assert await refused(accepted, f"{encoded({'alg': algorithm, 'kid': 'rsa'})}.{claims}.") == "BAD_TOKEN"
    # The public key as the secret of an HMAC.
    pem = (
        rsa_key().public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    signed = f"{encoded({'alg': 'HS256', 'kid': 'rsa', 'typ': 'JWT'})}.{claims}"
    mac = base64.urlsafe_b64encode(hmac.new(pem, signed.encode(), hashlib.sha256).digest()).rstrip(b"=").decode()
    assert await refused(accepted, f"{signed}.{mac}") == "BAD_TOKEN"
    # A key that the token brings, or says where it is.
    own = public("rsa", rsa_key(1))
    for header in ({"jwk": own}, {"jku": "http://127.0.0.1:1/"}, {"crit": ["x"], "x": 1}):
        forged = f"{encoded({'alg': 'RS256', 'kid': 'rsa', **header})}.{claims}.{good.split('.')[2]}"
        assert await refused(accepted, forged) == "BAD_TOKEN"
    header, _, signature = good.split(".")
    deep = base64.urlsafe_b64encode(b"[" * 5_000).rstrip(b"=").decode()
    assert await refused(accepted, f"{header}.{deep}.{signature}") == "BAD_TOKEN"
    assert await refused(accepted, f"{deep}.{claims}.{signature}") == "BAD_TOKEN"
    assert await refused(accepted, f"{header}.{encoded(issuer.claims(sub='admin'))}.{signature}") == "BAD_TOKEN"
    for nonsense in ("..", "a.b.c", "é.é.é", f"{header}.{claims}", f"{header}.{encoded({'iss': ['x']})}.{signature}"):
        assert await refused(accepted, nonsense) in ("BAD_TOKEN", "UNKNOWN_ISSUER")
    await accepted.caller(good)


async def test_keys_that_are_rotated(accepted: Issuers, issuer: Issuer, clock: TestClock) -> None:
    await accepted.caller(issuer.token())
    issuer.keys = [public("new", rsa_key(1))]
    new = issuer.token(kid="new", key=rsa_key(1))
    clock.pass_seconds(31)
    await accepted.caller(new)
    clock.pass_seconds(61)  # what was accepted before is checked again
    assert await refused(accepted, issuer.token()) == "UNKNOWN_KEY"


async def test_unknown_keys_are_asked_for_seldom_and_at_once(
    accepted: Issuers, issuer: Issuer, clock: TestClock
) -> None:
    tokens = [issuer.token(kid=f"k{number}") for number in range(20)]
    results = await asyncio.gather(*map(accepted.caller, tokens), return_exceptions=True)
    assert {type(one) for one in results} == {TokenRefused}
    assert issuer.asked == [CONFIGURATION, "/jwks"]
    clock.pass_seconds(20)
    await refused(accepted, issuer.token(kid="x"))
    assert len(issuer.asked) == 2
    clock.pass_seconds(11)
    await refused(accepted, issuer.token(kid="x"))
    assert len(issuer.asked) == 4


@pytest.mark.parametrize(
    "broken",
    [
        {CONFIGURATION: 500},
        {CONFIGURATION: 302},
        {CONFIGURATION: b"[]"},
        {CONFIGURATION: b'{"issuer": "https://other", "jwks_uri": "https://other/"}'},
        {CONFIGURATION: b"\xff"},
        {"/jwks": 503},
        {"/jwks": b"{}"},
        {"/jwks": b'{"keys": [' + b" " * 300_000 + b"]}"},
    ],
)
async def test_an_issuer_that_is_away_makes_no_token_bad(
    broken: dict[str, bytes | int], accepted: Issuers, issuer: Issuer, clock: TestClock
) -> None:
    issuer.answers = broken
    with pytest.raises(IssuerUnreachable, match="cannot be read"):
        await accepted.caller(issuer.token())
    asked = len(issuer.asked)
    with pytest.raises(IssuerUnreachable):
        await accepted.caller(issuer.token())
    assert len(issuer.asked) == asked
    issuer.answers = {}
    clock.pass_seconds(6)
    await accepted.caller(issuer.token())


async def test_known_keys_outlive_an_outage_of_a_day(accepted: Issuers, issuer: Issuer, clock: TestClock) -> None:
    await accepted.caller(issuer.token())
    issuer.answers = {CONFIGURATION: 500}
    for hours, is_known in ((2, True), (23, False)):
        clock.pass_seconds(hours * 3600)
        now = clock.now // SECOND
        token = issuer.token(iat=now, nbf=now, exp=now + 300)
        if is_known:
            await accepted.caller(token)
            with pytest.raises(IssuerUnreachable):
                await accepted.caller(issuer.token(kid="new", iat=now, nbf=now, exp=now + 300))
        else:
            with pytest.raises(IssuerUnreachable):
                await accepted.caller(token)


@pytest.mark.filterwarnings("ignore:The RSA key")
async def test_keys_that_are_not_used(accepted: Issuers, issuer: Issuer) -> None:
    small = rsa_key(2, 1024)
    issuer.keys = [
        public("small", small),
        public("encrypts", rsa_key(), use="enc"),
        public("other", rsa_key(), alg="RS512"),
        {"kty": "oct", "k": "c2VjcmV0", "kid": "secret", "alg": "HS256"},
        public("good", rsa_key()),
    ]
    for kid in ("small", "encrypts", "other", "secret"):
        assert await refused(accepted, issuer.token(kid=kid, key=small if kid == "small" else None)) == "UNKNOWN_KEY"
    await accepted.caller(issuer.token(kid="good"))


async def test_keys_in_a_file(issuer: Issuer, tmp_path: Path, clock: TestClock) -> None:
    keys = tmp_path / "jwks.json"
    keys.write_text(json.dumps({"keys": issuer.keys}))
    accepted = accepting(issuer, tmp_path, clock, f'jwks_file = "{keys}"')
    await accepted.caller(issuer.token())
    assert issuer.asked == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('scope = "submit"', 'scope = "write"', "issuer rule.0.scope"),
        ('project = "search"', 'project = "Search"', "issuer rule.0.project"),
        ('claims = { repository = "acme/models", environment = "prod" }', "claims = {}", "issuer rule.0.claims"),
        ('audience = "mvprune"', "", "issuer audience"),
        ('audience = "mvprune"', 'audience = "mvprune"\nalgorithms = ["HS256"]', "issuer algorithms"),
        ("http://127.0.0.1", "http://issuer.example", "must be an https URL"),
        ("[[issuer]]", "[[issuers]]", "must have tables"),
        ("[[issuer]]", "[issuer", "is no TOML file"),
        ('audience = "mvprune"', 'audience = "a"\njwks_url = "https://a/"\njwks_file = "b"', "must have one of"),
    ],
)
def test_files_that_are_refused(old: str, new: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "issuers.toml"
    text = FILE.format(url="http://127.0.0.1:1", more="")
    assert old in text
    file.write_text(text.replace(old, new))
    with pytest.raises(BadIssuers, match=said) as caught:
        load_issuers(file)
    assert str(file) in str(caught.value)


def test_the_file_of_the_page_is_right(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "security.md").read_text()
    file = tmp_path / "issuers.toml"
    file.write_text(page.partition("```toml\n")[2].partition("```")[0])
    found = load_issuers(file)
    assert [issuer.host for issuer in found] == [
        "token.actions.githubusercontent.com",
        "gitlab.example",
        "kubernetes.default.svc.cluster.local",
    ]


def test_an_issuer_is_named_once_and_the_file_is_there(tmp_path: Path) -> None:
    file = tmp_path / "issuers.toml"
    with pytest.raises(BadIssuers, match="cannot be read"):
        load_issuers(file)
    file.write_text(FILE.format(url="https://a.example", more="") * 2)
    with pytest.raises(BadIssuers, match="each issuer once"):
        load_issuers(file)


async def test_remembered_tokens_are_bounded(
    accepted: Issuers, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuers, "_REMEMBERED", 2)
    for number in range(5):
        await accepted.caller(issuer.token(jti=f"{number}"))
    assert len(accepted._checked) == 2
