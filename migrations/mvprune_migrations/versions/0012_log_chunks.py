"""Logs beyond their tail are in the store

Revision: 0012, after 0011. Logs that are longer than the tail are noted, so that servers move them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "log_chunks",
        sa.Column("attempt_uid", sa.Text(), nullable=False),
        sa.Column("offset", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("stored_bytes", sa.BigInteger(), nullable=False),
        sa.Column("create_us", sa.BigInteger(), nullable=False),
        _of_attempt("log_chunks"),
        sa.PrimaryKeyConstraint("attempt_uid", "offset", name="pk_log_chunks"),
    )
    op.create_table(
        "long_logs",
        sa.Column("attempt_uid", sa.Text(), nullable=False),
        sa.Column("moved_bytes", sa.BigInteger(), nullable=False),
        sa.Column("due_us", sa.BigInteger(), nullable=False),
        _of_attempt("long_logs"),
        sa.PrimaryKeyConstraint("attempt_uid", name="pk_long_logs"),
    )
    op.create_index("ix_long_logs_due_us", "long_logs", ["due_us"])
    op.execute(
        "INSERT INTO long_logs (attempt_uid, moved_bytes, due_us) "
        "SELECT uid, 0, 0 FROM attempts WHERE log_bytes > 32768"
    )


def downgrade() -> None:
    op.drop_table("long_logs")
    op.drop_table("log_chunks")


def _of_attempt(table: str) -> sa.ForeignKeyConstraint:
    name = f"fk_{table}_attempt_uid"
    return sa.ForeignKeyConstraint(["attempt_uid"], ["attempts.uid"], name=name, ondelete="CASCADE")
