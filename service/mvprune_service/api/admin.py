"""AdminService: tokens, quotas, the audit, the state of the server."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from grpc.aio import ServicerContext as Context
from sqlalchemy.exc import IntegrityError

from mvprune.common.identifiers import ID_RULE
from mvprune.v1 import admin_pb2, admin_pb2_grpc
from mvprune_service import ids
from mvprune_service.api.access.auth import Authenticator, digest, new_secret
from mvprune_service.api.access.errors import ApiError, Violation, bad, finding, invalid, not_found
from mvprune_service.api.access.principal import EVERY_PROJECT, Scope, current_principal
from mvprune_service.api.messages import mapping
from mvprune_service.api.messages.lists import AUDIT_LIST, TOKEN_LIST
from mvprune_service.api.messages.names import parse_project, parsed
from mvprune_service.api.messages.pagination import make_page, page_size, read_token
from mvprune_service.clock import SECOND, Clock, system_clock
from mvprune_service.db import audit, projects, shown, tokens
from mvprune_service.db.engine.database import Database
from mvprune_service.db.tables.audit import AuditRow
from mvprune_service.db.tables.server import TokenRow

ServerStatus = Callable[[], Awaitable[admin_pb2.ServerStatus]]

_SHORTEST_TTL, _DAY = 60, 86_400  # seconds
_LONGEST_TTL_DAYS, _SHARE_DAYS, _LONGEST_SHARE_DAYS = 3650, 7, 90
_MOST = {"max_queued_jobs": 1_000_000, "max_running_gpus": 100_000, "max_upload_bytes": 1 << 50}


class AdminServicer(admin_pb2_grpc.AdminServiceServicer):
    """Tokens, quotas, and the status of the server, which `status` returns."""

    def __init__(
        self, db: Database, authenticator: Authenticator, status: ServerStatus, clock: Clock = system_clock
    ) -> None:
        self._db = db
        self._authenticator = authenticator
        self._status = status
        self._clock = clock

    async def CreateToken(
        self, request: admin_pb2.CreateTokenRequest, context: Context
    ) -> admin_pb2.CreateTokenResponse:
        name = ids.TokenName(_owner(request.parent), ids.new_token_id())
        if request.token.scope == admin_pb2.Token.SCOPE_UNSPECIFIED:
            raise invalid(Violation("token.scope", "must be READ, SUBMIT or ADMIN, got none"))
        expire_us = self._expire_us(request.ttl, _LONGEST_TTL_DAYS) if request.HasField("ttl") else None
        return await self._new_token(name, Scope(request.token.scope), request.token.display_name, expire_us)

    async def ListTokens(self, request: admin_pb2.ListTokensRequest, context: Context) -> admin_pb2.ListTokensResponse:
        project, asked = _owner(request.parent), TOKEN_LIST.asked(request)
        rows = await self._db.read(tokens.page, project, asked.page)
        listed, token = asked.answer(rows, _token)
        return admin_pb2.ListTokensResponse(tokens=listed, next_page_token=token)

    async def RevokeToken(self, request: admin_pb2.RevokeTokenRequest, context: Context) -> admin_pb2.Token:
        name = parsed(ids.parse_token(request.name), request.name, "projects/PROJECT/tokens/TOKEN")
        row = await self._db.write(finding(name, tokens.revoke), name)
        self._authenticator.forget()
        return _token(row)

    async def CreateShare(
        self, request: admin_pb2.CreateShareRequest, context: Context
    ) -> admin_pb2.CreateTokenResponse:
        rule = "projects/PROJECT/jobs/JOB or projects/PROJECT/sweeps/SWEEP"
        shared = ids.parse_job(request.name) or parsed(ids.parse_sweep(request.name), request.name, rule)
        ttl = request.ttl if request.HasField("ttl") else Duration(seconds=_SHARE_DAYS * _DAY)
        expire_us = self._expire_us(ttl, _LONGEST_SHARE_DAYS)
        if not await self._db.read(shown.is_there, shared):
            raise not_found(request.name)
        name = ids.TokenName(shared.project, ids.new_token_id())
        return await self._new_token(name, Scope.READ, request.display_name, expire_us, request.name)

    async def GetCaller(self, request: admin_pb2.GetCallerRequest, context: Context) -> admin_pb2.Caller:
        caller = current_principal()
        return admin_pb2.Caller(
            id=caller.id,
            project=caller.project,
            scope=caller.scope.name,
            expire_time=None if caller.expire_us is None else mapping.timestamp(caller.expire_us),
            resource=caller.resource,
        )

    async def GetProject(self, request: admin_pb2.GetProjectRequest, context: Context) -> admin_pb2.Project:
        found, contents = await self._db.read(projects.described, parse_project(request.name))
        result = _project(found)
        result.jobs.update(contents.jobs)
        result.sweeps.update(contents.sweeps)
        result.uploads.update(contents.uploads)
        result.artifacts = contents.artifacts
        return result

    async def ListProjects(
        self, request: admin_pb2.ListProjectsRequest, context: Context
    ) -> admin_pb2.ListProjectsResponse:
        size = page_size(request.page_size)
        key: Any = read_token(request.page_token, str)
        found = await self._db.read(projects.page, key[0] if key else "", size + 1)
        described, token = make_page(found, size, _project, lambda one: (one.project,))
        return admin_pb2.ListProjectsResponse(projects=described, next_page_token=token)

    async def UpdateProject(self, request: admin_pb2.UpdateProjectRequest, context: Context) -> admin_pb2.Project:
        asked = request.project
        project = parse_project(asked.name, "project.name")
        wanted: dict[str, Any] = {field: getattr(asked, field) if asked.HasField(field) else None for field in _MOST}
        for field, value in wanted.items():
            if value is not None and not 0 <= value <= _MOST[field]:
                raise invalid(bad(f"project.{field}", value, f"0 to {_MOST[field]:,}"))
        try:
            return _project(await self._db.write(projects.set_quotas, project, **wanted))
        except IntegrityError:
            message = f"the quotas of {asked.name} are being changed by someone else; try again"
            raise ApiError(grpc.StatusCode.ABORTED, "CONFLICT", message) from None

    async def ListAuditEntries(
        self, request: admin_pb2.ListAuditEntriesRequest, context: Context
    ) -> admin_pb2.ListAuditEntriesResponse:
        project, asked = _owner(request.parent), AUDIT_LIST.asked(request)
        rows = await self._db.read(audit.page, None if project == EVERY_PROJECT else project, asked.page)
        listed, token = asked.answer(rows, _entry)
        return admin_pb2.ListAuditEntriesResponse(entries=listed, next_page_token=token)

    async def GetServerStatus(
        self, request: admin_pb2.GetServerStatusRequest, context: Context
    ) -> admin_pb2.ServerStatus:
        return await self._status()

    async def _new_token(
        self, name: ids.TokenName, scope: Scope, display_name: str, expire_us: int | None, resource: str | None = None
    ) -> admin_pb2.CreateTokenResponse:
        secret = new_secret(name.token)
        row = await self._db.write(
            tokens.create,
            name,
            secret_sha256=digest(secret),
            scope=scope.name,
            display_name=display_name,
            creator=current_principal().id,
            expire_us=expire_us,
            resource=resource,
        )
        return admin_pb2.CreateTokenResponse(token=_token(row), secret=secret)

    def _expire_us(self, ttl: Duration, most_days: int) -> int:
        seconds = ttl.seconds + ttl.nanos / 1e9
        if not _SHORTEST_TTL <= seconds <= most_days * _DAY:
            raise invalid(Violation("ttl", f"must be 1 min to {most_days} days, got {seconds:g} s"))
        return self._clock() + math.ceil(seconds * SECOND)


def _owner(parent: str) -> str:
    """The project, "-" for operators' tokens and the audit of all projects. Raises ApiError."""
    project = EVERY_PROJECT if parent == f"projects/{EVERY_PROJECT}" else ids.parse_project(parent)
    return parsed(project, parent, f"projects/PROJECT ({ID_RULE}), or projects/- as an operator", "parent")


def _token(row: TokenRow) -> admin_pb2.Token:
    token = admin_pb2.Token(
        name=str(row.name),
        display_name=row.display_name,
        scope=row.scope,
        create_time=mapping.timestamp(row.create_us),
        creator=row.creator,
        resource=row.resource or "",
    )
    for field in ("expire", "revoke", "last_use"):
        time_us = getattr(row, f"{field}_us")
        if time_us is not None:
            getattr(token, f"{field}_time").CopyFrom(mapping.timestamp(time_us))
    return token


def _entry(row: AuditRow) -> admin_pb2.AuditEntry:
    return admin_pb2.AuditEntry(
        name=f"projects/{row.project}/auditEntries/{row.uid}",
        create_time=mapping.timestamp(row.create_us),
        principal=row.principal,
        method=row.method,
        resource=row.resource,
        code=row.code,
        address=row.address,
        request_id=row.request_id,
    )


def _project(found: projects.Project) -> admin_pb2.Project:
    return admin_pb2.Project(
        name=f"projects/{found.project}",
        max_queued_jobs=found.max_queued_jobs,
        max_running_gpus=found.max_running_gpus,
        max_upload_bytes=found.max_upload_bytes,
        queued_jobs=found.queued_jobs,
        running_jobs=found.running_jobs,
        running_gpus=found.running_gpus,
        upload_bytes=found.upload_bytes,
    )
