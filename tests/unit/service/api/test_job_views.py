"""JobService without a network: changes of a job's names and note, its metrics, the queue, and jobs that change."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from sqlalchemy import update
from tests.unit.service.api.test_jobs import Api
from tests.unit.service.conftest import Jobs, ScriptedExecutor

from mvprune.v1 import job_pb2
from mvprune_service.api.access.errors import ApiError
from mvprune_service.clock import SECOND
from mvprune_service.db import leases, records
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.tables.jobs import JOBS
from mvprune_service.domain.placement import Reserved


@pytest.fixture
def api(db: Database, executor: ScriptedExecutor) -> Api:
    return Api(db, executor)


async def test_a_change_of_names_labels_and_note_is_an_event(api: Api) -> None:
    job = await api.create(labels={"team": "search", "draft": ""})
    changed = await api.call(
        "UpdateJob",
        displayName="first",
        setLabels={"team": "ads", "stage": "1"},
        removeLabels=["draft", "gone"],
        note="two\nlines",
        comment="agreed",
        etag=job.etag,
    )
    assert (changed.display_name, dict(changed.labels)) == ("first", {"team": "ads", "stage": "1"})
    assert (changed.note, changed.etag != job.etag) == ("two\nlines", True)
    found = await api.call("ListJobs", parent="projects/p", filter='labels.team = "ads" AND NOT labels:draft')
    assert [one.name for one in found.jobs] == [job.name]
    events = (await api.call("ListJobEvents", parent=job.name)).events
    assert (events[-1].type, dict(events[-1].details)) == (
        "UPDATED",
        {"display_name": "first", "labels": "stage=1, team=ads", "note": "two\nlines", "comment": "agreed"},
    )

    assert await api.call("UpdateJob", displayName="first") == changed, "nothing is new: there is no event"
    emptied = await api.call("UpdateJob", displayName="", note="")
    assert (emptied.display_name, emptied.note, dict(emptied.labels)) == ("", "", {"team": "ads", "stage": "1"})
    with pytest.raises(ApiError) as refused:
        await api.call("UpdateJob", note="x", etag=job.etag)
    assert refused.value.code is grpc.StatusCode.ABORTED


async def test_a_change_that_is_refused(api: Api) -> None:
    await api.create(labels={f"l{index}": "" for index in range(30)})
    for request, field in (
        ({"setLabels": {"UPPER CASE": "x"}}, "set_labels"),
        ({"setLabels": {"a": "x" * 257}}, "set_labels.a"),
        ({"setLabels": {"a": ""}, "removeLabels": ["a"]}, "remove_labels"),
        ({"setLabels": {"a": "", "b": "", "c": ""}}, "set_labels"),
        ({"displayName": "x" * 201}, "display_name"),
    ):
        with pytest.raises(ApiError) as refused:
            await api.call("UpdateJob", **request)
        assert [violation.field for violation in refused.value.violations] == [field]


async def test_metrics_by_name_after_a_step_and_as_curves(api: Api, db: Database, jobs: Jobs) -> None:
    uid = await jobs.create("m")
    await db.write(leases.schedule, uid, Reserved(1, 0, 0), executor="x", start_timeout_us=SECOND)
    live = await jobs.live("m")
    curve = [("loss", step, step / 10, 1) for step in range(40)]
    rate = [("lr", step, 1.0, 1) for step in range(5)]
    await db.write(records.add_metrics, live.attempt, curve + rate)

    async def points(**request: Any) -> list[tuple[str, int]]:
        name = str(live.job.name)
        response = await api.call("ListMetrics", parent=name, **request)
        return [(point.metric, point.step) for point in response.points]

    assert await points(metrics=["lr"], afterStep=2) == [("lr", 3), ("lr", 4)]
    curves = await points(maxPoints=5)
    assert [one for one in curves if one[0] == "lr"] == [("lr", step) for step in range(5)]
    loss = [step for name, step in curves if name == "loss"]
    assert (len(loss), loss[0], loss[-1]) == (5, 0, 39)
    for request in ({"maxPoints": 2}, {"maxPoints": 1001}, {"maxPoints": 5, "pageSize": 3}, {"metrics": ["m"] * 51}):
        with pytest.raises(ApiError) as refused:
            await points(**request)
        assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT


async def test_the_queue_counts_the_jobs_of_all_projects(api: Api, db: Database, jobs: Jobs) -> None:
    for job in ("first", "second", "third"):
        await jobs.create(job)

    def change(tx: Tx) -> None:
        others = update(JOBS).where(JOBS.c.job_id == "second")
        tx.conn.execute(others.values(project="q"))
        tx.conn.execute(update(JOBS).where(JOBS.c.job_id == "third").values(state_reason="WAITING_FOR_QUOTA"))

    await db.write(change)
    queue = await api.call("GetQueue", parent="projects/p")
    assert [(entry.job, entry.ahead, entry.state_reason) for entry in queue.entries] == [
        ("projects/p/jobs/first", 0, ""),
        ("projects/p/jobs/third", 2, "WAITING_FOR_QUOTA"),
    ]
    assert (queue.queued_jobs, queue.running_jobs, queue.capacity.cpus > 0) == (3, 0, True)
    page = await api.call("GetQueue", parent="projects/p", pageSize=1)
    rest = await api.call("GetQueue", parent="projects/p", pageSize=1, pageToken=page.next_page_token)
    assert [*page.entries, *rest.entries] == list(queue.entries)
    assert rest.next_page_token == ""


async def test_the_jobs_of_a_project_that_change(api: Api, db: Database, jobs: Jobs) -> None:
    changes = api.servicer._changes
    db.on_commit = changes.announce
    feed = api.servicer.WatchJobs(
        job_pb2.WatchJobsRequest(parent="projects/p", filter="labels:keep OR state = QUEUED"),
        None,  # type: ignore[arg-type]
    )
    assert await anext(feed) == job_pb2.WatchJobsResponse()
    await api.create(job_id="b", labels={"keep": ""})
    await api.create()
    created = await anext(feed)
    assert sorted(job.name for job in created.jobs) == ["projects/p/jobs/a", "projects/p/jobs/b"]
    await api.call("CancelJob")
    assert await anext(feed) == job_pb2.WatchJobsResponse(removed=["projects/p/jobs/a"])
    await api.call("CancelJob", name="projects/p/jobs/b")
    assert [job.state for job in (await anext(feed)).jobs] == [job_pb2.Job.CANCELLED]
    await api.call("DeleteJob", name="projects/p/jobs/b")
    assert await anext(feed) == job_pb2.WatchJobsResponse(removed=["projects/p/jobs/b"])
    changes.announce(None)
    assert await anext(feed) == job_pb2.WatchJobsResponse(missed=True)
    await feed.aclose()


async def test_a_job_that_was_there_before_the_stream_leaves_it_once(api: Api, db: Database) -> None:
    db.on_commit = api.servicer._changes.announce
    await api.create(job_id="before", labels={"keep": ""})
    await api.create(job_id="last", labels={"keep": ""})
    request = job_pb2.WatchJobsRequest(parent="projects/p", filter="state = QUEUED")
    feed = api.servicer.WatchJobs(request, None)  # type: ignore[arg-type]
    assert await anext(feed) == job_pb2.WatchJobsResponse()
    await api.call("CancelJob", name="projects/p/jobs/before")
    assert await anext(feed) == job_pb2.WatchJobsResponse(removed=["projects/p/jobs/before"])
    await api.call("RetryJob", name="projects/p/jobs/before")
    assert [job.name for job in (await anext(feed)).jobs] == ["projects/p/jobs/before"]
    await api.call("CancelJob", name="projects/p/jobs/before")
    assert await anext(feed) == job_pb2.WatchJobsResponse(removed=["projects/p/jobs/before"])
    await api.call("UpdateJob", name="projects/p/jobs/before", note="x")  # which was said
    await api.call("CancelJob", name="projects/p/jobs/last")
    assert await anext(feed) == job_pb2.WatchJobsResponse(removed=["projects/p/jobs/last"])
    await feed.aclose()
