"""The database's own identity, and the quarantine of garbage

Revision: 0005, after 0004.
"""

from __future__ import annotations

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    installation = op.create_table(
        "installation",
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("tokens", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("uid", name="pk_installation"),
    )
    op.create_table(
        "quarantine",
        sa.Column("part", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("modified_us", sa.BigInteger(), nullable=False),
        sa.Column("found_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("part", "key", name="pk_quarantine"),
    )
    op.bulk_insert(installation, [{"uid": secrets.token_hex(16), "generation": 0, "tokens": []}])


def downgrade() -> None:
    op.drop_table("quarantine")
    op.drop_table("installation")
