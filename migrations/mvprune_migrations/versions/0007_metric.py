"""The metric, its difference from dense and the duration of a job, which lists are filtered and ordered by

Revision: 0007, after 0006.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_COLUMNS = {"primary_metric": sa.Text, "metric": sa.Double, "difference": sa.Double, "duration_us": sa.BigInteger}
_ORDERED = ("metric", "difference", "duration_us", "failure_reason")


def upgrade() -> None:
    for name, kind in _COLUMNS.items():
        op.add_column("jobs", sa.Column(name, kind(), nullable=True))
    op.execute("UPDATE jobs SET duration_us = end_us - start_us")
    _fill()
    for name in _ORDERED:
        has_value = sa.text(f"{name} IS NOT NULL")
        op.create_index(
            f"ix_jobs_project_{name}",
            "jobs",
            ["project", name, "create_us", "uid"],
            sqlite_where=has_value,
            postgresql_where=has_value,
        )
    _index_by_age(*_ORDERED)


def _index_by_age(*more: str) -> None:
    op.drop_index("ix_jobs_project_create_us", table_name="jobs")
    op.create_index("ix_jobs_project_create_us", "jobs", ["project", "create_us", "uid", *more])


def _fill() -> None:
    """The metric of jobs that have an artifact, from its manifest."""
    jobs = sa.table(
        "jobs",
        *(sa.column(name) for name in ("uid", "project", "artifact_sha256", "primary_metric", "metric", "difference")),
    )
    artifacts = sa.table("artifacts", sa.column("project"), sa.column("sha256"), sa.column("manifest", sa.JSON()))
    of_job = sa.and_(artifacts.c.project == jobs.c.project, artifacts.c.sha256 == jobs.c.artifact_sha256)
    manifest = artifacts.c.manifest
    found = sa.select(
        jobs.c.uid, manifest["metrics"].label("metrics"), manifest["primary_metric"].as_string().label("primary")
    ).join_from(jobs, artifacts, of_job)
    connection = op.get_bind()
    rows = [
        {
            "key": row.uid,
            "name": row.primary,
            "eval": row.metrics.get(f"eval/{row.primary}"),
            "delta": row.metrics.get(f"delta/{row.primary}"),
        }
        for row in connection.execute(found)
        if row.metrics and row.primary
    ]
    if rows:
        fill = sa.update(jobs).where(jobs.c.uid == sa.bindparam("key"))
        values = {"primary_metric": "name", "metric": "eval", "difference": "delta"}
        connection.execute(fill.values({name: sa.bindparam(value) for name, value in values.items()}), rows)


def downgrade() -> None:
    _index_by_age()
    for name in _ORDERED:
        op.drop_index(f"ix_jobs_project_{name}", table_name="jobs")
    for name in _COLUMNS:
        op.drop_column("jobs", name)  # in place, on SQLite too
