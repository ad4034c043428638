"""Filter, order and pages of the lists that are none of jobs."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import insert, update
from tests.unit.service.conftest import Jobs, TestClock
from tests.unit.service.db.sample_rows import sample

from mvprune.sources.uploads import Kind
from mvprune.v1 import admin_pb2, artifact_pb2, sweep_pb2, upload_pb2
from mvprune_service.api.access.auth import Authenticator
from mvprune_service.api.access.errors import ApiError
from mvprune_service.api.admin import AdminServicer
from mvprune_service.api.artifacts import ArtifactServicer
from mvprune_service.api.messages.lists import SWEEP_LIST, UPLOAD_LIST
from mvprune_service.db import sweep_records, uploads
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.tables.artifacts import ARTIFACTS
from mvprune_service.db.tables.jobs import JOBS
from mvprune_service.db.tables.sweeps import SWEEPS
from mvprune_service.db.tables.uploads import UPLOADS

NOTHING: Any = None


async def add(db: Database, table: Any, rows: list[dict[str, Any]]) -> None:
    def work(tx: Tx) -> None:
        tx.conn.execute(insert(table), rows)

    await db.write(work)


async def sweeps(db: Database, **request: Any) -> list[str]:
    """The ids of sweeps, page by page."""
    found, asked = list[str](), sweep_pb2.ListSweepsRequest(page_size=2, **request)
    while True:
        page = SWEEP_LIST.asked(asked)
        rows = await db.read(sweep_records.page_of_sweeps, "p", page.page)
        messages, asked.page_token = page.answer(rows, lambda row: sweep_pb2.Sweep(name=row.sweep_id))
        found += [message.name for message in messages]
        if not asked.page_token:
            return found


async def test_sweeps_by_state_labels_and_time(db: Database) -> None:
    base = sample()["sweeps"][0]
    rows = [
        base
        | {"uid": f"{number}", "sweep_id": name, "create_us": number * 10**6, "labels": labels, "end_us": end}
        | {"state": state, "display_name": name.upper(), "creator": "token-a"}
        for number, (name, state, end, labels) in enumerate(
            [
                ("a", "ACTIVE", None, {"team": "red"}),
                ("b", "FAILED", 9 * 10**6, {"team": "blue"}),
                ("c", "SUCCEEDED", 5 * 10**6, {}),
                ("d", "ACTIVE", None, {"team": ""}),
            ],
            1,
        )
    ]
    await add(db, SWEEPS, rows)
    assert await sweeps(db) == ["d", "c", "b", "a"]
    assert await sweeps(db, order_by="create_time") == ["a", "b", "c", "d"]
    assert await sweeps(db, order_by="display_name desc") == ["d", "c", "b", "a"]
    assert await sweeps(db, order_by="end_time") == ["c", "b", "a", "d"]
    assert await sweeps(db, order_by="end_time desc") == ["b", "c", "d", "a"], "without an end they are last"
    assert await sweeps(db, filter="state = ACTIVE") == ["d", "a"]
    assert await sweeps(db, filter="labels.team = red OR display_name = C") == ["c", "a"]
    assert await sweeps(db, filter="NOT labels.team = red") == ["d", "c", "b"]
    assert await sweeps(db, filter="labels:team") == ["d", "b", "a"]
    assert await sweeps(db, filter='end_time > "1970-01-01T00:00:06Z"') == ["b"]
    for wrong in (
        {"filter": "task = sst2"},
        {"filter": "state = ENDED"},
        {"order_by": "creator"},
        {"order_by": "x y z"},
    ):
        with pytest.raises(ApiError) as refused:
            await sweeps(db, **wrong)
        assert [violation.field for violation in refused.value.violations] == list(wrong)
    first = SWEEP_LIST.asked(sweep_pb2.ListSweepsRequest(page_size=1))
    _, token = first.answer(await db.read(sweep_records.page_of_sweeps, "p", first.page), lambda _: sweep_pb2.Sweep())
    with pytest.raises(ApiError, match="page_token"):
        SWEEP_LIST.asked(sweep_pb2.ListSweepsRequest(page_token=token, filter="state = ACTIVE"))


async def test_uploads_by_kind_and_size(db: Database) -> None:
    base = sample()["uploads"][0]
    await add(
        db,
        UPLOADS,
        [
            base | {"digest": name * 64, "kind": Kind[kind], "total_bytes": size, "create_us": size}
            for name, kind, size in (("a", "MODEL", 30), ("b", "DATA", 20), ("c", "MODEL", 10))
        ],
    )

    async def listed(**request: Any) -> list[str]:
        asked = UPLOAD_LIST.asked(upload_pb2.ListUploadsRequest(**request))
        return [row.digest[0] for row in await db.read(uploads.page_of_uploads, "p", asked.page)]

    assert await listed() == ["a", "b", "c"]
    assert await listed(order_by="total_bytes") == ["c", "b", "a"]
    assert await listed(filter="kind = MODEL AND total_bytes > 15") == ["a"]


async def test_artifacts_by_what_their_jobs_were(db: Database, jobs: Jobs) -> None:
    await jobs.create("a")
    uid = (await jobs.get("a")).uid
    row = {"project": "p", "attempt": 1, "manifest_bytes": 0, "create_us": 1, "expire_us": None}
    manifest = {"files": [], "metrics": {}, "primary_metric": "", "accounting": {}}
    await add(
        db,
        ARTIFACTS,
        [
            row | {"sha256": letter * 64, "job_uid": job, "manifest": manifest}
            for letter, job in (("a", uid), ("b", None))
        ],
    )

    def change(tx: Tx) -> None:
        tx.conn.execute(update(JOBS).values(task="squad"))

    await db.write(change)
    servicer = ArtifactServicer(db, NOTHING)

    async def listed(**request: Any) -> list[str]:
        asked = artifact_pb2.ListArtifactsRequest(parent="projects/p", **request)
        return [one.name[-1] for one in (await servicer.ListArtifacts(asked, NOTHING)).artifacts]

    assert await listed(filter="task = squad") == ["a"]
    assert await listed(filter="NOT task = squad") == ["b"], "its job was deleted"
    assert await listed(order_by="expire_time") == ["a", "b"]


async def test_tokens_by_scope(db: Database, clock: TestClock) -> None:
    admin = AdminServicer(db, Authenticator(db, clock), NOTHING, clock)
    for scope in ("READ", "ADMIN"):
        await admin.CreateToken(
            admin_pb2.CreateTokenRequest(parent="projects/p", token={"scope": scope, "display_name": scope}), NOTHING
        )
    request = admin_pb2.ListTokensRequest(parent="projects/p", filter="scope = ADMIN")
    assert [token.display_name for token in (await admin.ListTokens(request, NOTHING)).tokens] == ["ADMIN"]
