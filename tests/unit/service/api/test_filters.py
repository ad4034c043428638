"""Filters and orders of lists, against what Python says of the same jobs."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import update

from mvprune.sources.references import MAX_LENGTH
from mvprune.v1 import job_pb2
from mvprune_service.api.access.errors import ApiError
from mvprune_service.api.access.inputs import check_request
from mvprune_service.api.feeds import Feeds
from mvprune_service.api.jobs import JobServicer
from mvprune_service.api.messages.filters import ORDERS, parse_filter
from mvprune_service.api.messages.pagination import make_page, read_token
from mvprune_service.changes import Changes
from mvprune_service.db import lifecycle
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.tables.jobs import JOBS

_MODELS = ("bert-base-uncased", "org/mini lm", "é")
_TASKS = ("squad", "sst2")
_STATES = ("QUEUED", "RUNNING", "SUCCEEDED")
_TEAMS = (None, "search", "ads")
_METRICS = (None, 0.5, 0.875, 0.9, 0.9)  # with ties
_FAILURES = (None, "NAN_LOSS", "OUT_OF_MEMORY")


@pytest.fixture
async def servicer(db: Database) -> JobServicer:
    """54 jobs that differ in everything that can be asked for."""

    def work(tx: Tx) -> None:
        for number in range(54):
            labels = {"team": team} if (team := _TEAMS[number // 18]) else {}
            spec = job_pb2.CompressionSpec(model=_MODELS[number % 3], task=_TASKS[number % 2], l0={})
            policy = job_pb2.ExecutionPolicy(max_attempts=1, priority=number - 27)
            new = lifecycle.NewJob("p", f"j{number}", spec, policy, "me", labels=labels)
            uid = lifecycle.create(tx, new, actor="me").uid
            state = _STATES[number // 6 % 3]
            ended = tx.now if state == "SUCCEEDED" else None
            created = 1_769_860_800_000_000 + number // 2 * 1_000_000  # 2026-01-31T12:00:00Z and on, two at a time
            values: dict[str, Any] = {"state": state, "end_us": ended, "create_us": created}
            metric = _METRICS[number % 5]
            if metric is not None:
                metrics = {"eval/accuracy": metric, "delta/accuracy": metric - 0.9}
                values |= {"metrics": metrics, "primary_metric": "accuracy", "metric": metric}
                values |= {"difference": metric - 0.9}
            if number % 4:
                start, duration = created + 1_000_000, number % 4 * 1_500_000
                values |= {"start_us": start, "end_us": start + duration, "duration_us": duration, "state": "FAILED"}
            values |= {"failure_reason": _FAILURES[number % 3]}
            tx.conn.execute(update(JOBS).where(JOBS.c.uid == uid).values(values))
        new = lifecycle.NewJob(
            "other", "x", job_pb2.CompressionSpec(task="squad"), policy, "me", labels={"team": "ads"}
        )
        lifecycle.create(tx, new, actor="me")

    await db.write(work)
    changes = Changes()
    return JobServicer(db, changes, Feeds(db, changes), None, None)  # type: ignore[arg-type]


async def jobs_of(servicer: JobServicer, page_size: int = 500, **request: Any) -> list[job_pb2.Job]:
    """All pages."""
    found, token = [], ""
    while True:
        call = job_pb2.ListJobsRequest(parent="projects/p", page_size=page_size, page_token=token, **request)
        page = await servicer.ListJobs(call, None)
        found += page.jobs
        token = page.next_page_token
        if not token:
            return found
        assert len(page.jobs) == page_size


def _state(job: job_pb2.Job) -> str:
    return str(job_pb2.Job.State.Name(job.state))


def _metric(job: job_pb2.Job, prefix: str = "eval") -> float | None:
    return job.metrics.get(f"{prefix}/{job.primary_metric}")


def _duration(job: job_pb2.Job) -> float | None:
    if not (job.HasField("start_time") and job.HasField("end_time")):
        return None
    return (job.end_time.ToMicroseconds() - job.start_time.ToMicroseconds()) / 1e6


def _failure(job: job_pb2.Job) -> str | None:
    return job_pb2.Failure.Reason.Name(job.failure.reason) if job.HasField("failure") else None


FILTERS: list[tuple[str, Callable[[job_pb2.Job], bool]]] = [
    ("", lambda job: True),
    ("state = RUNNING", lambda job: _state(job) == "RUNNING"),
    ("state != RUNNING", lambda job: _state(job) != "RUNNING"),
    ("state = FAILED", lambda job: _state(job) == "FAILED"),
    ('task="squad"', lambda job: job.spec.task == "squad"),
    ('model = "org/mini lm"', lambda job: job.spec.model == "org/mini lm"),
    ("model=é AND method = l0", lambda job: job.spec.model == "é"),
    ("creator = you", lambda job: False),
    ('display_name = ""', lambda job: True),
    ("labels.team = search", lambda job: job.labels.get("team") == "search"),
    ("labels.team != search", lambda job: job.labels.get("team") != "search"),
    ("labels:team", lambda job: "team" in job.labels),
    ("NOT labels:team", lambda job: "team" not in job.labels),
    ("priority >= 20", lambda job: job.policy.priority >= 20),
    ("priority < -20", lambda job: job.policy.priority < -20),
    ("metric >= 0.9", lambda job: (_metric(job) or 0) >= 0.9),
    ("metric = 0.875", lambda job: _metric(job) == 0.875),
    ("metric != 0.5", lambda job: _metric(job) not in (None, 0.5)),
    ("NOT metric > 0.6", lambda job: not (_metric(job) or 0) > 0.6),
    ("difference < -0.01", lambda job: (_metric(job, "delta") or 0) < -0.01),
    ("difference >= -0.03 AND metric > 0", lambda job: _metric(job, "delta") in (0.875 - 0.9, 0.0)),
    ("duration > 1.5", lambda job: (_duration(job) or 0) > 1.5),
    ("duration <= 1.5 OR duration = 4.5", lambda job: _duration(job) in (1.5, 4.5)),
    ("failure = NAN_LOSS", lambda job: _failure(job) == "NAN_LOSS"),
    ("failure != NAN_LOSS", lambda job: _failure(job) != "NAN_LOSS"),
    ("NOT failure = NAN_LOSS OR metric = 0.5", lambda job: _failure(job) != "NAN_LOSS" or _metric(job) == 0.5),
    ('create_time > "2026-01-31T12:00:10Z"', lambda job: job.create_time.seconds > 1_769_860_810),
    ('create_time <= "2026-01-31T13:00:10+01:00"', lambda job: job.create_time.seconds <= 1_769_860_810),
    ('end_time > "2020-01-01T00:00:00Z"', lambda job: job.HasField("end_time")),
    ('NOT end_time > "2020-01-01T00:00:00Z"', lambda job: not job.HasField("end_time")),
    (
        "state = QUEUED AND task = squad OR labels.team = ads",
        lambda job: _state(job) == "QUEUED" and (job.spec.task == "squad" or job.labels.get("team") == "ads"),
    ),
    (
        "(state = QUEUED AND task = squad) OR labels.team = ads",
        lambda job: (_state(job) == "QUEUED" and job.spec.task == "squad") or job.labels.get("team") == "ads",
    ),
    (
        "NOT (state = QUEUED OR NOT task = squad)",
        lambda job: not (_state(job) == "QUEUED" or job.spec.task != "squad"),
    ),
]


async def test_filters(servicer: JobServicer) -> None:
    every = await jobs_of(servicer)
    assert len(every) == 54
    for given, holds in FILTERS:
        expected = [job.name for job in every if holds(job)]
        assert [job.name for job in await jobs_of(servicer, filter=given)] == expected, given
        paged = await jobs_of(servicer, 7 if len(expected) % 7 else 5, filter=given)
        assert [job.name for job in paged] == expected, given


def _age(job: job_pb2.Job) -> tuple[int, str]:
    return job.create_time.ToMicroseconds(), job.uid


async def test_orders(servicer: JobServicer) -> None:
    keys: dict[str, Callable[[job_pb2.Job], Any]] = {
        "create_time": lambda job: 0,
        "state": _state,
        "task": lambda job: job.spec.task,
        "model": lambda job: job.spec.model.encode(),
        "metric": _metric,
        "difference": lambda job: _metric(job, "delta"),
        "duration": _duration,
        "failure": _failure,
    }
    every = await jobs_of(servicer)
    for order, descending in itertools.product(ORDERS, (False, True)):
        with_value = [job for job in every if keys[order](job) is not None]
        without = [job for job in every if keys[order](job) is None]
        assert order in ("create_time", "state", "task", "model") or (with_value and without)
        with_value.sort(key=lambda job: (keys[order](job), *_age(job)), reverse=descending)
        expected = with_value + sorted(
            without, key=_age, reverse=descending
        )  # without a value: last in either direction
        given = f"{order} desc" if descending else order
        found = await jobs_of(servicer, 10, order_by=given, filter="priority > -28")
        assert [job.name for job in found] == [job.name for job in expected], given


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("state = WRONG", "must be one of QUEUED"),
        ("colour = red", "must be a field: state, failure, task"),
        ("state > QUEUED", "must be = or !="),
        ("task", "must be one of = != < <= > >= at character 5, got its end"),
        ("task =", "must be a value at character 7, got its end; quote it"),
        ("task = a b", "must be AND, OR or the end at character 10, got 'b'"),
        ("(task = a", "must be AND, OR or ) at character 10, got its end"),
        ("task = a)", "got ')'"),
        ('task = "a', "a field, a value"),
        ("priority = high", "a whole number"),
        ("metric > high", "must be a number at character 10, got 'high'; metrics are fractions: 0.9 is 90 %"),
        ("metric > nan", "must be a number"),
        ("difference > -inf", "differences are fractions: -0.01 is one point less"),
        ("duration > 5m", "must be a number of seconds at character 12, got '5m'"),
        ("duration > 1e300", "must be a number of seconds"),
        ("failure = NANLOSS", "must be one of INVALID_MODEL"),
        ("failure = NANLOSS", "did you mean NAN_LOSS?"),
        ("failure > NAN_LOSS", "must be = or !=: failure has no order"),
        (f"priority = {10**30}", "a whole number"),
        ("create_time > yesterday", "a time such as"),
        ('create_time > "2026-01-31T12:00:00"', "a time such as"),
        ("(" * 30 + "task = a" + ")" * 30, "no more than 20 parentheses"),
        ("a" * 1001, "must be at most 1000 characters, got 1001"),
        ("AND", "at character 4, got its end"),
        ("NOT", "got its end"),
    ],
)
def test_bad_filters(given: str, said: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse_filter(given)
    (violation,) = refused.value.violations
    assert violation.field == "filter"
    assert said in violation.description


async def test_bad_orders_and_tokens(servicer: JobServicer) -> None:
    for order in ("colour", "task up", "task desc desc", "labels.team up", "labels"):
        allowed = "create_time, state, task, model, metric, difference, duration, failure, labels.KEY"
        with pytest.raises(ApiError, match=f"order_by: must be one of {allowed}, .*, got"):
            await jobs_of(servicer, order_by=order)
    for key in ("", "-a", "a:b", "a" * 64, "é"):
        with pytest.raises(ApiError, match=r"order_by: must be labels\.KEY with a key of 1 to 63 letters, .*, got"):
            await jobs_of(servicer, order_by=f"labels.{key} desc")
    first = await servicer.ListJobs(job_pb2.ListJobsRequest(parent="projects/p", page_size=5), None)
    for other in ({"filter": "task = squad"}, {"order_by": "create_time"}, {"order_by": "task"}):
        call = job_pb2.ListJobsRequest(parent="projects/p", page_token=first.next_page_token, **other)
        with pytest.raises(ApiError, match="page_token: must be a token from an earlier page of this list"):
            await servicer.ListJobs(call, None)


@pytest.mark.parametrize("part", ["\ud800", "a\0", 1 << 62, True, float("nan"), float("inf"), [], {}])
def test_a_token_names_nothing_that_no_database_takes(part: Any) -> None:
    token = base64.urlsafe_b64encode(json.dumps([part]).encode()).decode()
    for kind in (str, int, float, float | None):
        with pytest.raises(ApiError, match="page_token: must be a token from an earlier page of this list"):
            read_token(token, kind)


async def test_pages_by_the_longest_name_of_a_model_go_on(servicer: JobServicer, db: Database) -> None:
    def rename(tx: Tx) -> None:
        tx.conn.execute(update(JOBS).values(model="\U0001f600" * MAX_LENGTH))

    await db.write(rename)
    call = job_pb2.ListJobsRequest(parent="projects/p", page_size=50, order_by="model")
    call.page_token = (await servicer.ListJobs(call, None)).next_page_token
    check_request(call)  # as every request is, before the servicer sees it
    assert len((await servicer.ListJobs(call, None)).jobs) == 4


def test_a_page_ends_where_a_client_would_take_no_more() -> None:
    sizes = [1 << 20, 1 << 20, 3 << 20, 10]

    def page(after: int) -> tuple[list[int], list[int] | None]:
        rows = range(after + 1, len(sizes))
        made, token = make_page(rows, 3, lambda row: job_pb2.Job(display_name="x" * sizes[row]), lambda row: (row,))
        return [len(job.display_name) for job in made], read_token(token, int)

    assert page(-1) == (sizes[:1], [0])
    assert page(0) == (sizes[1:2], [1])
    assert page(1) == (sizes[2:3], [2])  # too large, but else it would never come
    assert page(2) == (sizes[3:], None)
