"""Sweeps, their points, events and requests; the sweep of a job

Revision: 0008, after 0007.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_OF_A_SWEEP = sa.text("sweep_id IS NOT NULL")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("sweep_id", sa.Text(), nullable=True))  # in place, on SQLite too
    op.create_index(
        "ix_jobs_project_sweep_id",
        "jobs",
        ["project", "sweep_id"],
        sqlite_where=_OF_A_SWEEP,
        postgresql_where=_OF_A_SWEEP,
    )
    op.create_table(
        "sweeps",
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("sweep_id", sa.Text(), nullable=False),
        sa.Column("display_name", sa.Text(), nullable=False),
        sa.Column("spec", sa.LargeBinary(), nullable=False),
        sa.Column("policy", sa.LargeBinary(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("notes", sa.JSON(), nullable=False),
        sa.Column("model_sizes", sa.JSON(), nullable=False),
        sa.Column("creator", sa.Text(), nullable=False),
        sa.Column("inputs_us", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("state_reason", sa.Text(), nullable=False),
        sa.Column("recommendation", sa.LargeBinary(), nullable=True),
        sa.Column("front", sa.JSON(), nullable=False),
        sa.Column("create_us", sa.BigInteger(), nullable=False),
        sa.Column("active_us", sa.BigInteger(), nullable=False),
        sa.Column("end_us", sa.BigInteger(), nullable=True),
        sa.Column("update_us", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("last_sequence", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("uid", name="pk_sweeps"),
    )
    op.create_index("uq_sweeps_project_sweep_id", "sweeps", ["project", "sweep_id"], unique=True)
    op.create_index("ix_sweeps_project_create_us", "sweeps", ["project", "create_us", "uid"])
    op.create_index("ix_sweeps_state", "sweeps", ["state"])
    op.create_table(
        "sweep_points",
        sa.Column("sweep_uid", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("cell", sa.JSON(), nullable=False),
        sa.Column("spec", sa.LargeBinary(), nullable=False),
        sa.Column("spec_sha256", sa.Text(), nullable=False),
        sa.Column("job_uid", sa.Text(), nullable=True),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("reused", sa.Boolean(), nullable=False),
        sa.Column("again", sa.Boolean(), nullable=False),
        sa.Column("skip_reason", sa.Text(), nullable=False),
        sa.Column("result", sa.JSON(none_as_null=True), nullable=True),
        _of_sweep("sweep_points"),
        sa.ForeignKeyConstraint(["job_uid"], ["jobs.uid"], name="fk_sweep_points_job_uid", ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("sweep_uid", "number", name="pk_sweep_points"),
    )
    op.create_index("ix_sweep_points_job_uid", "sweep_points", ["job_uid"])
    op.create_index("uq_sweep_points_sweep_uid_spec_sha256", "sweep_points", ["sweep_uid", "spec_sha256"], unique=True)
    op.create_table(
        "sweep_events",
        sa.Column("sweep_uid", sa.Text(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("time_us", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        _of_sweep("sweep_events"),
        sa.PrimaryKeyConstraint("sweep_uid", "sequence", name="pk_sweep_events"),
    )
    op.create_table(
        "sweep_requests",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("body_sha256", sa.Text(), nullable=False),
        sa.Column("sweep_uid", sa.Text(), nullable=False),
        sa.Column("create_us", sa.BigInteger(), nullable=False),
        _of_sweep("sweep_requests"),
        sa.PrimaryKeyConstraint("project", "request_id", name="pk_sweep_requests"),
    )
    op.create_index("ix_sweep_requests_sweep_uid", "sweep_requests", ["sweep_uid"])
    op.create_index("ix_sweep_requests_create_us", "sweep_requests", ["create_us"])


def downgrade() -> None:
    for table in ("sweep_requests", "sweep_events", "sweep_points", "sweeps"):
        op.drop_table(table)
    op.drop_index("ix_jobs_project_sweep_id", table_name="jobs")
    with op.batch_alter_table("jobs") as jobs:
        jobs.drop_column("sweep_id")


def _of_sweep(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["sweep_uid"], ["sweeps.uid"], name=f"fk_{table}_sweep_uid", ondelete="CASCADE")
