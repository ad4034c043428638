"""AdminService on both databases: tokens, projects and their quotas."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from tests.unit.service.conftest import Jobs, TestClock

from mvprune.common.identifiers import ID_RULE
from mvprune.v1 import admin_pb2
from mvprune_service.api.access.auth import Authenticator
from mvprune_service.api.access.errors import ApiError
from mvprune_service.api.admin import AdminServicer
from mvprune_service.clock import SECOND
from mvprune_service.db.engine.database import Database

CONTEXT: Any = None


async def _status() -> admin_pb2.ServerStatus:
    return admin_pb2.ServerStatus(version="1")


@pytest.fixture
def admin(db: Database, clock: TestClock) -> AdminServicer:
    return AdminServicer(db, Authenticator(db, clock), _status, clock)


async def create(admin: AdminServicer, parent: str = "projects/p", **request: Any) -> admin_pb2.CreateTokenResponse:
    given = {"token": {"scope": "READ", "display_name": "for tests"}, **request}
    return await admin.CreateToken(admin_pb2.CreateTokenRequest(parent=parent, **given), CONTEXT)


async def refused(call: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await call
    return caught.value


async def test_a_token_from_its_making_to_its_end(admin: AdminServicer, clock: TestClock) -> None:
    made = await create(admin, ttl={"seconds": 3600})
    token = made.token
    assert token.name.startswith("projects/p/tokens/token-")
    assert made.secret.startswith(f"mvp_{token.name.rpartition('/')[2]}_")
    assert (token.display_name, token.scope, token.creator) == ("for tests", admin_pb2.Token.READ, "local")
    assert token.expire_time.ToMicroseconds() - token.create_time.ToMicroseconds() == pytest.approx(3600e6, abs=1e3)
    assert not token.HasField("revoke_time")
    assert not token.HasField("last_use_time")

    clock.pass_seconds(10)
    revoked = await admin.RevokeToken(admin_pb2.RevokeTokenRequest(name=token.name), CONTEXT)
    assert revoked.revoke_time.seconds - token.create_time.seconds == 10
    clock.pass_seconds(10)
    assert await admin.RevokeToken(admin_pb2.RevokeTokenRequest(name=token.name), CONTEXT) == revoked
    listed = await admin.ListTokens(admin_pb2.ListTokensRequest(parent="projects/p"), CONTEXT)
    assert list(listed.tokens) == [revoked]
    assert made.secret not in str(listed)
    # The same id in another project is another token, which is not there.
    other = token.name.replace("projects/p/", "projects/-/")
    error = await refused(admin.RevokeToken(admin_pb2.RevokeTokenRequest(name=other), CONTEXT))
    assert error.code is grpc.StatusCode.NOT_FOUND


async def test_tokens_are_listed_newest_first_page_by_page(admin: AdminServicer) -> None:
    names = [(await create(admin)).token.name for _ in range(5)]
    await create(admin, "projects/q")
    operators = (await create(admin, "projects/-")).token.name
    assert operators.startswith("projects/-/tokens/")
    found, request = [], admin_pb2.ListTokensRequest(parent="projects/p", page_size=2)
    while True:
        page = await admin.ListTokens(request, CONTEXT)
        found.append([token.name for token in page.tokens])
        request.page_token = page.next_page_token
        if not request.page_token:
            break
    assert found == [names[:2:-1], names[2:0:-1], names[:1]]
    page = await admin.ListTokens(admin_pb2.ListTokensRequest(parent="projects/-"), CONTEXT)
    assert [token.name for token in page.tokens] == [operators]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"parent": "projects/P"}, "parent"),
        ({"parent": "projects/p/jobs/j"}, "parent"),
        ({"token": {}}, "token.scope"),
        ({"ttl": {"seconds": 59}}, "ttl"),
        ({"ttl": {"seconds": -60}}, "ttl"),
        ({"ttl": {"seconds": 3650 * 86_400 + 1}}, "ttl"),
    ],
)
async def test_tokens_that_cannot_be_made(change: dict[str, Any], field: str, admin: AdminServicer) -> None:
    error = await refused(create(admin, **change))
    assert [violation.field for violation in error.violations] == [field]
    assert f"{field}: must be " in error.message
    assert ", got " in error.message


async def test_projects_are_those_ever_used_with_what_they_have(admin: AdminServicer, jobs: Jobs) -> None:
    await create(admin, "projects/tokens-only")
    await create(admin, "projects/-")
    await jobs.create("a")
    await jobs.create("b")
    changed = await admin.UpdateProject(
        admin_pb2.UpdateProjectRequest(project={"name": "projects/p", "max_queued_jobs": 7, "max_running_gpus": 1.5}),
        CONTEXT,
    )
    assert changed == admin_pb2.Project(name="projects/p", max_queued_jobs=7, max_running_gpus=1.5, queued_jobs=2)
    found, request = [], admin_pb2.ListProjectsRequest(page_size=1)
    while True:
        page = await admin.ListProjects(request, CONTEXT)
        found += page.projects
        request.page_token = page.next_page_token
        if not request.page_token:
            break
    assert found == [changed, admin_pb2.Project(name="projects/tokens-only")]
    # All are set: what is left out goes back to the default.
    request = admin_pb2.UpdateProjectRequest(project={"name": "projects/p", "max_running_gpus": 0})
    changed = await admin.UpdateProject(request, CONTEXT)
    assert not changed.HasField("max_queued_jobs")
    assert changed.max_running_gpus == 0
    assert changed.HasField("max_running_gpus")


@pytest.mark.parametrize(
    ("project", "field"),
    [
        ({"name": "projects/-"}, "project.name"),
        ({"name": ""}, "project.name"),
        ({"name": "projects/p", "max_queued_jobs": -1}, "project.max_queued_jobs"),
        ({"name": "projects/p", "max_queued_jobs": 1_000_001}, "project.max_queued_jobs"),
        ({"name": "projects/p", "max_running_gpus": -0.5}, "project.max_running_gpus"),
        ({"name": "projects/p", "max_running_gpus": 100_001}, "project.max_running_gpus"),
        ({"name": "projects/p", "max_upload_bytes": -1}, "project.max_upload_bytes"),
        ({"name": "projects/p", "max_upload_bytes": (1 << 50) + 1}, "project.max_upload_bytes"),
    ],
)
async def test_quotas_that_cannot_be_set(project: dict[str, Any], field: str, admin: AdminServicer) -> None:
    error = await refused(admin.UpdateProject(admin_pb2.UpdateProjectRequest(project=project), CONTEXT))
    assert [violation.field for violation in error.violations] == [field]


async def test_the_rule_for_a_project_s_name_is_told(admin: AdminServicer) -> None:
    request = admin_pb2.UpdateProjectRequest(project={"name": "projects/A"})
    (violation,) = (await refused(admin.UpdateProject(request, CONTEXT))).violations
    assert violation.description == f"must be projects/PROJECT ({ID_RULE}), got 'projects/A'"


async def test_the_status_comes_from_whoever_knows(admin: AdminServicer) -> None:
    assert (await admin.GetServerStatus(admin_pb2.GetServerStatusRequest(), CONTEXT)).version == "1"


async def test_a_lifetime_is_rounded_up(admin: AdminServicer) -> None:
    token = (await create(admin, ttl={"seconds": 60, "nanos": 1})).token
    assert token.expire_time.ToMicroseconds() - token.create_time.ToMicroseconds() >= 60 * SECOND


async def test_a_project_with_what_it_has(admin: AdminServicer, jobs: Jobs) -> None:
    await jobs.create("a")
    await jobs.create("b")
    await jobs.cancel("b")
    project = await admin.GetProject(admin_pb2.GetProjectRequest(name="projects/p"), CONTEXT)
    assert (dict(project.jobs), project.queued_jobs) == ({"QUEUED": 1, "CANCELLED": 1}, 1)
    unused = await admin.GetProject(admin_pb2.GetProjectRequest(name="projects/unused"), CONTEXT)
    assert (dict(unused.jobs), unused.artifacts, unused.name) == ({}, 0, "projects/unused")
    error = await refused(admin.GetProject(admin_pb2.GetProjectRequest(name="p"), CONTEXT))
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
