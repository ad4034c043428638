"""Tokens, projects and the state of the server. `Admin` is made of `AsyncAdmin`: see scripts/blocking_client.py."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from mvprune.client import server
from mvprune.client.convert import same_fields, time_of
from mvprune.client.pages import listed
from mvprune.client.server import ServerStatus
from mvprune.client.transport import Transport
from mvprune.common.exceptions import bad_field
from mvprune.v1 import admin_pb2


@dataclass(frozen=True)
class Token:
    """An API token, without its secret. Scopes: read, submit, admin; each includes those before it."""

    id: str
    name: str
    project: str  # "-": an operator's token, valid for all
    display_name: str
    scope: str
    creator: str
    create_time: datetime | None
    expire_time: datetime | None  # None: never
    revoke_time: datetime | None
    last_use_time: datetime | None  # to the minute
    resource: str  # the job or sweep that it shows; "": all of the project


@dataclass(frozen=True)
class NewToken(Token):
    """A new token with its secret, which cannot be read again."""

    secret: str = field(repr=False)


@dataclass(frozen=True)
class Caller:
    """Who calls, for the server."""

    id: str  # of the API token; "local" if the server asks for none
    project: str  # that it is valid for; "-": all
    scope: str
    expire_time: datetime | None  # None: never
    resource: str  # the only job or sweep that it may see; "": all of the project


@dataclass(frozen=True)
class Project:
    """A project; a quota of None is the server's default."""

    id: str
    name: str
    max_queued_jobs: int | None
    max_running_gpus: float | None
    max_upload_bytes: int | None
    queued_jobs: int
    running_jobs: int
    running_gpus: float
    upload_bytes: int  # of all its uploads; equal chunks count once
    # How many it has by state, and how many artifacts. Only `Admin.project` sets them.
    jobs: Mapping[str, int]
    sweeps: Mapping[str, int]
    uploads: Mapping[str, int]  # READY, INCOMPLETE
    artifacts: int


@dataclass(frozen=True)
class AuditEntry:
    """What a call did that changed something, was to, or was refused.

    Attributes:
        project: "-": the call was about none.
        principal: id of the API token; issuer and subject of an issuer's token; local where the server asks for none.
        method: the RPC, such as CancelJob.
        resource: name of what it was about, or of what it created.
        code: of gRPC; OK: the change was made.
        address: of the caller, or of the proxy that it came through.
        request_id: that the caller chose, for RPCs that take one.
    """

    id: str
    name: str
    project: str
    create_time: datetime | None
    principal: str
    method: str
    resource: str
    code: str
    address: str
    request_id: str


class AsyncAdmin:
    """Manages tokens and projects, and reads the server's state; see `AsyncClient.admin`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def create_token(
        self, project: str, scope: str, *, ttl: float | None = None, display_name: str = ""
    ) -> NewToken:
        """Creates a token.

        Args:
            project: the project that it is valid for; "-": all projects (an operator's token).
            scope: read, submit or admin.
            ttl: seconds until it expires; None: never.
        """
        if scope.upper() not in ("READ", "SUBMIT", "ADMIN"):
            raise bad_field("scope", f"must be one of read, submit, admin, got {scope!r}")
        request = admin_pb2.CreateTokenRequest(parent=f"projects/{project}")
        request.token.scope = admin_pb2.Token.Scope.Value(scope.upper())  # type: ignore[assignment]
        request.token.display_name = display_name
        if ttl is not None:
            request.ttl.FromNanoseconds(round(ttl * 1e9))
        answer = await self._transport.call(self._transport.admin.CreateToken, request, repeatable=False)
        return NewToken(**_token_fields(answer.token), secret=answer.secret)

    async def share(self, name: str, *, ttl: float | None = None, display_name: str = "") -> NewToken:
        """Creates a token that shows one job or one sweep, with its jobs and artifacts, and nothing else.

        Args:
            name: projects/P/jobs/J or projects/P/sweeps/S.
            ttl: seconds until it expires, at most 90 days; None: 7 days.
            display_name: what it is for.
        """
        request = admin_pb2.CreateShareRequest(name=name, display_name=display_name)
        if ttl is not None:
            request.ttl.FromNanoseconds(round(ttl * 1e9))
        answer = await self._transport.call(self._transport.admin.CreateShare, request, repeatable=False)
        return NewToken(**_token_fields(answer.token), secret=answer.secret)

    async def caller(self) -> Caller:
        """Returns who this client is, for the server."""
        found = await self._transport.call(self._transport.admin.GetCaller, admin_pb2.GetCallerRequest())
        return Caller(
            id=found.id,
            project=found.project,
            scope=admin_pb2.Token.Scope.Name(found.scope).lower(),
            expire_time=time_of(found, "expire_time"),
            resource=found.resource,
        )

    async def tokens(self, project: str, *, filter: str = "", order_by: str = "") -> AsyncGenerator[Token, None]:
        """Iterates over the tokens of a project, newest first unless `order_by` says otherwise.

        Args:
            project: "-": the operators' tokens.
            filter: as in `Client.list`, of scope, resource, display_name, creator, create_time, expire_time,
                revoke_time and last_use_time.
            order_by: create_time, expire_time, last_use_time or display_name, with " desc" for descending.
        """
        request = admin_pb2.ListTokensRequest(parent=f"projects/{project}", filter=filter, order_by=order_by)
        async for token in listed(self._transport, self._transport.admin.ListTokens, request, "tokens"):
            yield Token(**_token_fields(token))

    async def revoke_token(self, project: str, token_id: str) -> Token:
        """Revokes a token for ever."""
        request = admin_pb2.RevokeTokenRequest(name=f"projects/{project}/tokens/{token_id}")
        return Token(**_token_fields(await self._transport.call(self._transport.admin.RevokeToken, request)))

    async def audit(
        self, project: str, *, filter: str = "", order_by: str = "", limit: int | None = None
    ) -> AsyncGenerator[AuditEntry, None]:
        """Iterates over the audit of a project, newest first unless `order_by` says otherwise.

        Args:
            project: "-": all projects, and what is about none.
            filter: as in `Client.list`, of principal, method, code, resource, project, address, request_id and
                create_time.
            order_by: create_time, "create_time desc" for descending.
            limit: how many at most; None: all.
        """
        request = admin_pb2.ListAuditEntriesRequest(parent=f"projects/{project}", filter=filter, order_by=order_by)
        method = self._transport.admin.ListAuditEntries
        async for entry in listed(self._transport, method, request, "entries", limit):
            _, owner, _, entry_id = entry.name.split("/")
            yield same_fields(AuditEntry, entry, id=entry_id, project=owner)

    async def project(self, project: str) -> Project:
        """Returns a project with what it has. A token of the project is enough."""
        request = admin_pb2.GetProjectRequest(name=f"projects/{project}")
        return _project(await self._transport.call(self._transport.admin.GetProject, request))

    async def projects(self) -> AsyncGenerator[Project, None]:
        """Iterates over all projects, by name."""
        async for project in listed(
            self._transport, self._transport.admin.ListProjects, admin_pb2.ListProjectsRequest(), "projects"
        ):
            yield _project(project)

    async def set_quotas(
        self,
        project: str,
        *,
        max_queued_jobs: int | None = None,
        max_running_gpus: float | None = None,
        max_upload_bytes: int | None = None,
    ) -> Project:
        """Sets all quotas of a project; None: the server's default."""
        message = admin_pb2.Project(
            name=f"projects/{project}",
            max_queued_jobs=max_queued_jobs,
            max_running_gpus=max_running_gpus,
            max_upload_bytes=max_upload_bytes,
        )
        request = admin_pb2.UpdateProjectRequest(project=message)
        return _project(await self._transport.call(self._transport.admin.UpdateProject, request))

    async def server_status(self) -> ServerStatus:
        """Returns the state of the server."""
        request = admin_pb2.GetServerStatusRequest()
        return server.server_status(await self._transport.call(self._transport.admin.GetServerStatus, request))


def _token_fields(token: admin_pb2.Token) -> dict[str, Any]:
    _, project, _, token_id = token.name.split("/")
    return {
        "id": token_id,
        "name": token.name,
        "project": project,
        "display_name": token.display_name,
        "scope": admin_pb2.Token.Scope.Name(token.scope).lower(),
        "creator": token.creator,
        "resource": token.resource,
        **{field: time_of(token, field) for field in ("create_time", "expire_time", "revoke_time", "last_use_time")},
    }


def _project(message: admin_pb2.Project) -> Project:
    return Project(
        id=message.name.rpartition("/")[2],
        name=message.name,
        max_queued_jobs=message.max_queued_jobs if message.HasField("max_queued_jobs") else None,
        max_running_gpus=message.max_running_gpus if message.HasField("max_running_gpus") else None,
        max_upload_bytes=message.max_upload_bytes if message.HasField("max_upload_bytes") else None,
        queued_jobs=message.queued_jobs,
        running_jobs=message.running_jobs,
        running_gpus=message.running_gpus,
        upload_bytes=message.upload_bytes,
        jobs=dict(message.jobs),
        sweeps=dict(message.sweeps),
        uploads=dict(message.uploads),
        artifacts=message.artifacts,
    )
