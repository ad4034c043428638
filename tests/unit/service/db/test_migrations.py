"""The migrations: they give the schema that the code is written against, and lose nothing on the way there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, MetaData, Table, create_engine, inspect, text
from sqlalchemy.exc import IntegrityError
from tests.neighbours import PostgresServer
from tests.waiting import PATIENCE, until

from mvprune.v1 import job_pb2
from mvprune_migrations import HEAD, LOCK, SchemaMismatch, config_for, revisions, state, upgrade
from mvprune_service.db.attempt_logs import LONG_BYTES
from mvprune_service.db.database import Database
from mvprune_service.db.schema import METADATA

Rows = dict[str, list[dict[str, Any]]]
RENAMED = {"teaches": "teacher_key"}

SPEC = job_pb2.CompressionSpec(model="bert-base-uncased", task="sst2", target_density=0.1, movement={})
DENSE = job_pb2.CompressionSpec(model="other", task="squad", magnitude={})
MANIFEST = {"primary_metric": "accuracy", "metrics": {"eval/accuracy": 0.5, "delta/accuracy": -0.25, "eval/f1": 0.9}}
FILLED = ("creator", "task", "model", "method", "rank_us", "priority", "ran_us", "accumulation_factor")
FILLED += ("primary_metric", "metric", "difference", "duration_us")
# job → its state, attempt, attempt's state, labels and spec
JOBS: dict[str, tuple[str, str | None, dict[str, str], job_pb2.CompressionSpec]] = {
    "queued": ("QUEUED", None, {"team": "red", "ünï": "¿çødé"}, SPEC),
    "starting": ("STARTING", "SUBMITTED", {}, SPEC),
    "running": ("RUNNING", "RUNNING", {"team": "blue", "empty": ""}, DENSE),
    "cancelling": ("CANCELLING", "RUNNING", {}, SPEC),
    "succeeded": ("SUCCEEDED", "SUCCEEDED", {"team": "red"}, DENSE),
    "failed": ("FAILED", "LOST", {}, SPEC),
    "cancelled": ("CANCELLED", None, {}, SPEC),
}


def _job(uid: str, number: int) -> dict[str, Any]:
    job_state, attempt, labels, spec = JOBS[uid]
    over = job_state in ("SUCCEEDED", "FAILED", "CANCELLED")
    return {
        "uid": uid,
        "project": "p",
        "job_id": f"job-{uid}",
        "display_name": "It's 100 % “quoted”",
        "spec": spec.SerializeToString(),
        "policy": b"\x00\xff",
        "labels": labels,
        "model_size": None,
        "state": job_state,
        "state_reason": "WAITING_FOR_TEACHER" if uid == "queued" else "",
        "failure_reason": "WORKER_LOST" if job_state == "FAILED" else None,
        "artifact_sha256": "ab" * 32 if job_state == "SUCCEEDED" else None,
        "metrics": {"eval/accuracy": 0.5},
        "attempt": 1 if attempt else 0,
        "attempts_left": 2,
        "fencing_token": 3,
        "not_before_us": 0,
        "create_us": 1_800_000_000_000_000 + number,
        "start_us": 1_800_000_000_000_040 if attempt else None,
        "end_us": 1_800_000_000_000_100 if over else None,
        "update_us": 1_800_000_000_000_100,
        "version": 5,
        "last_sequence": 2,
        "teacher_uid": "succeeded" if uid == "queued" else None,
        "teacher_key": "digest" if uid == "succeeded" else None,
        # what a job of a newer revision would have anyway
        "creator": "local",
        "task": spec.task,
        "model": spec.model,
        "method": spec.WhichOneof("method"),
        "priority": 0,
        "rank_us": 1_800_000_000_000_000 + number,
        "ran_us": 0,
        "accumulation_factor": 1,
        "duration_us": 60 if over and attempt else None,
        "primary_metric": "accuracy" if job_state == "SUCCEEDED" else None,
        "metric": 0.5 if job_state == "SUCCEEDED" else None,
        "difference": -0.25 if job_state == "SUCCEEDED" else None,
        "sweep_id": "s" if uid in ("queued", "succeeded") else None,
    }


def _attempt(uid: str) -> dict[str, Any]:
    attempt_state = JOBS[uid][1]
    return {
        "uid": f"attempt-{uid}",
        "job_uid": uid,
        "number": 1,
        "state": attempt_state,
        "fencing_token": 3,
        "executor": "ray",
        "executor_ref": f"ref-{uid}",
        "cpus": 1.5,
        "gpus": 0.25,
        "memory_bytes": 1 << 40,
        "parts": 1,
        "node": "n",
        "log_bytes": 6,
        "create_us": 1,
        "start_deadline_us": 2,
        "end_us": 3 if attempt_state in ("SUCCEEDED", "LOST") else None,
    }


def _sweeps() -> Rows:
    """Two sweeps: one with points with and without a job, with and without a result; one without recommendation."""
    sweep = {
        "project": "p",
        "display_name": "“ünï”",
        "spec": b"\x00\xff",
        "policy": b"",
        "labels": {"team": "red"},
        "notes": ["a note"],
        "model_sizes": {"bert-base-uncased": "AA=="},
        "creator": "local",
        "inputs_us": 7,
        "state": "ACTIVE",
        "state_reason": "WAITING_FOR_QUOTA",
        "recommendation": b"\x08\x01",
        "front": [2],
        "create_us": 1,
        "active_us": 2,
        "end_us": None,
        "update_us": 3,
        "version": 4,
        "last_sequence": 1,
    }
    ended = {"state": "FAILED", "state_reason": "NOTHING_SUCCEEDED", "recommendation": None, "front": [], "end_us": 9}
    point = {"sweep_uid": "sweep", "spec": b"\x00\xff", "reused": False, "again": False, "skip_reason": ""}
    result = {"metrics": {"eval/accuracy": 0.5}, "total_bytes": 10}
    event = {"sweep_uid": "sweep", "time_us": 1, "type": "SWEEP_CREATED", "actor": "local", "details": {"points": "3"}}
    return {
        "sweeps": [sweep | {"uid": "sweep", "sweep_id": "s"}, sweep | {"uid": "ended", "sweep_id": "e"} | ended],
        "sweep_points": [
            point
            | {"number": number, "cell": {"density": 0.1 * number, "method": None}, "spec_sha256": f"{number}"}
            | own
            for number, own in enumerate(
                (
                    {"job_uid": "queued", "job_id": "job-queued", "result": None},
                    {"job_uid": "succeeded", "job_id": "job-succeeded", "result": result, "reused": True},
                    {"job_uid": None, "job_id": "", "result": None, "skip_reason": "BUDGET_USED"},
                    {"job_uid": "failed", "job_id": "job-failed", "result": None, "again": True},
                ),
                1,
            )
        ],
        "sweep_events": [event | {"sequence": 1}],
        "sweep_requests": [
            {"project": "p", "request_id": "r", "body_sha256": "cd" * 32, "sweep_uid": "sweep", "create_us": 1}
        ],
    }


def _uploads() -> Rows:
    """A model that is complete and used, and a data file of which a chunk is missing. They share a chunk."""
    upload = {"project": "p", "creator": "local", "create_us": 1, "used_us": 2, "ready_us": None}
    chunk = {"project": "p", "size_bytes": 3, "create_us": 1}
    files = [{"path": "“ünï”.json", "size_bytes": 3, "chunks": ["aa"]}]
    return {
        "uploads": [
            upload
            | {"digest": "d1", "kind": "model", "display_name": "m", "files": files, "total_bytes": 3}
            | {"ready_us": 3},
            upload | {"digest": "d2", "kind": "data", "display_name": "“ünï”", "files": [], "total_bytes": 1 << 40},
        ],
        "upload_chunks": [
            chunk | {"sha256": "aa", "uid": "u1", "is_ready": True},
            chunk | {"sha256": "bb", "uid": "u2", "is_ready": False},
        ],
        "upload_parts": [
            {"project": "p", "digest": digest, "sha256": sha256}
            for digest, sha256 in (("d1", "aa"), ("d2", "aa"), ("d2", "bb"))
        ],
        "job_uploads": [{"job_uid": "queued", "project": "p", "digest": "d1"}],
        "sweep_uploads": [{"sweep_uid": "sweep", "project": "p", "digest": "d1"}],
    }


def sample() -> Rows:
    """Rows for every table, with all columns that any revision wants."""
    attempts = [_attempt(uid) for uid, job in JOBS.items() if job[1]]
    of = [{"job_uid": row["job_uid"], "attempt_uid": row["uid"]} for row in attempts]
    event = {"actor": "local", "from_state": None, "to_state": "QUEUED", "details": {"a": "b"}}
    metric = {"attempt": 1, "metric": "loss", "step": 1, "value": 0.1, "time_us": 1}
    chunk = {"size_bytes": 1 << 20, "sha256": "ab" * 32, "stored_bytes": 1 << 33, "create_us": 1}
    token = {"project": "p", "display_name": "", "scope": "READ", "creator": "local", "create_us": 1}
    labelled = [(uid, key, value) for uid, job in JOBS.items() for key, value in job[2].items()]
    return {
        "jobs": [_job(uid, number) for number, uid in enumerate(JOBS)],
        "attempts": attempts,
        "events": [
            {"job_uid": uid, "sequence": n, "time_us": n, "type": "JOB_CREATED", **event}
            for uid in JOBS
            for n in (1, 2)
        ],
        "requests": [
            {"project": "p", "request_id": f"r-{uid}", "body_sha256": "cd" * 32, "job_uid": uid, "create_us": 1}
            for uid in JOBS
        ],
        "artifacts": [
            {
                "project": "p",
                "sha256": sha256 * 32,
                "job_uid": job_uid,
                "attempt": 1,
                "manifest_bytes": 10,
                "manifest": manifest,
                "create_us": 1,
            }
            for sha256, job_uid, manifest in (("ab", "succeeded", MANIFEST), ("ef", None, {"files": []}))
        ],
        "metrics": [{"id": number, **ids, **metric} for number, ids in enumerate(of, 1)],
        "logs": [{"attempt_uid": ids["attempt_uid"], "offset": 0, "data": b"\x00\xfflog\n"} for ids in of],
        "log_chunks": [
            {**chunk, "attempt_uid": ids["attempt_uid"], "offset": 7, "uid": f"c-{ids['attempt_uid']}"} for ids in of
        ],
        "long_logs": [{"attempt_uid": "attempt-running", "moved_bytes": 1 << 40, "due_us": 2}],
        "labels": [{"job_uid": uid, "key": key, "value": value, "project": "p"} for uid, key, value in labelled],
        "checkpoints": [{**ids, "step": 7, "manifest_sha256": "ab" * 32, "create_us": 1} for ids in of],
        "tokens": [{"token_id": "t", "secret_sha256": "ab" * 32, **token}],
        "quarantine": [{"part": "a", "key": "blobs/sha256/ab", "modified_us": 1, "found_us": 2}],
        "projects": [{"project": "p", "max_queued_jobs": 3, "max_running_gpus": 0.5, "max_upload_bytes": 7}],
        **_sweeps(),
        **_uploads(),
    }


def fill(engine: Engine) -> None:
    """Puts the sample into a database of any revision, as far as that has tables and columns for it."""
    rows = sample()
    schema = _reflect(engine)
    with engine.begin() as conn:
        for table in schema.sorted_tables:
            if table.name == "installation":  # the one row is made with the table
                continue
            known = [{name: row.get(RENAMED.get(name, name)) for name in _names(table)} for row in rows[table.name]]
            assert known, f"the sample has no row for {table.name}"
            conn.execute(table.insert(), known)


def read(engine: Engine) -> Rows:
    """All rows of all tables, by primary key. Columns have their newest names."""
    with engine.connect() as conn:
        return {
            table.name: [
                {RENAMED.get(name, name): value for name, value in row._mapping.items()}
                for row in conn.execute(table.select().order_by(*table.primary_key))
            ]
            for table in _reflect(engine).sorted_tables
        }


def _names(table: Table) -> list[str]:
    return [column.name for column in table.columns]


def _reflect(engine: Engine) -> MetaData:
    schema = MetaData()
    schema.reflect(engine, only=lambda name, _: name != "alembic_version")
    for table in schema.tables.values():
        for column in table.columns:
            column.server_default = None
    return schema


def outline(engine: Engine) -> dict[str, Any]:
    """What the schema is made of."""
    found = inspect(engine)
    return {
        table: (
            sorted((column["name"], str(column["type"]), column["nullable"]) for column in found.get_columns(table)),
            sorted(check["name"] or "" for check in found.get_check_constraints(table)),
            sorted(
                (key["name"], *key["constrained_columns"], str(key["options"])) for key in found.get_foreign_keys(table)
            ),
            sorted(
                (
                    index["name"] or "",
                    str(index["column_names"]),
                    bool(index["unique"]),
                    "where" in str(index.get("dialect_options")),
                )
                for index in found.get_indexes(table)
            ),
        )
        for table in found.get_table_names()
    }


def assert_kept(before: Rows, after: Rows) -> None:
    """Every row is there, with every value that it had, as far as there are such tables and columns."""
    for table in before.keys() & after.keys():
        common = before[table][0].keys() & after[table][0].keys()
        old, new = ([{name: row[name] for name in common} for row in rows[table]] for rows in (before, after))
        assert new == old, table


REVISIONS = revisions(create_engine("sqlite://"))[::-1]


@pytest.fixture
def engine(new_database: Callable[..., str]) -> Iterator[Engine]:
    """An empty database."""
    db = Database(new_database(empty=True))
    yield db.engine
    db.close()


def test_the_newest_revision_is_the_schema(engine: Engine) -> None:
    upgrade(engine)
    upgrade(engine)  # again: nothing to do
    command.check(config_for(engine))  # raises where models and revisions differ
    assert REVISIONS[-1] == HEAD
    assert outline(engine).keys() == {*METADATA.tables, "alembic_version"}


@pytest.mark.parametrize("revision", REVISIONS)
def test_an_upgrade_loses_nothing(engine: Engine, revision: str) -> None:
    command.upgrade(config_for(engine), revision)
    fill(engine)
    before = read(engine)
    upgrade(engine)
    after = read(engine)
    assert_kept(before, after)
    assert after.keys() == METADATA.tables.keys()
    expected = sample()
    for job, told in zip(after["jobs"], sorted(expected["jobs"], key=lambda row: str(row["uid"])), strict=True):
        for name in FILLED:
            assert job[name] == told[name], name
    assert {(row["job_uid"], row["key"], row["value"], row["project"]) for row in after["labels"]} == {
        (row["job_uid"], row["key"], row["value"], row["project"]) for row in expected["labels"]
    }
    command.check(config_for(engine))


def test_long_logs_of_an_older_database_are_to_be_moved(engine: Engine) -> None:
    command.upgrade(config_for(engine), "0011")
    fill(engine)
    with engine.begin() as conn:
        for uid, size in (("succeeded", LONG_BYTES), ("failed", LONG_BYTES + 1), ("running", 1 << 26)):
            longer = text("UPDATE attempts SET log_bytes = :size WHERE job_uid = :uid")
            conn.execute(longer, {"size": size, "uid": uid})
    upgrade(engine)
    found = read(engine)
    assert [(row["attempt_uid"], row["moved_bytes"], row["due_us"]) for row in found["long_logs"]] == [
        ("attempt-failed", 0, 0),
        ("attempt-running", 0, 0),
    ]
    assert found["log_chunks"] == []


@pytest.mark.parametrize("revision", REVISIONS[:-1])
def test_the_way_back_and_forth_loses_nothing_that_both_know(engine: Engine, revision: str) -> None:
    upgrade(engine)
    whole = outline(engine)
    fill(engine)
    before = read(engine)
    command.downgrade(config_for(engine), revision)
    between = read(engine)
    assert_kept(before, between)
    upgrade(engine)
    assert_kept(between, read(engine))
    assert outline(engine) == whole


def test_the_way_back_leaves_nothing(engine: Engine) -> None:
    upgrade(engine)
    command.downgrade(config_for(engine), "base")
    assert outline(engine).keys() == {"alembic_version"}


@pytest.fixture
def next_revision(tmp_path: Path) -> Callable[[Engine, str], Any]:
    """Alembic's configuration with a revision after the newest, which does what it is given."""

    def config(engine: Engine, body: str) -> Any:
        (tmp_path / "versions").mkdir()
        (tmp_path / "versions" / "next.py").write_text(
            f"from alembic import op\nrevision, down_revision = 'next', {HEAD!r}\ndef upgrade():\n    {body}\n"
        )
        made = config_for(engine)
        made.set_main_option("path_separator", "newline")
        own = Path(ScriptDirectory.from_config(made).versions)
        made.set_main_option("version_locations", f"{own}\n{tmp_path / 'versions'}")
        return made

    return config


@pytest.mark.parametrize("new_database", ["sqlite"], indirect=True)
def test_a_table_that_is_written_anew_takes_nothing_with_it(engine: Engine, next_revision: Any) -> None:
    upgrade(engine)
    fill(engine)
    before = read(engine)
    anew = "with op.batch_alter_table('jobs', recreate='always') as t: t.alter_column('state', server_default='x')"
    command.upgrade(next_revision(engine, anew), "next")
    assert read(engine) == before
    with pytest.raises(IntegrityError), engine.begin() as conn:  # foreign keys are watched again
        conn.exec_driver_sql("INSERT INTO logs VALUES ('nobody', 0, '')")


@pytest.mark.parametrize("new_database", ["sqlite"], indirect=True)
def test_a_revision_that_leaves_orphans_is_undone(engine: Engine, next_revision: Any) -> None:
    upgrade(engine)
    fill(engine)
    before = read(engine)
    with pytest.raises(RuntimeError, match="jobs"):
        command.upgrade(next_revision(engine, "op.execute(\"DELETE FROM jobs WHERE uid = 'running'\")"), "next")
    assert read(engine) == before


@pytest.mark.parametrize(
    "body", ["op.execute(\"DELETE FROM jobs WHERE uid = 'running'\"); 1 / 0", "op.drop_table('logs'); 1 / 0"]
)
def test_a_revision_that_fails_changes_nothing(engine: Engine, next_revision: Any, body: str) -> None:
    upgrade(engine)
    fill(engine)
    before = read(engine)
    with pytest.raises(ZeroDivisionError):
        command.upgrade(next_revision(engine, body), "next")
    assert read(engine) == before
    assert state(engine).found == HEAD


def test_replicas_that_start_together_migrate_once(postgres: PostgresServer) -> None:
    url = postgres.create(empty=True)
    start = "import sys; from mvprune_service.db.opening import migrate; migrate(sys.argv[1])"
    with psycopg.connect(url.replace("+psycopg", "")) as first:
        first.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
        replicas = [subprocess.Popen([sys.executable, "-c", start, url]) for _ in range(2)]
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        until(lambda: postgres.execute(waiting) == [(2,)], "both have found an empty database")
    assert [replica.wait(PATIENCE) for replica in replicas] == [0, 0]
    with closing(Database(url)) as db:
        assert state(db.engine).is_current
    postgres.drop(url)


def test_a_newer_versions_database_is_left_alone(engine: Engine) -> None:
    upgrade(engine)
    with engine.begin() as conn:
        conn.exec_driver_sql("UPDATE alembic_version SET version_num = 'f00d'")
    with pytest.raises(SchemaMismatch, match=rf"revision f00d, made by a newer version; .* {HEAD}"):
        state(engine)


def test_tables_without_a_revision_are_left_alone(engine: Engine) -> None:
    with engine.begin() as conn:
        conn.exec_driver_sql("CREATE TABLE jobs (x INTEGER)")
    with pytest.raises(SchemaMismatch, match="no revision, but tables: jobs"):
        state(engine)
