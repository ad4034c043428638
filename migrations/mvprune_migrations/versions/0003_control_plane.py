"""Search, priorities, limits, checkpoints, tokens, quotas

Revision: 0003, after 0002.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

from mvprune.v1 import job_pb2

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_FILLED = ("creator", "task", "model", "method")
_UNTAUGHT = sa.text("state_reason = 'WAITING_FOR_TEACHER'")
_ZERO = ("priority", "rank_us", "ran_us")


def upgrade() -> None:
    op.create_table(
        "labels",
        sa.Column("job_uid", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_uid"], ["jobs.uid"], name="fk_labels_job_uid", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_uid", "key", name="pk_labels"),
    )
    op.create_index("ix_labels_project_key_value", "labels", ["project", "key", "value", "job_uid"])
    op.create_table(
        "checkpoints",
        sa.Column("attempt_uid", sa.Text(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("job_uid", sa.Text(), nullable=False),
        sa.Column("manifest_sha256", sa.Text(), nullable=False),
        sa.Column("create_us", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_uid"], ["attempts.uid"], name="fk_checkpoints_attempt_uid", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["job_uid"], ["jobs.uid"], name="fk_checkpoints_job_uid", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("attempt_uid", "step", name="pk_checkpoints"),
    )
    op.create_index("ix_checkpoints_job_uid", "checkpoints", ["job_uid"])
    op.create_table(
        "tokens",
        sa.Column("token_id", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("display_name", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("secret_sha256", sa.Text(), nullable=False),
        sa.Column("creator", sa.Text(), nullable=False),
        sa.Column("create_us", sa.BigInteger(), nullable=False),
        sa.Column("expire_us", sa.BigInteger(), nullable=True),
        sa.Column("revoke_us", sa.BigInteger(), nullable=True),
        sa.Column("last_use_us", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("token_id", name="pk_tokens"),
    )
    op.create_index("uq_tokens_secret_sha256", "tokens", ["secret_sha256"], unique=True)
    op.create_index("ix_tokens_project_create_us", "tokens", ["project", "create_us", "token_id"])
    op.create_table(
        "projects",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("max_queued_jobs", sa.BigInteger(), nullable=True),
        sa.Column("max_running_gpus", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("project", name="pk_projects"),
    )
    op.create_index("ix_requests_create_us", "requests", ["create_us"])
    with op.batch_alter_table("artifacts", schema=None) as batch_op:
        batch_op.add_column(sa.Column("expire_us", sa.BigInteger(), nullable=True))
        batch_op.create_index("ix_artifacts_expire_us", ["expire_us"])

    # The defaults stay: taking them back would make SQLite write the table anew.
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        for name in _FILLED:
            batch_op.add_column(sa.Column(name, sa.Text(), nullable=False, server_default=""))
        for name in _ZERO:
            batch_op.add_column(sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))
        batch_op.add_column(sa.Column("accumulation_factor", sa.BigInteger(), nullable=False, server_default="1"))
        batch_op.add_column(sa.Column("queue_deadline_us", sa.BigInteger(), nullable=True))
        batch_op.add_column(sa.Column("expire_us", sa.BigInteger(), nullable=True))
    _fill()
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_index("ix_jobs_state")
        batch_op.create_index("ix_jobs_state", ["state", "rank_us", "uid"])
        batch_op.create_index("ix_jobs_project_state", ["project", "state", "create_us", "uid"])
        batch_op.create_index("ix_jobs_project_task", ["project", "task", "create_us", "uid"])
        batch_op.create_index("ix_jobs_project_model", ["project", "model", "create_us", "uid"])
        batch_op.create_index("ix_jobs_queue_deadline_us", ["queue_deadline_us"])
        batch_op.create_index("ix_jobs_expire_us", ["expire_us"])
        batch_op.create_index("ix_jobs_untaught", ["teacher_uid"], sqlite_where=_UNTAUGHT, postgresql_where=_UNTAUGHT)


def _fill() -> None:
    """What is known of jobs that are there already."""
    jobs = sa.table(
        "jobs",
        *(sa.column(name) for name in ("uid", "project", "spec", "rank_us", "create_us", *_FILLED)),
        sa.column("labels", sa.JSON()),
    )
    labels = sa.table("labels", *(sa.column(name) for name in ("job_uid", "key", "value", "project")))
    connection = op.get_bind()
    found = connection.execute(sa.select(jobs.c.uid, jobs.c.project, jobs.c.spec, jobs.c.labels, jobs.c.create_us))
    rows: list[dict[str, Any]] = []
    searchable: list[dict[str, str]] = []
    for job in found.all():
        spec = job_pb2.CompressionSpec.FromString(bytes(job.spec))
        method = spec.WhichOneof("method") or ""
        rows.append(
            {"key": job.uid, "t": spec.task, "m": spec.model, "how": method, "who": "local", "rank": job.create_us}
        )
        searchable += [
            {"job_uid": job.uid, "key": key, "value": value, "project": job.project}
            for key, value in job.labels.items()
        ]
    if rows:
        fill = sa.update(jobs).where(jobs.c.uid == sa.bindparam("key"))
        values = {"task": "t", "model": "m", "method": "how", "creator": "who", "rank_us": "rank"}
        connection.execute(fill.values({name: sa.bindparam(value) for name, value in values.items()}), rows)
    connection.execute(
        sa.text(
            "UPDATE jobs SET state_reason = 'WAITING_FOR_TEACHER'"
            " WHERE state = 'QUEUED' AND teacher_uid IS NOT NULL AND teacher_sha256 IS NULL"
        )
    )
    if searchable:
        connection.execute(sa.insert(labels), searchable)


def downgrade() -> None:
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        for index in (
            "untaught",
            "expire_us",
            "queue_deadline_us",
            "project_model",
            "project_task",
            "project_state",
            "state",
        ):
            batch_op.drop_index(f"ix_jobs_{index}")
        batch_op.create_index("ix_jobs_state", ["state"])
        for name in (*_FILLED, *_ZERO, "accumulation_factor", "queue_deadline_us", "expire_us"):
            batch_op.drop_column(name)
    with op.batch_alter_table("artifacts", schema=None) as batch_op:
        batch_op.drop_index("ix_artifacts_expire_us")
        batch_op.drop_column("expire_us")
    op.drop_index("ix_requests_create_us", "requests")
    for table in ("projects", "tokens", "checkpoints", "labels"):
        op.drop_table(table)
