"""Orders of lists of jobs: pages together are the whole list, and no page reads more than it needs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, event, insert
from tests.unit.service.conftest import TestClock

from mvprune.v1 import job_pb2
from mvprune_service.api.messages.filters import parse_filter
from mvprune_service.api.messages.pagination import make_token, read_token
from mvprune_service.db import lifecycle
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.job_order import ORDERS, LabelOrder, Order
from mvprune_service.db.records import page_of_jobs
from mvprune_service.db.tables.jobs import JOBS, LABELS

_VALUES = {"metric": "metric", "difference": "difference", "duration": "duration_us", "failure": "failure_reason"}
_FRACTIONS = st.sampled_from([None, -1e308, -0.25, -0.0, 0.0, 5e-324, 0.1, 0.1 + 2**-56, 1.0]) | st.floats(
    allow_nan=False, allow_infinity=False
)
_JOBS = st.lists(
    st.fixed_dictionaries(
        {
            "metric": _FRACTIONS,
            "difference": _FRACTIONS,
            "duration_us": st.sampled_from([None, 0, 1, 1 << 40]),
            "failure_reason": st.sampled_from([None, "NAN_LOSS", "DISK_FULL"]),
            "task": st.sampled_from(["", "sst2", "squad"]),
            "create_us": st.integers(1, 3),
            "labels": st.dictionaries(
                st.sampled_from(["team", "a/b"]), st.sampled_from(["", "a", "B", "é", "\U0001f600"])
            ),
        }
    ),
    max_size=12,
)


@pytest.fixture
def conn(new_database: Callable[..., str], clock: TestClock) -> Iterator[Connection]:
    """A connection to an empty database. What is written through it is not committed."""
    with closing(Database(new_database(), clock)) as db, db.engine.connect() as conn:
        yield conn


def add(conn: Connection, project: str, jobs: list[dict[str, Any]]) -> list[str]:
    """Stores jobs with these values; returns their uids."""
    spec = job_pb2.CompressionSpec(model="m", task="sst2", l0={})
    new = lifecycle.NewJob(project, "first", spec, job_pb2.ExecutionPolicy(max_attempts=1), "me")
    first = lifecycle.create(Tx(conn, 1), new, actor="me")._asdict()
    uids = [f"{project}-{number:04}" for number in range(len(jobs))]
    rows = [first | job | {"uid": uid, "job_id": uid} for uid, job in zip(uids, jobs, strict=True)]
    conn.execute(JOBS.delete().where(JOBS.c.uid == first["uid"]))
    if rows:
        conn.execute(insert(JOBS), rows)
    labels = [
        {"job_uid": row["uid"], "key": key, "value": value, "project": project}
        for row in rows
        for key, value in row["labels"].items()
    ]
    if labels:
        conn.execute(insert(LABELS), labels)
    return uids


def pages(conn: Connection, project: str, order: Order | LabelOrder, size: int) -> Iterator[list[Any]]:
    """The list, page by page, with a token between two pages as between two calls."""
    after = None
    while page := page_of_jobs(conn, project, None, order, after, size):
        yield page
        after = read_token(make_token(*order.key(page[-1])), *order.key_types)


def test_pages_together_are_the_whole_list(conn: Connection) -> None:
    projects = itertools.count()

    @given(_JOBS, st.sampled_from(ORDERS), st.booleans(), st.integers(1, 5))
    def check(jobs: list[dict[str, Any]], order: str, descending: bool, size: int) -> None:
        project = f"p{next(projects)}"
        uids = add(conn, project, jobs)
        known = dict(zip(uids, jobs, strict=True))

        def age(uid: str) -> tuple[int, str]:
            return known[uid]["create_us"], uid

        def value(uid: str) -> Any:
            return known[uid].get(_VALUES.get(order, order), "")

        with_value = sorted((uid for uid in uids if value(uid) is not None), key=age, reverse=descending)
        if order != "create_time":
            with_value.sort(key=lambda uid: (value(uid), *age(uid)), reverse=descending)
        without = sorted((uid for uid in uids if value(uid) is None), key=age, reverse=descending)
        found = list(pages(conn, project, Order(order, descending), size))
        assert [row.uid for page in found for row in page] == with_value + without
        assert all(len(page) == size for page in found[:-1])

    check()


def test_pages_by_a_label_together_are_the_whole_list(conn: Connection) -> None:
    projects = itertools.count()

    @given(_JOBS, st.booleans(), st.integers(1, 5))
    def check(jobs: list[dict[str, Any]], descending: bool, size: int) -> None:
        project = f"p{next(projects)}"
        uids = add(conn, project, jobs)
        known = dict(zip(uids, jobs, strict=True))
        labelled = [uid for uid in uids if "team" in known[uid]["labels"]]
        labelled.sort(key=lambda uid: (known[uid]["labels"]["team"].encode(), uid), reverse=descending)
        others = [uid for uid in uids if "team" not in known[uid]["labels"]]
        others.sort(key=lambda uid: (known[uid]["create_us"], uid), reverse=descending)
        found = list(pages(conn, project, LabelOrder("team", descending), size))
        assert [row.uid for page in found for row in page] == labelled + others
        assert all(len(page) == size for page in found[:-1])

    check()


@pytest.fixture
def plans(conn: Connection) -> Iterator[Callable[[Callable[[], Any]], list[str]]]:
    """Runs something; returns the plans of its statements. On PostgreSQL, which sorts and scans tables that are small,
    this is made as expensive as it can be."""
    sent: list[tuple[str, Any]] = []

    def record(on: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        sent.append((statement, parameters))

    postgres = conn.dialect.name == "postgresql"
    for setting in ("seqscan", "sort", "incremental_sort", "bitmapscan") if postgres else ():
        conn.exec_driver_sql(f"SET enable_{setting} = off")

    def of(run: Callable[[], Any]) -> list[str]:
        sent.clear()
        run()
        explain = "EXPLAIN " if postgres else "EXPLAIN QUERY PLAN "
        return [
            "\n".join(str(row[-1]) for row in conn.exec_driver_sql(explain + statement, parameters))
            for statement, parameters in list(sent)
        ]

    event.listen(conn, "before_cursor_execute", record)
    yield of
    event.remove(conn, "before_cursor_execute", record)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("order", ORDERS)
def test_a_page_reads_the_index_of_its_order(conn: Connection, plans: Any, order: str, descending: bool) -> None:
    by = Order(order, descending)
    filled = {"metric": 0.5, "difference": 0.5, "duration_us": 5, "failure_reason": "NAN_LOSS"}
    add(conn, "p", [filled, filled, dict.fromkeys(filled), dict.fromkeys(filled)])
    keys = [by.key(row) for page in pages(conn, "p", by, 2) for row in page]
    partial: set[bool] = set()
    for after in (None, *keys):
        for plan in plans(lambda after=after: page_of_jobs(conn, "p", None, by, after, 10)):
            column = _VALUES.get(order, order).replace("create_time", "create_us")
            without = any(word in plan for word in ("create_us (project=?", "project_create_us"))
            assert f"ix_jobs_project_{column}" in plan or (without and order in _VALUES), plan
            partial.add(without)
            assert "project =" in plan or "(project=?" in plan, plan
            assert not any(word in plan for word in ("SCAN", "TEMP B-TREE", "Seq Scan", "Sort")), plan
    assert len(partial) == 1 + (order in _VALUES), "jobs with a value have an index of their own"


@pytest.mark.parametrize("descending", [False, True])
def test_a_page_by_a_label_reads_the_index_of_labels(conn: Connection, plans: Any, descending: bool) -> None:
    by = LabelOrder("team", descending)
    add(conn, "p", [{"labels": labels} for labels in ({"team": "a"}, {"team": "b"}, {}, {"a/b": "c"}) * 50])
    if conn.dialect.name == "postgresql":
        conn.exec_driver_sql("ANALYZE jobs, labels")
    keys = [by.key(row) for page in pages(conn, "p", by, 50) for row in page]
    for after, of_labels in ((None, True), (keys[0], True), (keys[100], False)):
        plan = plans(lambda after=after: page_of_jobs(conn, "p", None, by, after, 10))[0]
        assert ("ix_labels_project_key_value" in plan) == of_labels, plan
        assert ("ix_jobs_project_create_us" in plan) != of_labels, plan
        assert not any(word in plan for word in ("SCAN", "TEMP B-TREE", "Seq Scan", "Sort")), plan


def test_a_filter_by_labels_and_an_order_by_another_go_together(conn: Connection) -> None:
    uids = add(conn, "p", [{"labels": labels} for labels in ({"team": "b", "a/b": ""}, {"a/b": ""}, {"team": "a"})])
    given = parse_filter('labels:a/b AND NOT labels.team = "a"')
    for descending in (False, True):
        found = page_of_jobs(conn, "p", given, LabelOrder("team", descending), None, 10)
        assert [row.uid for row in found] == uids[:2]


@pytest.mark.parametrize(
    "given", ["metric > 0.9", "difference <= -0.01", "duration >= 60", "failure = NAN_LOSS", "failure != NAN_LOSS"]
)
def test_a_filter_reads_only_its_project(conn: Connection, plans: Any, given: str) -> None:
    for order in ORDERS:
        for plan in plans(lambda by=order: page_of_jobs(conn, "p", parse_filter(given), Order(by, True), None, 10)):
            assert "project =" in plan or "(project=?" in plan, plan
            assert not any(word in plan for word in ("SCAN", "Seq Scan")), plan
