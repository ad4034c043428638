"""Run by Alembic: one transaction on the engine that the caller put into the configuration."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Engine

from mvprune_service.db.models import Base

engine: Engine = context.config.attributes["engine"]

with engine.connect() as connection:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_as_batch=engine.dialect.name == "sqlite",
    )
    with context.begin_transaction():
        context.run_migrations()
    connection.commit()
