"""First schema

Revision: 0001, after nothing.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "jobs",
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("display_name", sa.Text(), nullable=False),
        sa.Column("spec", sa.LargeBinary(), nullable=False),
        sa.Column("policy", sa.LargeBinary(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("model_size", sa.LargeBinary(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("state_reason", sa.Text(), nullable=False),
        sa.Column("progress", sa.LargeBinary(), nullable=True),
        sa.Column("failure_reason", sa.Text(), nullable=True),
        sa.Column("failure_message", sa.Text(), nullable=True),
        sa.Column("artifact_sha256", sa.Text(), nullable=True),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("attempts_left", sa.BigInteger(), nullable=False),
        sa.Column("fencing_token", sa.BigInteger(), nullable=False),
        sa.Column("not_before_us", sa.BigInteger(), nullable=False),
        sa.Column("cancel_reason", sa.Text(), nullable=True),
        sa.Column("cancel_grace_us", sa.BigInteger(), nullable=True),
        sa.Column("cancel_us", sa.BigInteger(), nullable=True),
        sa.Column("create_us", sa.BigInteger(), nullable=False),
        sa.Column("start_us", sa.BigInteger(), nullable=True),
        sa.Column("end_us", sa.BigInteger(), nullable=True),
        sa.Column("update_us", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("last_sequence", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "(end_us IS NOT NULL) = (state IN ('CANCELLED', 'FAILED', 'SUCCEEDED'))",
            name=op.f("ck_jobs_end_in_terminal"),
        ),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_jobs")),
    )
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.create_index("ix_jobs_project_create_us", ["project", "create_us", "uid"], unique=False)
        batch_op.create_index("ix_jobs_state", ["state"], unique=False)
        batch_op.create_index("uq_jobs_project_job_id", ["project", "job_id"], unique=True)

    op.create_table(
        "artifacts",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("job_uid", sa.Text(), nullable=True),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("manifest_bytes", sa.BigInteger(), nullable=False),
        sa.Column("manifest", sa.JSON(), nullable=False),
        sa.Column("create_us", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["job_uid"], ["jobs.uid"], name=op.f("fk_artifacts_job_uid"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("project", "sha256", name=op.f("pk_artifacts")),
    )
    with op.batch_alter_table("artifacts", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_artifacts_job_uid"), ["job_uid"], unique=False)
        batch_op.create_index("ix_artifacts_project_create_us", ["project", "create_us", "sha256"], unique=False)

    op.create_table(
        "attempts",
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("job_uid", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("fencing_token", sa.BigInteger(), nullable=False),
        sa.Column("executor", sa.Text(), nullable=False),
        sa.Column("executor_ref", sa.Text(), nullable=False),
        sa.Column("cpus", sa.Double(), nullable=False),
        sa.Column("gpus", sa.Double(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("runner_id", sa.Text(), nullable=True),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("manifest_sha256", sa.Text(), nullable=True),
        sa.Column("failure_reason", sa.Text(), nullable=True),
        sa.Column("failure_message", sa.Text(), nullable=True),
        sa.Column("log_bytes", sa.BigInteger(), nullable=False),
        sa.Column("create_us", sa.BigInteger(), nullable=False),
        sa.Column("start_deadline_us", sa.BigInteger(), nullable=False),
        sa.Column("start_us", sa.BigInteger(), nullable=True),
        sa.Column("lease_expire_us", sa.BigInteger(), nullable=True),
        sa.Column("heartbeat_us", sa.BigInteger(), nullable=True),
        sa.Column("end_us", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "(end_us IS NULL) = (state IN ('CREATED', 'SUBMITTED', 'RUNNING'))",
            name=op.f("ck_attempts_end_unless_live"),
        ),
        sa.ForeignKeyConstraint(["job_uid"], ["jobs.uid"], name=op.f("fk_attempts_job_uid"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_attempts")),
    )
    with op.batch_alter_table("attempts", schema=None) as batch_op:
        batch_op.create_index("ix_attempts_state", ["state"], unique=False)
        batch_op.create_index("uq_attempts_job_uid_number", ["job_uid", "number"], unique=True)
        batch_op.create_index(
            "uq_attempts_one_live",
            ["job_uid"],
            unique=True,
            sqlite_where=sa.text("state IN ('CREATED', 'SUBMITTED', 'RUNNING')"),
            postgresql_where=sa.text("state IN ('CREATED', 'SUBMITTED', 'RUNNING')"),
        )

    op.create_table(
        "events",
        sa.Column("job_uid", sa.Text(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("time_us", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("from_state", sa.Text(), nullable=True),
        sa.Column("to_state", sa.Text(), nullable=True),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["job_uid"], ["jobs.uid"], name=op.f("fk_events_job_uid"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_uid", "sequence", name=op.f("pk_events")),
    )
    op.create_table(
        "requests",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("body_sha256", sa.Text(), nullable=False),
        sa.Column("job_uid", sa.Text(), nullable=False),
        sa.Column("create_us", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["job_uid"], ["jobs.uid"], name=op.f("fk_requests_job_uid"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("project", "request_id", name=op.f("pk_requests")),
    )
    with op.batch_alter_table("requests", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_requests_job_uid"), ["job_uid"], unique=False)

    op.create_table(
        "logs",
        sa.Column("attempt_uid", sa.Text(), nullable=False),
        sa.Column("offset", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_uid"], ["attempts.uid"], name=op.f("fk_logs_attempt_uid"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("attempt_uid", "offset", name=op.f("pk_logs")),
    )
    op.create_table(
        "metrics",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("job_uid", sa.Text(), nullable=False),
        sa.Column("attempt_uid", sa.Text(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("time_us", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_uid"], ["attempts.uid"], name=op.f("fk_metrics_attempt_uid"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["job_uid"], ["jobs.uid"], name=op.f("fk_metrics_job_uid"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metrics")),
    )
    with op.batch_alter_table("metrics", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_metrics_job_uid"), ["job_uid"], unique=False)
        batch_op.create_index("uq_metrics_attempt_uid_metric_step", ["attempt_uid", "metric", "step"], unique=True)


def downgrade() -> None:
    with op.batch_alter_table("metrics", schema=None) as batch_op:
        batch_op.drop_index("uq_metrics_attempt_uid_metric_step")
        batch_op.drop_index(batch_op.f("ix_metrics_job_uid"))

    op.drop_table("metrics")
    op.drop_table("logs")
    with op.batch_alter_table("requests", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_requests_job_uid"))

    op.drop_table("requests")
    op.drop_table("events")
    with op.batch_alter_table("attempts", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_attempts_one_live",
            sqlite_where=sa.text("state IN ('CREATED', 'SUBMITTED', 'RUNNING')"),
            postgresql_where=sa.text("state IN ('CREATED', 'SUBMITTED', 'RUNNING')"),
        )
        batch_op.drop_index("uq_attempts_job_uid_number")
        batch_op.drop_index("ix_attempts_state")

    op.drop_table("attempts")
    with op.batch_alter_table("artifacts", schema=None) as batch_op:
        batch_op.drop_index("ix_artifacts_project_create_us")
        batch_op.drop_index(batch_op.f("ix_artifacts_job_uid"))

    op.drop_table("artifacts")
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_index("uq_jobs_project_job_id")
        batch_op.drop_index("ix_jobs_state")
        batch_op.drop_index("ix_jobs_project_create_us")

    op.drop_table("jobs")
