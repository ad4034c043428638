"""Issuers of tokens that the server accepts beside its own: OpenID Connect, as CI systems and Kubernetes speak it.

A token is a JWT. Its signature is checked with the issuer's public keys (RS256 and ES256, and nothing else), then its
issuer, audience and times, then its claims: the first rule whose claims it has says for which project and with which
rights it is valid.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import tomllib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import jwt
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from mvprune.common import openid
from mvprune.common.files import decode_text
from mvprune.common.identifiers import ID_PATTERN, ID_RULE
from mvprune.spec.problem import must_be
from mvprune_service.clock import SECOND, Clock, system_clock

log = logging.getLogger(__name__)

_LEEWAY_SECONDS = 30  # clocks differ
_FRESH_US = 3600 * SECOND  # after which keys are read again
_KEPT_US = 24 * 3600 * SECOND  # for which keys are good while the issuer does not answer
_PAUSE_US = 30 * SECOND  # between reads because of unknown keys: anyone can send such tokens
_FAILED_PAUSE_US = SECOND  # after a read that failed: clients try again for seconds
_FOLLOWED_US = 5 * SECOND  # for which the issuers of the API are not read again: another server may change them
_CHECKED_US = 60 * SECOND  # for which a token that was checked is not checked again
_REMEMBERED = 10_000  # tokens
_KEYS = 100
_SMALLEST_RSA = 2048
_ALGORITHMS = {"RSA": "RS256", "EC": "ES256"}
_SUBJECT_CHARACTERS = 255


Read = Callable[[], Awaitable[Mapping[str, Mapping[str, Any]]]]


class BadIssuers(Exception):
    """The file of issuers cannot be used; the text says why."""


class TokenRefused(Exception):
    """A token is not accepted.

    Attributes:
        reason: in UPPER_SNAKE_CASE.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class IssuerUnreachable(Exception):
    """The keys of an issuer cannot be read, so it is not known whether a token is good."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Rule(_Model):
    """Who may do what."""

    claims: Annotated[dict[Annotated[str, Field(min_length=1)], str | bool | int], Field(min_length=1)]
    project: str
    scope: Literal["read", "submit", "admin"]

    @field_validator("project")
    @classmethod
    def _is_project(cls, value: str) -> str:
        if value != "-" and not ID_PATTERN.fullmatch(value):
            raise ValueError(must_be(f"a project ({ID_RULE}), or - for all", value))
        return value

    def matches(self, claims: Mapping[str, Any]) -> bool:
        """Whether a token has all claims of the rule. Of a claim that is a list, one entry has to be equal."""
        return all(_has(claims.get(name), wanted) for name, wanted in self.claims.items())


def _has(given: Any, wanted: str | bool | int) -> bool:
    found = given if isinstance(given, list) else [given]
    return any(type(one) is type(wanted) and one == wanted for one in found)


class Issuer(_Model):
    """An issuer, and what its tokens allow."""

    url: str
    audience: Annotated[str, Field(min_length=1)]
    rule: Annotated[tuple[Rule, ...], Field(min_length=1, max_length=100)]
    jwks_url: str = ""
    jwks_file: Path | None = None
    jwks: str = ""
    ca_file: Path | None = None

    @field_validator("url", "jwks_url")
    @classmethod
    def _is_safe(cls, value: str) -> str:
        if value:
            openid.check_url(value)
        return value

    @field_validator("jwks")
    @classmethod
    def _has_keys(cls, value: str) -> str:
        if value and not _parse(value.encode()):
            raise ValueError(f"must have a public key for RS256 of {_SMALLEST_RSA} bits or more, or for ES256")
        return value

    @model_validator(mode="after")
    def _has_one_source(self) -> Issuer:
        given = [name for name in ("jwks_url", "jwks_file", "jwks") if getattr(self, name)]
        if len(given) > 1:
            raise ValueError(f"must have one of jwks_url, jwks_file and jwks, got {' and '.join(given)}")
        return self

    @property
    def host(self) -> str:
        """What its callers are named after."""
        return self.url.partition("://")[2]


class Caller(NamedTuple):
    """Whose token it is, and what it allows."""

    id: str
    project: str
    scope: str
    issued_us: int
    expire_us: int


class Problem(NamedTuple):
    """What is wrong with an issuer: where, and why."""

    path: tuple[str | int, ...]
    text: str


def problems(error: ValidationError) -> list[Problem]:
    """All that is wrong, one or more."""
    return [Problem(one["loc"], one["msg"].removeprefix("Value error, ")) for one in error.errors()]


def load_issuers(file: Path) -> tuple[Issuer, ...]:
    """The issuers in a TOML file: tables [[issuer]] with tables [[issuer.rule]]. Raises BadIssuers."""
    try:
        found = tomllib.loads(decode_text(file.read_bytes()))
        unknown = set(found) - {"issuer"}
        if unknown or not found.get("issuer"):
            raise BadIssuers(f"{file} must have tables [[issuer]], got {', '.join(sorted(unknown)) or 'none'}")
        issuers = tuple(Issuer.model_validate(one) for one in found["issuer"])
    except OSError as error:
        raise BadIssuers(f"{file} cannot be read ({error.strerror})") from None
    except ValidationError as error:
        first = problems(error)[0]
        raise BadIssuers(f"{file}: issuer {'.'.join(map(str, first.path))}: {first.text}") from None
    except (ValueError, TypeError) as error:
        raise BadIssuers(f"{file} is no TOML file of issuers ({error})") from None
    urls = [issuer.url for issuer in issuers]
    if len(set(urls)) < len(urls):
        raise BadIssuers(f"{file} must name each issuer once; write several [[issuer.rule]] for one")
    return issuers


async def _nothing() -> Mapping[str, Mapping[str, Any]]:
    return {}


class Issuers:
    """Checks tokens of several issuers.

    Args:
        issuers: that do not change while the server runs.
        read: gives what is known of others now, by their names, as a file would have it. One with the URL of the
            former is not used.
    """

    def __init__(self, issuers: Sequence[Issuer] = (), clock: Clock = system_clock, read: Read = _nothing) -> None:
        self.fixed = tuple(issuers)
        self._clock = clock
        self._read = read
        self._read_us: int | None = None  # when that was done
        self._reading = asyncio.Lock()
        self._seen: Mapping[str, Mapping[str, Any]] = {}
        self._by_url = {issuer.url: (issuer, _Keys(issuer, clock)) for issuer in issuers}
        self._checked: OrderedDict[bytes, tuple[Caller, int]] = OrderedDict()  # by digest: until when it is known

    def forget(self) -> None:
        """Reads the others again before the next token: one has changed."""
        self._read_us = None

    async def _follow(self, now: int) -> None:
        """Accepts tokens of the issuers that there are now."""
        async with self._reading:
            if self._read_us is not None and 0 <= now - self._read_us < _FOLLOWED_US:
                return
            found = await self._read()
            self._read_us = now
            if found == self._seen:
                return
            self._seen = found
            fixed, known = {issuer.url for issuer in self.fixed}, self._by_url
            self._by_url = {url: known[url] for url in fixed}
            for issuer in _valid(found):
                if issuer.url not in fixed:
                    same = known.get(issuer.url)
                    is_same = same is not None and same[0] == issuer
                    self._by_url[issuer.url] = same if same and is_same else (issuer, _Keys(issuer, self._clock))
            self._checked.clear()

    async def caller(self, token: str) -> Caller:
        """Whose token it is. Raises TokenRefused, IssuerUnreachable, and what `read` raises."""
        digest = hashlib.sha256(token.encode()).digest()
        now = self._clock()
        if self._read_us is None or not 0 <= now - self._read_us < _FOLLOWED_US:
            await self._follow(now)
        known, until = self._checked.get(digest, (None, 0))
        if known is not None and now < min(until, known.expire_us):
            return known
        self._checked.pop(digest, None)
        caller = await self._check(token, now)
        self._checked[digest] = caller, now + _CHECKED_US
        if len(self._checked) > _REMEMBERED:
            self._checked.popitem(last=False)
        return caller

    async def _check(self, token: str, now: int) -> Caller:
        try:
            header = jwt.get_unverified_header(token)
            said = jwt.decode(token, options={"verify_signature": False})
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise TokenRefused("BAD_TOKEN", "the token is no JWT") from None
        found = self._by_url.get(said.get("iss", "")) if isinstance(said.get("iss"), str) else None
        if found is None:
            raise TokenRefused("UNKNOWN_ISSUER", "the token is of an issuer that this server does not accept")
        issuer, keys = found
        if header.get("alg") not in _ALGORITHMS.values() or "crit" in header:
            raise TokenRefused("BAD_TOKEN", f"the token must be signed with {' or '.join(_ALGORITHMS.values())}")
        if not isinstance(header.get("kid"), str):
            raise TokenRefused("BAD_TOKEN", "the token must name its key")
        key = await keys.get(header["kid"])
        return _accepted(issuer, _verified(issuer, token, key, now), now)


def _valid(found: Mapping[str, Mapping[str, Any]]) -> Iterator[Issuer]:
    for name, settings in found.items():
        try:
            yield Issuer.model_validate(settings)
        except ValidationError as error:  # of an older version; others are accepted all the same
            log.error("the tokens of %s are not accepted: %s", name, problems(error)[0].text)


def _verified(issuer: Issuer, token: str, key: jwt.PyJWK, now: int) -> dict[str, Any]:
    """The claims of a token. Times are compared with this server's clock. Raises TokenRefused."""
    try:
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=[_ALGORITHMS[str(key.key_type)]],
            audience=issuer.audience,
            issuer=issuer.url,
            options={
                "require": ["exp", "iat", "iss", "aud", "sub"],
                "verify_exp": False,
                "verify_iat": False,
                "verify_nbf": False,
            },
        )
    except jwt.InvalidAudienceError:
        message = f"the token must be for the audience {issuer.audience}"
        raise TokenRefused("WRONG_AUDIENCE", message) from None
    except jwt.MissingRequiredClaimError as error:
        raise TokenRefused("BAD_TOKEN", f"the token must have the claim {error.claim}") from None
    except jwt.PyJWTError:
        raise TokenRefused("BAD_TOKEN", "the signature of the token is not that of its issuer") from None
    times = {name: claims[name] for name in ("exp", "iat", "nbf") if name in claims}
    if any(type(one) not in (int, float) or not 0 <= one < 1e11 for one in times.values()):
        raise TokenRefused("BAD_TOKEN", "the times of the token must be seconds since 1970")
    seconds = now / SECOND
    if times["exp"] + _LEEWAY_SECONDS <= seconds:
        raise TokenRefused("TOKEN_EXPIRED", "the token has expired")
    if max(times["iat"], times.get("nbf", 0)) - _LEEWAY_SECONDS > seconds:
        raise TokenRefused("TOKEN_NOT_YET_VALID", "the token is not valid yet; the clocks of the machines may differ")
    return claims


def _accepted(issuer: Issuer, claims: dict[str, Any], now: int) -> Caller:
    """What a genuine token allows. Raises TokenRefused."""
    subject = claims["sub"]
    if not isinstance(subject, str) or not 0 < len(subject) <= _SUBJECT_CHARACTERS or not subject.isprintable():
        raise TokenRefused("BAD_TOKEN", f"the token must have a subject of 1 to {_SUBJECT_CHARACTERS} characters")
    rule = next((rule for rule in issuer.rule if rule.matches(claims)), None)
    if rule is None:
        names = sorted({name for rule in issuer.rule for name in rule.claims})
        message = f"no rule of the server allows the token of {subject}; rules are about {', '.join(names)}"
        raise TokenRefused("CLAIMS_NOT_ALLOWED", message)
    caller = f"{issuer.host}/{subject}"
    log.info("accepted a token of %s, jti %.100a, for the project %s", caller, claims.get("jti"), rule.project)
    expire_us = int((claims["exp"] + _LEEWAY_SECONDS) * SECOND)
    return Caller(caller, rule.project, rule.scope, int(claims["iat"] * SECOND), expire_us)


class _Keys:
    """The public keys of an issuer."""

    def __init__(self, issuer: Issuer, clock: Clock) -> None:
        self._issuer = issuer
        self._clock = clock
        self._keys: dict[str, jwt.PyJWK] = {}
        self._read_us = -_KEPT_US  # when they were read
        self._tried_us = -_KEPT_US  # when that was tried
        self._failure = ""  # of the newest try
        self._reading: asyncio.Task[None] | None = None

    async def get(self, kid: str) -> jwt.PyJWK:
        """A key. Raises TokenRefused, IssuerUnreachable."""
        now = self._clock()
        age = now - self._read_us
        pause = _FAILED_PAUSE_US if self._failure else _PAUSE_US
        may_read = now - self._tried_us >= pause or self._reading is not None
        if (age > _FRESH_US or kid not in self._keys) and may_read:
            await self._read()
        if self._clock() - self._read_us > _KEPT_US or (kid not in self._keys and self._failure):
            message = f"the keys of {self._issuer.url} cannot be read ({self._failure}); try again later"
            raise IssuerUnreachable(message)
        if kid not in self._keys:
            raise TokenRefused("UNKNOWN_KEY", f"the token is signed with a key that {self._issuer.url} does not have")
        return self._keys[kid]

    async def _read(self) -> None:
        """Reads the keys again; callers at the same time share it."""
        if self._reading is None:
            self._tried_us = self._clock()
            self._reading = asyncio.create_task(self._read_once())
        await asyncio.shield(self._reading)

    async def _read_once(self) -> None:
        try:
            self._keys = _parse(await asyncio.to_thread(self._fetch))
            self._read_us, self._failure = self._clock(), ""
        except (OSError, ValueError, jwt.PyJWTError) as error:
            self._failure = openid.why(error)
            log.warning("the keys of the issuer %s cannot be read: %s", self._issuer.url, self._failure)
        finally:
            self._reading = None

    def _fetch(self) -> bytes:
        issuer = self._issuer
        if issuer.jwks:
            return issuer.jwks.encode()
        if issuer.jwks_file is not None:
            return issuer.jwks_file.read_bytes()
        url = issuer.jwks_url or openid.endpoint(openid.configuration(issuer.url, issuer.ca_file), "jwks_uri")
        return openid.fetch(url, ca_file=issuer.ca_file)


def _parse(data: bytes) -> dict[str, jwt.PyJWK]:
    """The keys of a JWKS that can be used, by their ids. Raises ValueError."""
    said = json.loads(data)
    listed = said.get("keys") if isinstance(said, dict) else None
    if not isinstance(listed, list) or not listed:
        raise ValueError("it has no list of keys")
    keys = {}
    for one in listed[:_KEYS]:
        if not isinstance(one, dict) or one.get("use", "sig") != "sig" or not isinstance(one.get("kid"), str):
            continue
        algorithm = _ALGORITHMS.get(str(one.get("kty")), "")
        if one.get("alg", algorithm) != algorithm or (one["kty"] == "EC" and one.get("crv") != "P-256"):
            continue
        key = jwt.PyJWK.from_dict(one, algorithm)
        if algorithm == "ES256" or key.key.key_size >= _SMALLEST_RSA:
            keys[one["kid"]] = key
    return keys
