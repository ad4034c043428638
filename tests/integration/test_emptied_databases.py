"""Databases of PostgreSQL that tests get one after the other: `tests/neighbours.py` empties them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from ..neighbours import PostgresServer

_STATE = "SELECT uid, generation FROM installation"


def run(url: str, statement: str) -> list[tuple[Any, ...]]:
    """A statement in a database; its rows."""
    with psycopg.connect(make_url(url).set(drivername="postgresql").render_as_string(False), autocommit=True) as conn:
        cursor = conn.execute(statement)
        return cursor.fetchall() if cursor.description else []


@pytest.fixture
def used(postgres: PostgresServer) -> Iterator[list[str]]:
    """Databases that the test has; they go back."""
    urls: list[str] = []
    yield urls
    for url in urls:
        postgres.drop(url)


def test_a_database_of_another_test_is_as_a_new_one(postgres: PostgresServer, used: list[str]) -> None:
    old = postgres.create()
    oid, state = run(old, "SELECT oid FROM pg_database WHERE datname = current_database()"), run(old, _STATE)
    run(old, "INSERT INTO projects (project) VALUES ('left')")
    run(old, "UPDATE installation SET generation = 7")
    run(old, "SELECT nextval('metrics_id_seq')")
    postgres.drop(old)
    used.append(postgres.create())
    assert run(used[0], "SELECT oid FROM pg_database WHERE datname = current_database()") == oid, "it is the same one"
    assert run(used[0], "SELECT * FROM projects") == []
    assert run(used[0], _STATE) == state
    assert run(used[0], "SELECT nextval('metrics_id_seq')") == [(1,)]
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        run(old, "SELECT 1")


@pytest.mark.parametrize(
    ("changed", "seen"),
    [
        ("CREATE INDEX more ON projects (project)", "SELECT relname FROM pg_class WHERE relname = 'more'"),
        ("ALTER TABLE projects ADD COLUMN more int", "SELECT attname FROM pg_attribute WHERE attname = 'more'"),
        ("CREATE TABLE more ()", "SELECT relname FROM pg_class WHERE relname = 'more'"),
        (
            "ALTER TABLE projects ADD CONSTRAINT more CHECK (project <> '')",
            "SELECT conname FROM pg_constraint WHERE conname = 'more'",
        ),
        ("ANALYZE installation", "SELECT 1 FROM pg_class WHERE relname = 'installation' AND reltuples >= 0"),
        (
            "INSERT INTO projects (project) SELECT n::text FROM generate_series(1, 5000) AS n",
            "SELECT 1 FROM pg_class WHERE relname = 'projects' AND pg_relation_size(oid) > 65536",
        ),
    ],
)
def test_one_of_which_more_than_rows_was_changed_goes(
    postgres: PostgresServer, used: list[str], changed: str, seen: str
) -> None:
    old = postgres.create()
    run(old, changed)
    assert run(old, seen)
    postgres.drop(old)
    used.append(postgres.create())
    assert not run(used[0], seen)


def test_one_with_settings_of_its_own_goes(postgres: PostgresServer, used: list[str]) -> None:
    old = postgres.create()
    postgres.execute(f"ALTER DATABASE {make_url(old).database} SET default_transaction_read_only = on")
    postgres.drop(old)
    used.append(postgres.create())
    assert run(used[0], "SHOW default_transaction_read_only") == [("off",)]
