"""The audit, on both databases: who changed what, what was refused, and nothing of it without the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import grpc
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from tests.unit.service.conftest import TestClock

from mvprune.v1 import admin_pb2, admin_pb2_grpc, job_pb2, job_pb2_grpc
from mvprune_service.api.access.auth import Authenticator, digest
from mvprune_service.api.access.calls import END, Calls
from mvprune_service.api.access.errors import ApiError
from mvprune_service.api.access.recording import Audit
from mvprune_service.api.admin import AdminServicer
from mvprune_service.clock import SECOND
from mvprune_service.db import audit, tokens
from mvprune_service.db.engine.database import Database
from mvprune_service.ids import TokenName

ADMIN = "/mvprune.v1.AdminService/"
JOBS = "/mvprune.v1.JobService/"
CODE = grpc.StatusCode


class Visit(NamedTuple):
    """Where a call comes from."""

    secret: str

    def peer(self) -> str:
        return "ipv6:%5B2001:db8::1%5D:5000"

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return [("authorization", f"Bearer {self.secret}")]


class Jobs(job_pb2_grpc.JobServiceServicer):
    """Changes nothing, or goes on after its change."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.written = asyncio.Event()

    async def GetJob(self, request: Any, context: Any) -> job_pb2.Job:
        return job_pb2.Job()

    async def CreateJob(self, request: Any, context: Any) -> job_pb2.Job:
        return job_pb2.Job()

    async def CancelJob(self, request: Any, context: Any) -> job_pb2.Job:
        await self.db.write(tokens.note_use, "none", 0)
        self.written.set()
        await asyncio.sleep(3600)
        raise AssertionError

    async def RetryJob(self, request: Any, context: Any) -> job_pb2.Job:
        raise RuntimeError("not to be told")


class Port:
    """The services of a port, and callers of three scopes in the project p, of another project, and an operator."""

    def __init__(self, db: Database, clock: TestClock) -> None:
        self.db = db
        self.authenticator = Authenticator(db, clock)
        self.calls = Calls(self.authenticator, audit=Audit(db, clock))
        self.jobs = Jobs(db)
        admin_pb2_grpc.add_AdminServiceServicer_to_server(
            AdminServicer(db, self.authenticator, _status, clock), self.calls
        )
        job_pb2_grpc.add_JobServiceServicer_to_server(self.jobs, self.calls)

    async def add(self, name: str, project: str, scope: str) -> None:
        sha256 = digest(_secret(name))
        values: Any = {"scope": scope, "display_name": "", "creator": "", "expire_us": None}
        await self.db.write(tokens.create, TokenName(project, name), secret_sha256=sha256, **values)

    async def call(self, who: str, method: str, request: Any) -> Any:
        found = self.calls.method(method)
        assert found is not None
        given = [request, END]

        async def receive() -> Any:
            return given.pop(0)

        return await self.calls.call(found, Visit(_secret(who)), receive)

    async def listed(self, who: str = "root", parent: str = "projects/-", **asked: Any) -> list[admin_pb2.AuditEntry]:
        request = admin_pb2.ListAuditEntriesRequest(parent=parent, **asked)
        return list((await self.call(who, ADMIN + "ListAuditEntries", request)).entries)


def _secret(name: str) -> str:
    return f"mvp_{name}_".ljust(44, "x")


async def _status() -> admin_pb2.ServerStatus:
    return admin_pb2.ServerStatus()


def _create(parent: str = "projects/p", **fields: Any) -> admin_pb2.CreateTokenRequest:
    return admin_pb2.CreateTokenRequest(parent=parent, token={"scope": "READ"}, **fields)


@pytest.fixture
async def port(db: Database, clock: TestClock) -> AsyncIterator[Port]:
    one = Port(db, clock)
    for name, project, scope in (("reader", "p", "READ"), ("boss", "p", "ADMIN"), ("root", "-", "ADMIN")):
        await one.add(name, project, scope)
    await one.add("stranger", "q", "ADMIN")
    yield one
    await one.authenticator.close()


async def refused(call: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await call
    return caught.value


def short(entries: list[admin_pb2.AuditEntry]) -> list[tuple[str, ...]]:
    return [(one.name.split("/")[1], one.principal, one.method, one.code, one.resource) for one in entries]


async def test_a_change_is_recorded_with_what_it_made(port: Port) -> None:
    made = await port.call("boss", ADMIN + "CreateToken", _create())
    (entry,) = await port.listed()
    assert short([entry]) == [("p", "boss", "CreateToken", "OK", made.token.name)]
    assert entry.name.startswith("projects/p/auditEntries/")
    assert (entry.address, entry.request_id) == ("2001:db8::1", "")
    assert entry.create_time == made.token.create_time  # of one transaction
    assert "mvp_" not in str(entry)

    quotas = admin_pb2.UpdateProjectRequest(project={"name": "projects/new", "max_queued_jobs": 3})
    await port.call("root", ADMIN + "UpdateProject", quotas)
    await port.call("boss", ADMIN + "ListTokens", admin_pb2.ListTokensRequest(parent="projects/p"))
    await port.call("reader", JOBS + "GetJob", job_pb2.GetJobRequest(name="projects/p/jobs/j"))
    assert short(await port.listed())[:-1] == [("new", "root", "UpdateProject", "OK", "projects/new")]


async def test_calls_that_change_nothing_in_the_database_are_recorded_as_they_end(port: Port) -> None:
    request = job_pb2.CreateJobRequest(parent="projects/p", request_id="once", job={"display_name": "x" * 2000})
    await refused(port.call("boss", JOBS + "CreateJob", request))
    request.job.ClearField("display_name")
    await port.call("boss", JOBS + "CreateJob", request)
    request.validate_only = True
    await port.call("boss", JOBS + "CreateJob", request)
    nowhere = admin_pb2.RevokeTokenRequest(name="projects/p/tokens/none")
    await refused(port.call("boss", ADMIN + "RevokeToken", nowhere))
    found = await port.listed(order_by="create_time")
    assert sorted(short(found)) == [
        ("p", "boss", "CreateJob", "INVALID_ARGUMENT", "projects/p"),
        ("p", "boss", "CreateJob", "OK", "projects/p"),
        ("p", "boss", "RevokeToken", "NOT_FOUND", "projects/p/tokens/none"),
    ]
    assert {one.request_id for one in found if one.method == "CreateJob"} == {"once"}


async def test_the_refused_are_recorded_for_their_own_project(port: Port) -> None:
    assert (await refused(port.call("reader", ADMIN + "CreateToken", _create()))).code is CODE.PERMISSION_DENIED
    await refused(port.call("stranger", ADMIN + "CreateToken", _create()))
    await refused(port.call("stranger", JOBS + "GetJob", job_pb2.GetJobRequest(name="projects/p/jobs/a\0\u202eb")))
    await refused(port.call("nobody", ADMIN + "CreateToken", _create()))  # who that is, is not known
    assert sorted(short(await port.listed())) == [
        ("p", "reader", "CreateToken", "PERMISSION_DENIED", "projects/p"),
        ("q", "stranger", "CreateToken", "PERMISSION_DENIED", "projects/p"),
        ("q", "stranger", "GetJob", "PERMISSION_DENIED", "projects/p/jobs/a??b"),
    ]
    assert len(await port.listed("stranger", "projects/q")) == 2
    assert [one.principal for one in await port.listed("boss", "projects/p")] == ["reader"]
    for who, parent in (("boss", "projects/-"), ("boss", "projects/q"), ("reader", "projects/p")):
        assert (await refused(port.listed(who, parent))).code is CODE.PERMISSION_DENIED


async def test_no_change_is_there_without_its_entry_and_no_entry_without_its_change(port: Port, db: Database) -> None:
    await refused(port.call("boss", JOBS + "RetryJob", job_pb2.RetryJobRequest(name="projects/p/jobs/j")))
    await db.write(lambda tx: tx.conn.execute(text("ALTER TABLE audit RENAME TO away")))
    error = await refused(port.call("boss", ADMIN + "CreateToken", _create()))
    assert error.code is CODE.INTERNAL
    with pytest.raises(DBAPIError):
        await db.read(lambda conn: conn.execute(text("SELECT * FROM audit")))
    await db.write(lambda tx: tx.conn.execute(text("ALTER TABLE away RENAME TO audit")))
    listed = await port.call("boss", ADMIN + "ListTokens", admin_pb2.ListTokensRequest(parent="projects/p"))
    assert {one.name for one in listed.tokens} == {"projects/p/tokens/boss", "projects/p/tokens/reader"}
    assert await port.listed() == []


async def test_a_caller_who_goes_away_after_the_change_is_recorded(port: Port) -> None:
    call = asyncio.create_task(
        port.call("boss", JOBS + "CancelJob", job_pb2.CancelJobRequest(name="projects/p/jobs/j"))
    )
    await port.jobs.written.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert short(await port.listed()) == [("p", "boss", "CancelJob", "OK", "projects/p/jobs/j")]


async def test_the_refusals_of_one_caller_do_not_fill_the_database(
    port: Port, clock: TestClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(210):
        await refused(port.call("reader", ADMIN + "CreateToken", _create()))
    await refused(port.call("stranger", ADMIN + "CreateToken", _create()))
    assert len(await port.listed("boss", "projects/p", page_size=500)) == 200
    assert len(await port.listed("stranger", "projects/q")) == 1
    assert "the audit lacks Entry(project='p', principal='reader'" in caplog.text
    await port.call("boss", ADMIN + "CreateToken", _create())
    clock.pass_seconds(10)
    await refused(port.call("reader", ADMIN + "CreateToken", _create()))
    assert len(await port.listed("boss", "projects/p", page_size=500)) == 202


async def test_entries_are_found_by_filter_order_and_page(port: Port, clock: TestClock) -> None:
    for number in range(3):
        clock.pass_seconds(1)
        await port.call("boss", ADMIN + "CreateToken", _create())
        await refused(port.call("reader", ADMIN + "CreateToken", _create()))
        await port.call("root", ADMIN + "CreateToken", _create(f"projects/r{number}"))
    assert len(await port.listed(filter="method = CreateToken AND code = OK")) == 6
    assert len(await port.listed(filter="principal = reader OR project = r1")) == 4
    assert len(await port.listed(filter='resource = "projects/p" AND address = "2001:db8::1"')) == 3
    first = await port.listed(order_by="create_time", page_size=1)
    assert first[0].create_time.seconds == clock() // SECOND - 2
    newest = (
        f'create_time >= "{first[0].create_time.ToJsonString()[:-1]}Z" AND NOT create_time > "2999-01-01T00:00:00Z"'
    )
    assert len(await port.listed(filter=newest)) == 9
    for wrong, reason in (
        ("method = CreateTokn", "did you mean CreateToken"),
        ("code = DENIED", "must be one of OK"),
        ("who = boss", "must be a field: method, code, principal"),
    ):
        assert reason in (await refused(port.listed(filter=wrong))).message

    pages, token = [], ""
    while True:
        request = admin_pb2.ListAuditEntriesRequest(parent="projects/-", page_size=2, page_token=token)
        answer = await port.call("root", ADMIN + "ListAuditEntries", request)
        pages.append(len(answer.entries))
        token = answer.next_page_token
        if not token:
            break
    assert pages == [2, 2, 2, 2, 1]


async def test_old_entries_are_deleted_the_oldest_first(port: Port, db: Database, clock: TestClock) -> None:
    for _ in range(5):
        await port.call("boss", ADMIN + "CreateToken", _create())
        clock.pass_seconds(10)
    before = clock() - 25 * SECOND
    assert await db.write(audit.prune, before, 2) == 2
    assert len(await port.listed()) == 3
    assert await db.write(audit.prune, before, 2) == 1
    assert len(await port.listed()) == 2
