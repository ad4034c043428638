"""The HTTP method and the path of each RPC: one table. An RPC that is not in it cannot be called over HTTP."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

_JOB, _SWEEP = "projects/*/jobs/*", "projects/*/sweeps/*"
_ARTIFACT, _UPLOAD = "projects/*/artifacts/*", "projects/*/uploads/*"
_WEBHOOK = "projects/*/webhooks/*"
_BY_SERVICE = {
    "mvprune.v1.JobService": {
        "CreateJob": "POST /v1/{parent=projects/*}/jobs",
        "ListJobs": "GET /v1/{parent=projects/*}/jobs",
        "WatchJobs": "GET /v1/{parent=projects/*}/jobs:watch",
        "GetQueue": "GET /v1/{parent=projects/*}/queue",
        "GetJob": f"GET /v1/{{name={_JOB}}}",
        "UpdateJob": f"PATCH /v1/{{name={_JOB}}}",
        "DeleteJob": f"DELETE /v1/{{name={_JOB}}}",
        "WatchJob": f"GET /v1/{{name={_JOB}}}:watch",
        "CancelJob": f"POST /v1/{{name={_JOB}}}:cancel",
        "RetryJob": f"POST /v1/{{name={_JOB}}}:retry",
        "ListJobEvents": f"GET /v1/{{parent={_JOB}}}/events",
        "ListAttempts": f"GET /v1/{{parent={_JOB}}}/attempts",
        "ListMetrics": f"GET /v1/{{parent={_JOB}}}/metrics",
        "FollowLogs": f"GET /v1/{{attempt={_JOB}/attempts/*}}/logs",
        "SearchLogs": f"GET /v1/{{attempt={_JOB}/attempts/*}}/logs:search",
    },
    "mvprune.v1.SweepService": {
        "CreateSweep": "POST /v1/{parent=projects/*}/sweeps",
        "ListSweeps": "GET /v1/{parent=projects/*}/sweeps",
        "GetSweep": f"GET /v1/{{name={_SWEEP}}}",
        "DeleteSweep": f"DELETE /v1/{{name={_SWEEP}}}",
        "WatchSweep": f"GET /v1/{{name={_SWEEP}}}:watch",
        "CancelSweep": f"POST /v1/{{name={_SWEEP}}}:cancel",
        "PauseSweep": f"POST /v1/{{name={_SWEEP}}}:pause",
        "ResumeSweep": f"POST /v1/{{name={_SWEEP}}}:resume",
        "RetrySweep": f"POST /v1/{{name={_SWEEP}}}:retry",
        "ExtendSweep": f"POST /v1/{{name={_SWEEP}}}:extend",
        "UpdateSweepPolicy": f"PATCH /v1/{{name={_SWEEP}}}/policy",
        "ListSweepPoints": f"GET /v1/{{parent={_SWEEP}}}/points",
        "ListSweepEvents": f"GET /v1/{{parent={_SWEEP}}}/events",
    },
    "mvprune.v1.ArtifactService": {
        "ListArtifacts": "GET /v1/{parent=projects/*}/artifacts",
        "GetArtifact": f"GET /v1/{{name={_ARTIFACT}}}",
        "GenerateDownloadUrls": f"POST /v1/{{name={_ARTIFACT}}}:generateDownloadUrls",
        "ReadFile": f"GET /v1/{{name={_ARTIFACT}}}/files/{{path=**}}",
    },
    "mvprune.v1.UploadService": {
        "CreateUpload": "POST /v1/{parent=projects/*}/uploads",
        "ListUploads": "GET /v1/{parent=projects/*}/uploads",
        "GetUpload": f"GET /v1/{{name={_UPLOAD}}}",
        "DeleteUpload": f"DELETE /v1/{{name={_UPLOAD}}}",
        "GenerateChunkUrls": f"POST /v1/{{name={_UPLOAD}}}:generateChunkUrls",
        "CommitChunks": f"POST /v1/{{name={_UPLOAD}}}:commitChunks",
        "PutChunk": f"PUT /v1/{{name={_UPLOAD}}}/chunks/{{chunk=*}}",
    },
    "mvprune.v1.CatalogService": {
        "ListModels": "GET /v1/models",
        "ListTasks": "GET /v1/tasks",
        "ListMethods": "GET /v1/methods",
    },
    "mvprune.v1.WebhookService": {
        "CreateWebhook": "POST /v1/{parent=projects/*}/webhooks",
        "ListWebhooks": "GET /v1/{parent=projects/*}/webhooks",
        "GetWebhook": f"GET /v1/{{name={_WEBHOOK}}}",
        "UpdateWebhook": f"PATCH /v1/{{name={_WEBHOOK}}}",
        "DeleteWebhook": f"DELETE /v1/{{name={_WEBHOOK}}}",
        "TestWebhook": f"POST /v1/{{name={_WEBHOOK}}}:test",
        "RotateWebhookSecret": f"POST /v1/{{name={_WEBHOOK}}}:rotateSecret",
        "ListDeliveries": f"GET /v1/{{parent={_WEBHOOK}}}/deliveries",
        "RedeliverDelivery": f"POST /v1/{{name={_WEBHOOK}/deliveries/*}}:redeliver",
    },
    "mvprune.v1.IssuerService": {
        "CreateIssuer": "POST /v1/issuers",
        "ListIssuers": "GET /v1/issuers",
        "GetIssuer": "GET /v1/{name=issuers/*}",
        "UpdateIssuer": "PATCH /v1/{name=issuers/*}",
        "DeleteIssuer": "DELETE /v1/{name=issuers/*}",
    },
    "mvprune.v1.AdminService": {
        "CreateToken": "POST /v1/{parent=projects/*}/tokens",
        "ListTokens": "GET /v1/{parent=projects/*}/tokens",
        "RevokeToken": "POST /v1/{name=projects/*/tokens/*}:revoke",
        "CreateShare": "POST /v1/{name=projects/*/*/*}:share",
        "GetCaller": "GET /v1/caller",
        "GetProject": "GET /v1/{name=projects/*}",
        "ListProjects": "GET /v1/projects",
        "UpdateProject": "PUT /v1/projects",
        "ListAuditEntries": "GET /v1/{parent=projects/*}/auditEntries",
        "GetServerStatus": "GET /v1/status",
    },
}
_VARIABLE = re.compile(r"\{(\w+)=([^}]*)\}")
_PARTS = {"*": r"[^/:]+", "**": r".+"}


@dataclass(frozen=True)
class Route:
    """An RPC over HTTP.

    Attributes:
        rpc: such as /mvprune.v1.JobService/GetJob.
        method: GET, POST, PUT, PATCH or DELETE.
        template: of its path, with fields of its request: /v1/{name=projects/*/jobs/*}:cancel.
    """

    rpc: str
    method: str
    template: str

    @property
    def fields(self) -> Mapping[str, str]:
        """The fields of the request that the path has, and their patterns."""
        return dict(_VARIABLE.findall(self.template))

    def match(self, path: str) -> Mapping[str, str] | None:
        """The values of the fields in a path; None if the path is another one."""
        found = self._form.fullmatch(path)
        return found.groupdict() if found else None

    @cached_property
    def _form(self) -> re.Pattern[str]:
        form, at = "", 0
        for variable in _VARIABLE.finditer(self.template):
            pattern = "/".join(_PARTS.get(part, re.escape(part)) for part in variable[2].split("/"))
            form += re.escape(self.template[at : variable.start()]) + f"(?P<{variable[1]}>{pattern})"
            at = variable.end()
        return re.compile(form + re.escape(self.template[at:]), re.DOTALL)


ROUTES = tuple(
    Route(f"/{service}/{name}", *place.split(" "))
    for service, templates in _BY_SERVICE.items()
    for name, place in templates.items()
)


def find(method: str, path: str) -> tuple[Route, Mapping[str, str]] | set[str]:
    """The route of a request with the values of its path's fields; else the methods that the path has."""
    others = set()
    for route in ROUTES:
        values = route.match(path)
        if values is not None and route.method == method:
            return route, values
        if values is not None:
            others.add(route.method)
    return others
