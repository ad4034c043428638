"""Who may call what: every RPC of every service on both ports, by every kind of caller, against a real server."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from tests.refusals import status_details
from tests.waiting import PATIENCE

import mvprune.v1
from mvprune.v1 import admin_pb2, admin_pb2_grpc, job_pb2, job_pb2_grpc
from mvprune_service.api.access import rules
from mvprune_service.assembly.service import Service
from mvprune_service.assembly.startup import StartError
from mvprune_service.config import Settings
from mvprune_service.secret import attempt_secret, load_key

_S = grpc.StatusCode
_NOBODY, _DENIED, _UNKNOWN = _S.UNAUTHENTICATED, _S.PERMISSION_DENIED, _S.UNIMPLEMENTED
_ATTEMPT = "projects/p/jobs/none/attempts/1"

# The table that the server must obey, written down a second time: RPCs by the least that lets a caller in.
LEAST = {
    "open": {"Check", "List", "Watch"},
    "any token": {"ServerReflectionInfo", "GetCaller", "ListModels", "ListTasks", "ListMethods"},
    "read": {
        *("GetJob", "ListJobs", "WatchJob", "ListJobEvents", "ListAttempts", "FollowLogs", "ListMetrics"),
        *("WatchJobs", "GetQueue", "SearchLogs", "GetProject"),
        *("GetArtifact", "ListArtifacts", "GenerateDownloadUrls", "ReadFile"),
        *("GetUpload", "ListUploads"),
        *("GetSweep", "ListSweeps", "WatchSweep", "ListSweepPoints", "ListSweepEvents"),
    },
    "submit": {
        *("CreateJob", "UpdateJob", "CreateShare", "CancelJob", "RetryJob", "DeleteJob"),
        *("CreateUpload", "DeleteUpload", "GenerateChunkUrls", "CommitChunks", "PutChunk"),
        *("CreateSweep", "CancelSweep", "PauseSweep", "ResumeSweep", "RetrySweep", "ExtendSweep"),
        *("UpdateSweepPolicy", "DeleteSweep"),
    },
    "admin": {
        *("CreateToken", "ListTokens", "RevokeToken", "ListAuditEntries"),
        *("CreateWebhook", "GetWebhook", "ListWebhooks", "UpdateWebhook", "DeleteWebhook", "TestWebhook"),
        *("RotateWebhookSecret", "ListDeliveries", "RedeliverDelivery"),
    },
    "operator read": {"ListProjects", "GetServerStatus"},
    "operator": {"UpdateProject", "CreateIssuer", "GetIssuer", "ListIssuers", "UpdateIssuer", "DeleteIssuer"},
    "attempt": {
        *("ClaimAttempt", "Heartbeat", "AppendLogs", "ReportMetrics", "CommitCheckpoint", "CompleteAttempt"),
        "ReportLostChunks",
    },
}
TOKENS = {  # project, scope
    "read": ("p", "READ"),
    "submit": ("p", "SUBMIT"),
    "admin": ("p", "ADMIN"),
    "other admin": ("q", "ADMIN"),
    "operator read": ("-", "READ"),
    "operator": ("-", "ADMIN"),
}
# Who is let in, by the least that is needed; all others with a token are denied.
LET_IN = {
    "any token": set(TOKENS),
    "read": {"read", "submit", "admin", "operator read", "operator"},
    "submit": {"submit", "admin", "operator"},
    "admin": {"admin", "operator"},
    "operator read": {"operator read", "operator"},
    "operator": {"operator"},
}


def services() -> Iterator[ServiceDescriptor]:
    """Every service of the package's contract, and the two of gRPC's own."""
    names = (module.name for module in pkgutil.iter_modules(mvprune.v1.__path__) if module.name.endswith("_pb2"))
    files = [importlib.import_module(f"mvprune.v1.{name}") for name in names]
    for file in (*files, health_pb2, reflection_pb2):
        yield from file.DESCRIPTOR.services_by_name.values()


METHODS = {f"{service.name}.{method.name}": method for service in services() for method in service.methods}


class Server(NamedTuple):
    """A server that asks for tokens, with one of each kind."""

    service: Service
    clients: grpc.aio.Channel
    workers: grpc.aio.Channel
    headers: dict[str, str]  # by role
    admin: Any

    def metadata(self, role: str) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.headers[role]}"),) if self.headers[role] else ()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    settings = Settings(
        home=tmp_path / "home",
        address="127.0.0.1:0",
        worker_address="127.0.0.1:0",
        executor="local",
        roots=(tmp_path,),
        auth="required",
        rate_limit=10_000,
    )
    async with Service(settings) as service, grpc.aio.insecure_channel(service.address) as clients:
        operator = (tmp_path / "home" / "operator-token").read_text().strip()
        key = load_key(tmp_path / "home" / "key")
        headers = {
            "nobody": "",
            "bad token": "mvp_token-aaaaaaaaaa_" + "x" * 43,
            "attempt": attempt_secret(key, _ATTEMPT, 1),
            "first": operator,
        }
        async with grpc.aio.insecure_channel(service.worker_address) as workers:
            server = Server(service, clients, workers, headers, admin_pb2_grpc.AdminServiceStub(clients))
            for role, (project, scope) in TOKENS.items():
                request = admin_pb2.CreateTokenRequest(parent=f"projects/{project}", token={"scope": scope})
                made = await server.admin.CreateToken(request, metadata=server.metadata("first"))
                headers[role] = made.secret
            yield server


def request_for(method: MethodDescriptor) -> Message:
    """A request about something in the project p that is not there."""
    request = message_factory.GetMessageClass(method.input_type)()
    for field in ("name", "parent", "attempt"):
        if field in method.input_type.fields_by_name:
            setattr(request, field, "projects/p/jobs/none")
    if "lease" in method.input_type.fields_by_name:
        lease: Any = request
        lease.lease.attempt, lease.lease.fencing_token = _ATTEMPT, 1
    return request


async def status_of(channel: grpc.aio.Channel, method: MethodDescriptor, request: Message, metadata: Any) -> Any:
    """How a call ends; a stream that goes on is left after its first message."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    kind = f"{'stream' if method.client_streaming else 'unary'}_{'stream' if method.server_streaming else 'unary'}"
    parse = message_factory.GetMessageClass(method.output_type).FromString
    start = getattr(channel, kind)(path, type(request).SerializeToString, parse)
    call = start(
        ([] if method.server_streaming else [request]) if method.client_streaming else request,
        metadata=metadata,
        timeout=PATIENCE,
    )
    try:
        if not method.server_streaming:
            await call
        elif (await call.read()) is not grpc.aio.EOF:
            call.cancel()
            return _S.OK
        return await call.code()
    except grpc.aio.AioRpcError as error:
        return error.code()


def expected(method: str, role: str, *, worker_port: bool) -> set[grpc.StatusCode] | None:
    """The statuses that a call must end with; None: it is let in, and ends with any but the three of a refusal."""
    needed = next(least for least, names in LEAST.items() if method in names)
    if worker_port != (needed == "attempt") and needed != "open":
        return {_UNKNOWN}
    if needed == "open" or (worker_port and role == "attempt"):
        return None
    if worker_port or role in ("nobody", "bad token", "attempt"):
        return {_NOBODY}
    return None if role in LET_IN[needed] else {_DENIED}


def test_the_table_names_every_rpc_of_the_contract() -> None:
    names, expected = {method.name for method in METHODS.values()}, set.union(*LEAST.values())
    assert names <= expected
    absent = expected - names
    assert absent <= {"List"}, "of health, which old versions of grpcio do not have"
    assert len(METHODS) + len(absent) == sum(map(len, LEAST.values())), "no two RPCs share a name"


async def test_every_rpc_by_every_caller_on_both_ports(server: Server) -> None:
    wrong, calls = {}, 0
    for worker_port, channel in ((False, server.clients), (True, server.workers)):
        for method in METHODS.values():
            for role in (*TOKENS, "nobody", "bad token", "attempt"):
                found = await status_of(channel, method, request_for(method), server.metadata(role))
                wanted = expected(method.name, role, worker_port=worker_port)
                calls += 1
                if found in {_NOBODY, _DENIED, _UNKNOWN} if wanted is None else found not in wanted:
                    wrong[method.name, role, "workers" if worker_port else "clients"] = found
    assert wrong == {}
    assert calls == 2 * len(METHODS) * (len(TOKENS) + 3) > 500


# What changes nothing that others see: the audit has it only where it is refused.
READING = re.compile(r"(Get|List|Watch|Follow|Search|Read|GenerateDownload|GenerateChunk)[A-Z]|Server|PutChunk")


async def test_the_audit_has_every_call_that_changes_something_and_every_refusal(server: Server) -> None:
    recorded: set[tuple[str, str, str]] = set()
    for method in METHODS.values():
        if method.name in LEAST["open"] | LEAST["attempt"]:
            continue  # of those who have no token
        for role in ("operator", "read"):
            found = await status_of(server.clients, method, request_for(method), server.metadata(role))
            if found is _DENIED or not READING.match(method.name):
                recorded.add((method.name, server.headers[role].split("_")[1], found.name))
    listed = await server.admin.ListAuditEntries(
        admin_pb2.ListAuditEntriesRequest(parent="projects/-", page_size=500), metadata=server.metadata("operator")
    )
    wanted = {"CreateJob", "UpdateProject", "TestWebhook", "CommitChunks", "DeleteSweep", "ListTokens"}
    assert wanted <= {method for method, _, _ in recorded}
    made = [one for one in listed.entries if one.principal != server.headers["first"].split("_")[1]]
    assert {(one.method, one.principal, one.code) for one in made} == recorded
    assert len(made) == len(recorded), "each once"
    assert {one.address for one in made} == {"127.0.0.1"}
    assert not [secret for secret in server.headers.values() if secret and secret in str(listed)]


async def test_a_share_shows_one_job_and_nothing_else(server: Server) -> None:
    jobs = job_pb2_grpc.JobServiceStub(server.clients)
    spec: Any = {"model": "bert-base-uncased", "task": "sst2", "movement": {}, "target_density": 0.1}
    for job in ("shared", "other"):
        request = job_pb2.CreateJobRequest(parent="projects/p", job_id=job, job={"spec": spec})
        await jobs.CreateJob(request, metadata=server.metadata("submit"))
    shared = "projects/p/jobs/shared"
    made = await server.admin.CreateShare(admin_pb2.CreateShareRequest(name=shared), metadata=server.metadata("submit"))
    server.headers["share"] = made.secret
    assert made.token.resource == shared
    assert made.token.expire_time.seconds - made.token.create_time.seconds == 7 * 86_400

    shown = {"GetJob", "WatchJob", "ListJobEvents", "ListAttempts", "ListMetrics", "FollowLogs", "SearchLogs"}
    for method in METHODS.values():
        if method.name in LEAST["open"] | LEAST["attempt"]:
            continue
        for name in (shared, "projects/p/jobs/other", "projects/p/jobs/none", "projects/p"):
            request = request_for(method)
            for field in ("name", "parent", "attempt"):
                if field in method.input_type.fields_by_name:
                    setattr(request, field, f"{name}/attempts/-" if field == "attempt" else name)
            found = await status_of(server.clients, method, request, server.metadata("share"))
            is_shown = name == shared and method.name in shown
            # What asks for another kind of thing may find that the name is none of its own.
            of_job = method.name in shown or name != shared or method.name in LEAST["submit"] | LEAST["admin"]
            if method.name == "GetCaller" or is_shown:
                assert found is _S.OK, (method.name, name)
            elif of_job:
                assert found is _DENIED, (method.name, name)
            else:
                assert found in (_DENIED, _S.INVALID_ARGUMENT), (method.name, name)

    caller = await server.admin.GetCaller(admin_pb2.GetCallerRequest(), metadata=server.metadata("share"))
    assert (caller.resource, caller.project, caller.scope) == (shared, "p", admin_pb2.Token.READ)


async def test_another_project_is_refused_alike_whether_or_not_a_thing_is_there(server: Server) -> None:
    jobs = job_pb2_grpc.JobServiceStub(server.clients)
    made = await server.admin.CreateToken(
        admin_pb2.CreateTokenRequest(parent="projects/p", token={"scope": "READ"}), metadata=server.metadata("operator")
    )
    answers = set()
    for name in (made.token.name, "projects/p/tokens/token-zzzzzzzzzz", "projects/nowhere/tokens/token-zzzzzzzzzz"):
        answers.add(
            await refusal(server.admin.RevokeToken, admin_pb2.RevokeTokenRequest(name=name), server, "other admin")
        )
    for parent in ("projects/p", "projects/-", "projects/", "p", "projects/q/../p", "projects/Q", ""):
        answers.add(
            await refusal(
                jobs.ListJobs,
                job_pb2.ListJobsRequest(parent=parent),
                server,
                "read" if parent != "projects/p" else "other admin",
            )
        )
    assert {(code, reason) for code, reason, _ in answers} == {(_DENIED, "OTHER_PROJECT")}
    assert {text for _, _, text in answers} == {
        "your token is valid only for projects/q",
        "your token is valid only for projects/p",
    }


async def refusal(method: Any, request: Any, server: Server, role: str) -> tuple[grpc.StatusCode, str, str]:
    """Status, reason and text of a call that must fail."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await method(request, metadata=server.metadata(role))
    info = error_details_pb2.ErrorInfo()
    assert status_details(caught.value)[0].Unpack(info)
    return caught.value.code(), info.reason, caught.value.details()


async def test_refusals_say_what_is_needed(server: Server) -> None:
    jobs, request = job_pb2_grpc.JobServiceStub(server.clients), job_pb2.CreateJobRequest(parent="projects/p")
    code, reason, text = await refusal(jobs.CreateJob, request, server, "read")
    assert (code, reason) == (_DENIED, "SCOPE_NEEDED")
    assert text == "this needs a token with the scope submit; yours has read"
    code, reason, text = await refusal(server.admin.ListProjects, admin_pb2.ListProjectsRequest(), server, "admin")
    assert (code, reason) == (_DENIED, "OPERATOR_NEEDED")
    code, reason, text = await refusal(jobs.CreateJob, request, server, "nobody")
    assert (code, reason) == (_NOBODY, "NO_TOKEN")
    assert "MVPRUNE_TOKEN" in text
    code, reason, text = await refusal(jobs.CreateJob, request, server, "bad token")
    assert (code, reason) == (_NOBODY, "BAD_TOKEN")
    assert server.headers["bad token"] not in text


async def test_bytes_that_are_no_message_are_the_callers_mistake(server: Server) -> None:
    for path in ("JobService/GetJob", "AdminService/CreateToken"):
        call = server.clients.unary_unary(f"/mvprune.v1.{path}")
        assert (await refusal(call, b"\xff\xff\xff", server, "operator"))[0] is _S.INVALID_ARGUMENT
        assert (await refusal(call, b"\xff\xff\xff", server, "nobody"))[0] is _NOBODY


async def test_what_was_never_told_is_in_no_log(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    for method in METHODS.values():
        for role in ("bad token", "read", "operator"):
            await status_of(server.clients, method, request_for(method), server.metadata(role))
    assert not [role for role, secret in server.headers.items() if secret and secret in caplog.text]


async def test_an_rpc_without_a_rule_stops_the_server_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(rules.RULES, "/mvprune.v1.JobService/CancelJob")
    settings = Settings(home=tmp_path / "home", address="127.0.0.1:0", worker_address="127.0.0.1:0", executor="local")
    with pytest.raises(StartError, match=r"no rule says who may call /mvprune\.v1\.JobService/CancelJob"):
        async with Service(settings):
            pass


async def test_an_rpc_without_a_rule_is_refused_to_everyone(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(rules.RULES, "/mvprune.v1.JobService/ListJobs")
    jobs = job_pb2_grpc.JobServiceStub(server.clients)
    code, reason, _ = await refusal(jobs.ListJobs, job_pb2.ListJobsRequest(parent="projects/p"), server, "operator")
    assert (code, reason) == (_DENIED, "NO_RULE")
