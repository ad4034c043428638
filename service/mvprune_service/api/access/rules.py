"""Who may call which RPC: one table for both ports. An RPC without a rule cannot be called."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

import grpc
from google.protobuf.descriptor import ServiceDescriptor

from mvprune_service.api.access.errors import ApiError
from mvprune_service.api.access.principal import Principal, Scope


class Caller(Enum):
    """Credentials that a caller must show."""

    NOTHING = 0  # open to everyone
    TOKEN = 1  # an API token of the project, or an operator's
    ANY_TOKEN = 2  # an API token of whatever project
    OPERATOR = 3  # an operator's API token
    ATTEMPT = 4  # the credential of an attempt, which WorkerServicer compares with the lease in the request


class Rule(NamedTuple):
    """Who may call one RPC.

    Attributes:
        caller: what a caller must show.
        scope: what its token must allow.
        field: the path to the resource name in the request whose project must be the token's.
        is_costly: a request or an answer can have thousands of entries. A project has few of these calls at a time.
        is_for_shares: a token that shows one job or sweep may call it too. Such a token may read that in any case.
        only_reads: it changes nothing that others see, though its scope is one of those that change something.
    """

    caller: Caller
    scope: Scope = Scope.READ
    field: str = ""
    is_costly: bool = False
    is_for_shares: bool = False
    only_reads: bool = False

    @property
    def is_recorded(self) -> bool:
        """Whether the audit has each call: it changes something for a caller who has a token."""
        return self.caller in (Caller.TOKEN, Caller.OPERATOR) and self.scope is not Scope.READ and not self.only_reads


def _of_project(scope: Scope, field: str) -> Rule:
    return Rule(Caller.TOKEN, scope, field)


def _costly(scope: Scope, field: str) -> Rule:
    return Rule(Caller.TOKEN, scope, field, is_costly=True)


def _reading(scope: Scope, field: str, *, is_costly: bool = False) -> Rule:
    return Rule(Caller.TOKEN, scope, field, is_costly, only_reads=True)


_OPEN = Rule(Caller.NOTHING)
_ATTEMPT = Rule(Caller.ATTEMPT)
_ANYONE = Rule(Caller.ANY_TOKEN)
_ANYONE_COSTLY = Rule(Caller.ANY_TOKEN, is_costly=True)
_OPERATORS = Rule(Caller.OPERATOR, Scope.ADMIN)
_BY_SERVICE = {
    "mvprune.v1.JobService": {
        "CreateJob": _of_project(Scope.SUBMIT, "parent"),
        "GetJob": _of_project(Scope.READ, "name"),
        "ListJobs": _costly(Scope.READ, "parent"),
        "WatchJob": _of_project(Scope.READ, "name"),
        "WatchJobs": _of_project(Scope.READ, "parent"),
        "GetQueue": _costly(Scope.READ, "parent"),
        "UpdateJob": _of_project(Scope.SUBMIT, "name"),
        "CancelJob": _of_project(Scope.SUBMIT, "name"),
        "RetryJob": _of_project(Scope.SUBMIT, "name"),
        "DeleteJob": _of_project(Scope.SUBMIT, "name"),
        "ListJobEvents": _costly(Scope.READ, "parent"),
        "ListAttempts": _costly(Scope.READ, "parent"),
        "FollowLogs": _of_project(Scope.READ, "attempt"),
        "SearchLogs": _costly(Scope.READ, "attempt"),
        "ListMetrics": _costly(Scope.READ, "parent"),
    },
    "mvprune.v1.SweepService": {
        "CreateSweep": _of_project(Scope.SUBMIT, "parent"),
        "GetSweep": _of_project(Scope.READ, "name"),
        "ListSweeps": _costly(Scope.READ, "parent"),
        "WatchSweep": _of_project(Scope.READ, "name"),
        "ListSweepPoints": _costly(Scope.READ, "parent"),
        "ListSweepEvents": _costly(Scope.READ, "parent"),
        "CancelSweep": _of_project(Scope.SUBMIT, "name"),
        "PauseSweep": _of_project(Scope.SUBMIT, "name"),
        "ResumeSweep": _of_project(Scope.SUBMIT, "name"),
        "RetrySweep": _of_project(Scope.SUBMIT, "name"),
        "ExtendSweep": _of_project(Scope.SUBMIT, "name"),
        "UpdateSweepPolicy": _of_project(Scope.SUBMIT, "name"),
        "DeleteSweep": _of_project(Scope.SUBMIT, "name"),
    },
    "mvprune.v1.ArtifactService": {
        "GetArtifact": _of_project(Scope.READ, "name"),
        "ListArtifacts": _costly(Scope.READ, "parent"),
        "GenerateDownloadUrls": _costly(Scope.READ, "name"),
        "ReadFile": _of_project(Scope.READ, "name"),
    },
    "mvprune.v1.UploadService": {
        "CreateUpload": _costly(Scope.SUBMIT, "parent"),
        "GetUpload": _costly(Scope.READ, "name"),
        "ListUploads": _costly(Scope.READ, "parent"),
        "DeleteUpload": _costly(Scope.SUBMIT, "name"),
        "GenerateChunkUrls": _reading(Scope.SUBMIT, "name"),
        "CommitChunks": _of_project(Scope.SUBMIT, "name"),
        "PutChunk": _reading(Scope.SUBMIT, "name"),  # of the first request. CreateUpload has the digest of all
    },
    "mvprune.v1.CatalogService": {
        "ListModels": _ANYONE_COSTLY,
        "ListTasks": _ANYONE_COSTLY,
        "ListMethods": _ANYONE_COSTLY,
    },
    "mvprune.v1.AdminService": {
        "CreateToken": _of_project(Scope.ADMIN, "parent"),
        "ListTokens": _reading(Scope.ADMIN, "parent", is_costly=True),
        "RevokeToken": _of_project(Scope.ADMIN, "name"),
        "CreateShare": _of_project(Scope.SUBMIT, "name"),
        "GetCaller": Rule(Caller.ANY_TOKEN, is_for_shares=True),
        "GetProject": _costly(Scope.READ, "name"),
        "ListProjects": Rule(Caller.OPERATOR, Scope.READ, is_costly=True),
        "UpdateProject": _OPERATORS._replace(field="project.name"),
        "ListAuditEntries": _reading(Scope.ADMIN, "parent", is_costly=True),
        "GetServerStatus": Rule(Caller.OPERATOR, Scope.READ),
    },
    "mvprune.v1.WebhookService": {  # ADMIN also to read: the URL of a webhook can be a secret
        "CreateWebhook": _of_project(Scope.ADMIN, "parent"),
        "GetWebhook": _reading(Scope.ADMIN, "name"),
        "ListWebhooks": _reading(Scope.ADMIN, "parent", is_costly=True),
        "UpdateWebhook": _of_project(Scope.ADMIN, "name"),
        "DeleteWebhook": _of_project(Scope.ADMIN, "name"),
        "TestWebhook": _of_project(Scope.ADMIN, "name"),
        "RotateWebhookSecret": _of_project(Scope.ADMIN, "name"),
        "ListDeliveries": _reading(Scope.ADMIN, "parent", is_costly=True),
        "RedeliverDelivery": _of_project(Scope.ADMIN, "name"),
    },
    "mvprune.v1.IssuerService": {
        "CreateIssuer": _OPERATORS,
        "GetIssuer": _OPERATORS._replace(field="name", only_reads=True),
        "ListIssuers": _OPERATORS._replace(only_reads=True),
        "UpdateIssuer": _OPERATORS._replace(field="name"),
        "DeleteIssuer": _OPERATORS._replace(field="name"),
    },
    "mvprune.v1.WorkerService": {
        "ClaimAttempt": _ATTEMPT,
        "Heartbeat": _ATTEMPT,
        "AppendLogs": _ATTEMPT,
        "ReportMetrics": _ATTEMPT,
        "CommitCheckpoint": _ATTEMPT,
        "ReportLostChunks": _ATTEMPT,
        "CompleteAttempt": _ATTEMPT,
    },
    "grpc.health.v1.Health": {"Check": _OPEN, "List": _OPEN, "Watch": _OPEN},
    "grpc.reflection.v1alpha.ServerReflection": {"ServerReflectionInfo": _ANYONE},
}
RULES: Mapping[str, Rule] = {
    f"/{service}/{method}": rule for service, rules in _BY_SERVICE.items() for method, rule in rules.items()
}

_PROJECT = re.compile(r"projects/([^/]*)")
_getter = cache(attrgetter)


class MissingRule(Exception):
    """The server has RPCs that the table does not name."""


def check_complete(services: Iterable[ServiceDescriptor], rules: Mapping[str, Rule] = RULES) -> None:
    """Raises MissingRule unless all RPCs of `services` have a rule."""
    served = [f"/{service.full_name}/{method.name}" for service in services for method in service.methods]
    if missing := sorted(set(served) - set(rules)):
        raise MissingRule(f"no rule says who may call {', '.join(missing)}: see mvprune_service.api.access.rules")


def authorise(rule: Rule, principal: Principal, request: Any) -> None:
    """Raises ApiError unless `principal` may make this request.

    The answer does not reveal whether another project has the resource.
    """
    if rule.caller is Caller.OPERATOR and not principal.is_operator:
        raise _denied("OPERATOR_NEEDED", "this needs an operator's token; yours is bound to a project")
    if principal.scope < rule.scope:
        needed, has = rule.scope.name.lower(), principal.scope.name.lower()
        raise _denied("SCOPE_NEEDED", f"this needs a token with the scope {needed}; yours has {has}")
    if rule.caller is Caller.TOKEN and not principal.is_operator and project_of(rule, request) != principal.project:
        raise _denied("OTHER_PROJECT", f"your token is valid only for projects/{principal.project}")
    if principal.resource and not (rule.field or rule.is_for_shares):
        raise not_shown(principal)


def name_in(rule: Rule, request: Any) -> str:
    """The name of what a request is about, "" if it is about nothing in particular."""
    return str(_getter(rule.field)(request)) if rule.field else ""


def not_shown(principal: Principal) -> ApiError:
    """The error of a caller whose token is for something else."""
    return _denied("NOT_SHARED", f"your token shows only {principal.resource}")


def owner_of(principal: Principal) -> str:
    """Who has a share of the server: the project, whatever tokens it has; an operator's token for itself."""
    return principal.id if principal.is_operator else principal.project


def subject_of(rule: Rule, principal: Principal, request: Any) -> str:
    """For whom the work of a request is: the project that it is about; the caller where it is about none."""
    return project_of(rule, request) or owner_of(principal)


def project_of(rule: Rule, request: Any) -> str | None:
    """The project that a request is about, as it is named there."""
    found = _PROJECT.match(name_in(rule, request))
    return found[1] if found else None


def _denied(reason: str, message: str) -> ApiError:
    return ApiError(grpc.StatusCode.PERMISSION_DENIED, reason, message)
