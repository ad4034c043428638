"""The audit

Revision: 0017, after 0016.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_TEXTS = ("project", "principal", "method", "resource", "code", "address", "request_id")


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("create_us", sa.BigInteger(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in _TEXTS),
        sa.PrimaryKeyConstraint("create_us", "uid", name="pk_audit"),
    )
    op.create_index("ix_audit_project_create_us", "audit", ["project", "create_us", "uid"])


def downgrade() -> None:
    op.drop_table("audit")
