"""Issuers. `Issuers` is made of `AsyncIssuers`: see scripts/blocking_client.py."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mvprune.client.convert import same_fields
from mvprune.client.pages import listed
from mvprune.client.transport import Transport
from mvprune.common.exceptions import bad_field
from mvprune.common.suggestions import must_be_one_of
from mvprune.v1 import admin_pb2, issuer_pb2

_SCOPES = ("read", "submit", "admin")


@dataclass(frozen=True)
class IssuerRule:
    """Which tokens of an issuer are valid, and what for.

    Attributes:
        claims: that a token must have. Of a claim that is a list, one entry has to be equal.
        project: "-": an operator.
        scope: read, submit or admin.
    """

    claims: Mapping[str, str | bool | int]
    project: str
    scope: str


@dataclass(frozen=True)
class Issuer:
    """An issuer of OpenID Connect whose tokens the server accepts.

    Attributes:
        audience: that tokens must be made for.
        rules: the first one whose claims a token has decides.
        jwks_url: of its keys; "": its configuration says where they are.
        jwks: its keys themselves, for an issuer that the server does not reach.
        source: api, or file: that of the server, which calls do not change.
        problem: why its tokens are not accepted; "": they are.
    """

    id: str
    name: str
    url: str
    audience: str
    rules: tuple[IssuerRule, ...]
    jwks_url: str
    jwks: str
    source: str
    problem: str
    creator: str
    create_time: datetime | None
    update_time: datetime | None
    etag: str


class AsyncIssuers:
    """Manages the issuers of the server; see `AsyncClient.issuers`. Needs an operator's token of the scope admin."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def create(
        self,
        url: str,
        audience: str,
        rules: Sequence[IssuerRule],
        *,
        jwks_url: str = "",
        jwks: str = "",
        issuer_id: str = "",
    ) -> Issuer:
        """Accepts the tokens of another issuer.

        Args:
            url: https://…, as the iss of its tokens.
            audience: that tokens must be made for.
            rules: the first one whose claims a token has decides.
            jwks_url: of its keys; "": its configuration says where they are.
            jwks: its keys themselves.
            issuer_id: "": the server chooses one.
        """
        given = issuer_pb2.Issuer(url=url, audience=audience, rules=_messages(rules), jwks_url=jwks_url, jwks=jwks)
        request = issuer_pb2.CreateIssuerRequest(issuer_id=issuer_id, issuer=given)
        return _issuer(await self._transport.call(self._transport.issuers.CreateIssuer, request, repeatable=False))

    async def get(self, issuer_id: str) -> Issuer:
        """Returns one issuer."""
        request = issuer_pb2.GetIssuerRequest(name=f"issuers/{issuer_id}")
        return _issuer(await self._transport.call(self._transport.issuers.GetIssuer, request))

    async def list(self) -> AsyncGenerator[Issuer, None]:
        """Iterates over the issuers, by name: those of the API, and those of the file of the server that answers."""
        request = issuer_pb2.ListIssuersRequest()
        async for issuer in listed(self._transport, self._transport.issuers.ListIssuers, request, "issuers"):
            yield _issuer(issuer)

    async def update(
        self,
        issuer_id: str,
        *,
        audience: str | None = None,
        rules: Sequence[IssuerRule] | None = None,
        jwks_url: str | None = None,
        jwks: str | None = None,
        etag: str = "",
    ) -> Issuer:
        """Changes what is given; `rules` replaces all. With `etag`, raises Conflict if the issuer has changed."""
        request = issuer_pb2.UpdateIssuerRequest(name=f"issuers/{issuer_id}", etag=etag)
        texts = {"audience": audience, "jwks_url": jwks_url, "jwks": jwks}
        values: dict[str, Any] = {name: text for name, text in texts.items() if text is not None}
        if rules is not None:
            values["rules"] = _messages(rules)
        request.issuer.MergeFrom(issuer_pb2.Issuer(**values))
        request.update_mask.paths.extend(values)
        answer = await self._transport.call(self._transport.issuers.UpdateIssuer, request, repeatable=not etag)
        return _issuer(answer)

    async def delete(self, issuer_id: str) -> None:
        """Deletes an issuer: its tokens are not accepted any more."""
        request = issuer_pb2.DeleteIssuerRequest(name=f"issuers/{issuer_id}")
        await self._transport.call(self._transport.issuers.DeleteIssuer, request, repeatable=False)


def _messages(rules: Sequence[IssuerRule]) -> list[issuer_pb2.Issuer.Rule]:
    messages = []
    for at, rule in enumerate(rules):
        if rule.scope not in _SCOPES:
            raise bad_field(f"rules[{at}].scope", must_be_one_of(_SCOPES, rule.scope))
        message = issuer_pb2.Issuer.Rule(project=rule.project, scope=admin_pb2.Token.Scope.Value(rule.scope.upper()))  # type: ignore[arg-type]
        for name, value in rule.claims.items():
            fields: Any = {"name": name, _kind(value): value}
            message.claims.append(issuer_pb2.Issuer.Claim(**fields))
        messages.append(message)
    return messages


def _kind(value: object) -> str:
    return "flag" if isinstance(value, bool) else "number" if isinstance(value, int) else "text"


def _issuer(message: issuer_pb2.Issuer) -> Issuer:
    return same_fields(
        Issuer,
        message,
        id=message.name.rpartition("/")[2],
        rules=tuple(_rule(rule) for rule in message.rules),
        source=issuer_pb2.Issuer.Source.Name(message.source).lower(),
    )


def _rule(message: issuer_pb2.Issuer.Rule) -> IssuerRule:
    claims = {claim.name: getattr(claim, claim.WhichOneof("value") or "text") for claim in message.claims}
    return IssuerRule(claims, message.project, admin_pb2.Token.Scope.Name(message.scope).lower())
