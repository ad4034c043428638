"""Webhooks and their deliveries

Revision: 0016, after 0015.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_TABLE = "webhook_deliveries"


def upgrade() -> None:
    op.create_table(
        "webhooks",
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("webhook_id", sa.Text(), nullable=False),
        sa.Column("display_name", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("events", sa.JSON(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("format", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("state_reason", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("old_secret_until_us", sa.BigInteger(), nullable=True),
        sa.Column("creator", sa.Text(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in ("create_us", "update_us", "version")),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in ("failures", "due_us", "claim_us")),
        sa.PrimaryKeyConstraint("uid", name="pk_webhooks"),
    )
    op.create_index("uq_webhooks_project_webhook_id", "webhooks", ["project", "webhook_id"], unique=True)
    op.create_table(
        _TABLE,
        sa.Column("webhook_uid", sa.Text(), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("subject_uid", sa.Text(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.BigInteger(), nullable=True),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("create_us", sa.BigInteger(), nullable=False),
        sa.Column("until_us", sa.BigInteger(), nullable=False),
        sa.Column("attempt_us", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("webhook_uid", "event_id", name="pk_webhook_deliveries"),
    )
    op.create_index("ix_webhook_deliveries_create_us", _TABLE, ["create_us"])
    op.create_index("ix_webhook_deliveries_webhook_uid_create_us", _TABLE, ["webhook_uid", "create_us", "event_id"])
    pending = sa.text("state = 'PENDING'")
    op.create_index(
        "ix_webhook_deliveries_pending",
        _TABLE,
        ["webhook_uid", "create_us", "event_id"],
        sqlite_where=pending,
        postgresql_where=pending,
    )


def downgrade() -> None:
    op.drop_table(_TABLE)
    op.drop_table("webhooks")
