"""IssuerService: issuers of OpenID Connect whose tokens all servers accept."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import grpc
from grpc.aio import ServicerContext as Context
from pydantic import ValidationError
from sqlalchemy.exc import IntegrityError

from mvprune.common.identifiers import ID_PATTERN, ID_RULE
from mvprune.v1 import admin_pb2, issuer_pb2, issuer_pb2_grpc
from mvprune_service.api.access.errors import (
    ApiError,
    Violation,
    bad,
    etag_mismatch,
    finding,
    invalid,
    precondition,
)
from mvprune_service.api.access.principal import current_principal
from mvprune_service.api.messages import mapping
from mvprune_service.api.messages.names import existing, parsed
from mvprune_service.api.messages.pagination import make_page, page_size, read_token
from mvprune_service.db import issuers
from mvprune_service.db.engine.database import Database
from mvprune_service.db.lifecycle import EtagMismatch
from mvprune_service.db.tables.issuers import IssuerRow
from mvprune_service.ids import IssuerName, new_issuer_id, parse_issuer
from mvprune_service.issuers import Issuer, Issuers, problems

_CHANGEABLE = ("audience", "rules", "jwks_url", "jwks")
_OF_FILE = "file-"  # begins the ids of issuers of a file


async def issuer_settings(db: Database) -> Mapping[str, Mapping[str, Any]]:
    """What the database has of issuers, by their names."""
    return {str(row.name): row.settings for row in await db.read(issuers.all_issuers)}


class IssuerServicer(issuer_pb2_grpc.IssuerServiceServicer):
    """Manages the issuers of the database; those of `accepted` that are fixed can only be read."""

    def __init__(self, db: Database, accepted: Issuers) -> None:
        self._db = db
        self._accepted = accepted
        self._fixed = {str(_fixed_name(one)): _of_file(one) for one in accepted.fixed}
        self._fixed_urls = {one.url: name for name, one in self._fixed.items()}

    async def CreateIssuer(self, request: issuer_pb2.CreateIssuerRequest, context: Context) -> issuer_pb2.Issuer:
        given = request.issuer_id
        if given and (not ID_PATTERN.fullmatch(given) or given.startswith(_OF_FILE)):
            raise invalid(bad("issuer_id", given, f"{ID_RULE}, and not beginning with {_OF_FILE}"))
        name = IssuerName(given or new_issuer_id())
        settings = _settings(request.issuer)
        if (fixed := self._fixed_urls.get(settings["url"])) is not None:
            raise _exists(f"{fixed} of the server's file has the url {settings['url']} already; change the file")
        try:
            row = await self._db.write(issuers.create, name, settings, creator=current_principal().id)
        except issuers.IssuerExists as error:
            raise _exists(str(error)) from None
        except IntegrityError:
            raise _exists(f"{name}, or an issuer with this url, is being created by someone else") from None
        except issuers.TooManyIssuers as error:
            message = f"there are {error.limit} issuers, which is the most; delete one"
            raise ApiError(grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED", message) from None
        self._accepted.forget()
        return self._shown(row)

    async def GetIssuer(self, request: issuer_pb2.GetIssuerRequest, context: Context) -> issuer_pb2.Issuer:
        if request.name in self._fixed:
            return self._fixed[request.name]
        return self._shown(await self._row(_parse(request.name)))

    async def ListIssuers(
        self, request: issuer_pb2.ListIssuersRequest, context: Context
    ) -> issuer_pb2.ListIssuersResponse:
        size, key = page_size(request.page_size), read_token(request.page_token, str)
        rows = await self._db.read(issuers.all_issuers)
        everyone = {**self._fixed, **{str(row.name): self._shown(row) for row in rows}}
        after = [name for name in sorted(everyone) if not key or name > key[0]]
        listed, token = make_page(after, size, everyone.__getitem__, lambda name: (name,))
        return issuer_pb2.ListIssuersResponse(issuers=listed, next_page_token=token)

    async def UpdateIssuer(self, request: issuer_pb2.UpdateIssuerRequest, context: Context) -> issuer_pb2.Issuer:
        name, fields = self._changeable(request.name), tuple(request.update_mask.paths)
        if not fields or set(fields) - set(_CHANGEABLE):
            raise invalid(bad("update_mask", ", ".join(fields) or "none", f"some of {', '.join(_CHANGEABLE)}"))
        row = await self._row(name)
        wanted = self._shown(row)
        for field in fields:
            wanted.ClearField(field)
            given = getattr(request.issuer, field)
            wanted.rules.extend(given) if field == "rules" else setattr(wanted, field, given)
        if request.etag and request.etag != str(row.version):
            raise etag_mismatch(name)
        try:
            row = await self._db.write(finding(name, issuers.change), name, _settings(wanted), version=row.version)
        except EtagMismatch:
            raise etag_mismatch(name) from None
        self._accepted.forget()
        return self._shown(row)

    async def DeleteIssuer(
        self, request: issuer_pb2.DeleteIssuerRequest, context: Context
    ) -> issuer_pb2.DeleteIssuerResponse:
        name = self._changeable(request.name)
        try:
            await self._db.write(finding(name, issuers.remove), name, etag=request.etag)
        except EtagMismatch:
            raise etag_mismatch(name) from None
        self._accepted.forget()
        return issuer_pb2.DeleteIssuerResponse()

    async def _row(self, name: IssuerName) -> IssuerRow:
        return existing(await self._db.read(issuers.issuer_named, name), name)

    def _changeable(self, given: str) -> IssuerName:
        if given in self._fixed:
            message = f"{given} is of the server's --issuers-file; change the file and start the server again"
            raise precondition("OF_FILE", message)
        return _parse(given)

    def _shown(self, row: IssuerRow) -> issuer_pb2.Issuer:
        shown = _message(row.settings)
        shown.name, shown.source = str(row.name), issuer_pb2.Issuer.API
        shown.creator, shown.etag = row.creator, str(row.version)
        shown.create_time.CopyFrom(mapping.timestamp(row.create_us))
        shown.update_time.CopyFrom(mapping.timestamp(row.update_us))
        if (fixed := self._fixed_urls.get(row.url)) is not None:
            shown.problem = f"{fixed} of the server's file has the same url, and is used instead"
        return shown


def _settings(given: issuer_pb2.Issuer) -> dict[str, Any]:
    """What a file would say of an issuer. Raises ApiError with all that is wrong."""
    wrong, rules = [], []
    for at, rule in enumerate(given.rules):
        claims: dict[str, Any] = {}
        for index, claim in enumerate(rule.claims):
            kind, path = claim.WhichOneof("value"), f"issuer.rules[{at}].claims[{index}]"
            if kind is None:
                wrong.append(Violation(path, "must have a text, a flag or a number, got none"))
            elif claim.name in claims:
                wrong.append(bad(path, claim.name, "a claim that no other one names"))
            claims[claim.name] = getattr(claim, kind) if kind else ""
        scope = admin_pb2.Token.Scope.Name(rule.scope).lower() if rule.scope else ""
        if not scope:
            wrong.append(Violation(f"issuer.rules[{at}].scope", "must be READ, SUBMIT or ADMIN, got none"))
        rules.append({"claims": claims, "project": rule.project, "scope": scope or "read"})
    settings = {field: getattr(given, field) for field in ("url", "audience", "jwks_url", "jwks")}
    settings["rule"] = rules
    try:
        Issuer.model_validate(settings)
    except ValidationError as error:
        wrong += [Violation(_path(one.path), one.text) for one in problems(error)]
    if wrong:
        raise invalid(*wrong)
    return settings


def _path(parts: tuple[str | int, ...]) -> str:
    """issuer.rules[0].project"""
    path = "issuer"
    for part in parts:
        path += f"[{part}]" if isinstance(part, int) else ".rules" if part == "rule" else f".{part}"
    return path


def _message(settings: Mapping[str, Any]) -> issuer_pb2.Issuer:
    texts = {field: settings[field] for field in ("url", "audience", "jwks_url", "jwks")}
    return issuer_pb2.Issuer(**texts, rules=map(_rule, settings["rule"]))


def _rule(rule: Mapping[str, Any]) -> issuer_pb2.Issuer.Rule:
    return issuer_pb2.Issuer.Rule(claims=_claims(rule["claims"]), project=rule["project"], scope=rule["scope"].upper())


def _claims(claims: Mapping[str, Any]) -> Iterator[issuer_pb2.Issuer.Claim]:
    for name, value in claims.items():
        kind = "flag" if isinstance(value, bool) else "number" if isinstance(value, int) else "text"
        fields: Any = {"name": name, kind: value}
        yield issuer_pb2.Issuer.Claim(**fields)


def _fixed_name(issuer: Issuer) -> IssuerName:
    return IssuerName(_OF_FILE + hashlib.sha256(issuer.url.encode()).hexdigest()[:8])


def _of_file(issuer: Issuer) -> issuer_pb2.Issuer:
    shown = _message(issuer.model_dump(mode="json"))
    shown.name, shown.source = str(_fixed_name(issuer)), issuer_pb2.Issuer.FILE
    return shown


def _parse(given: str) -> IssuerName:
    return parsed(parse_issuer(given), given, "issuers/ISSUER")


def _exists(message: str) -> ApiError:
    return ApiError(grpc.StatusCode.ALREADY_EXISTS, "ALREADY_EXISTS", message)
