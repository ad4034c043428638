"""The migrations: they give the schema that the code is written against, and lose nothing on the way there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, MetaData, Table, create_engine, inspect, text
from sqlalchemy.exc import IntegrityError
from tests.neighbours import PostgresServer
from tests.tiers import first_fast
from tests.unit.service.db.sample_rows import Rows, sample
from tests.waiting import PATIENCE, until

from mvprune_migrations import HEAD, LOCK, SchemaMismatch, config_for, revisions, state, upgrade
from mvprune_service.db.attempt_logs import LONG_BYTES
from mvprune_service.db.engine.database import Database
from mvprune_service.db.tables.schema import METADATA

_REFLECTED: dict[tuple[str, str], MetaData] = {}
RENAMED = {"teaches": "teacher_key"}
FILLED = {"creator", "task", "model", "method", "rank_us", "priority", "ran_us", "accumulation_factor"}
FILLED |= {"primary_metric", "metric", "difference", "duration_us"}


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


def empty(engine: Engine) -> None:
    """Deletes what `fill` has put there, and what migrations have made of it."""
    with engine.begin() as conn:
        for table in reversed(_reflect(engine).sorted_tables):
            if table.name != "installation":
                conn.execute(table.delete())


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
    """The tables at the database's revision. Tests of the same revision share them: reflecting takes a third of a
    second, and `outline` is what says whether a way to a revision gives the same tables as another."""
    with engine.connect() as conn:
        key = engine.dialect.name, conn.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one()
    if key in _REFLECTED:
        return _REFLECTED[key]
    schema = _REFLECTED[key] = MetaData()
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
            found.get_pk_constraint(table)["constrained_columns"],
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


def assert_filled(after: Rows) -> None:
    """The columns of jobs that migrations fill have the values that jobs of today have."""
    for job, told in zip(after["jobs"], sorted(sample()["jobs"], key=lambda row: str(row["uid"])), strict=True):
        for name in job.keys() & FILLED:
            assert job[name] == told[name], name


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
    keys = {name: inspect(engine).get_pk_constraint(name)["constrained_columns"] for name in outline(engine)}
    del keys["alembic_version"]
    assert keys == {name: table.primary_key.columns.keys() for name, table in METADATA.tables.items()}


@pytest.mark.parametrize("revision", first_fast([*REVISIONS[:-4:-1], REVISIONS[0]], 3))
def test_an_upgrade_loses_nothing(engine: Engine, revision: str) -> None:
    command.upgrade(config_for(engine), revision)
    fill(engine)
    before = read(engine)
    upgrade(engine)
    after = read(engine)
    assert_kept(before, after)
    assert_filled(after)
    assert after.keys() == METADATA.tables.keys()
    expected = sample()
    assert {(row["job_uid"], row["key"], row["value"], row["project"]) for row in after["labels"]} == {
        (row["job_uid"], row["key"], row["value"], row["project"]) for row in expected["labels"]
    }
    command.check(config_for(engine))


@pytest.mark.slow
def test_no_step_up_or_down_loses_anything(engine: Engine) -> None:
    settings = config_for(engine)
    command.upgrade(settings, REVISIONS[0])
    for below, revision in pairwise(REVISIONS):
        fill(engine)
        before = read(engine)
        command.upgrade(settings, revision)
        assert_kept(before, read(engine))
        assert_filled(read(engine))
        whole = outline(engine)
        empty(engine)
        fill(engine)
        before = read(engine)
        command.downgrade(settings, below)
        between = read(engine)
        assert_kept(before, between)
        command.upgrade(settings, revision)
        assert_kept(between, read(engine))
        assert outline(engine) == whole
        empty(engine)


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


@pytest.mark.parametrize("new_database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True)
@pytest.mark.parametrize("revision", first_fast([*REVISIONS[-2:-5:-1], REVISIONS[0]], 3))
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


@pytest.mark.slow
def test_replicas_that_start_together_migrate_once(postgres: PostgresServer) -> None:
    url = postgres.create(empty=True)
    start = "import sys; from mvprune_service.db.engine.opening import migrate; migrate(sys.argv[1])"
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
