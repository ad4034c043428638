"""Run by Alembic: all revisions in one transaction, on the engine that the caller put into the configuration."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection, Engine, text

from mvprune_migrations import LOCK
from mvprune_service.db.tables.schema import METADATA

engine: Engine = context.config.attributes["engine"]


def _migrate(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=METADATA,
        render_as_batch=engine.dialect.name == "sqlite",
        transactional_ddl=True,
    )
    with context.begin_transaction():
        if engine.dialect.name == "postgresql":
            _wait_for_others(connection)
        context.run_migrations()
        if engine.dialect.name == "sqlite":
            _check_references(connection)


def _wait_for_others(connection: Connection) -> None:
    """Replicas that start together migrate one after the other; who comes late finds nothing to do."""
    for limit in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
        connection.execute(text(f"SET LOCAL {limit} = 0"))
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})


def _check_references(connection: Connection) -> None:
    if lost := connection.exec_driver_sql("PRAGMA foreign_key_check").all():
        raise RuntimeError(f"rows of {lost[0][0]} name rows of {lost[0][2]} that are not there; nothing was changed")


def _migrate_sqlite(connection: Connection) -> None:
    """A batch operation may write a table anew and drop the old one, which would delete all that refers to it."""
    driver = connection.connection.driver_connection  # past SQLAlchemy, which would begin the transaction first
    assert driver is not None  # noqa: S101
    driver.execute("PRAGMA foreign_keys=OFF")
    try:
        _migrate(connection)
    finally:
        connection.rollback()
        driver.execute("PRAGMA foreign_keys=ON")


with engine.connect() as connection:
    if engine.dialect.name == "sqlite":
        _migrate_sqlite(connection)
    else:
        _migrate(connection)
