"""Issuers of OpenID Connect

Revision: 0018, after 0017.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "issuers",
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("issuer_id", "url", "audience")),
        sa.Column("rule", sa.JSON(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("jwks_url", "jwks", "creator")),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in ("create_us", "update_us", "version")),
        sa.PrimaryKeyConstraint("issuer_id", name="pk_issuers"),
    )
    op.create_index("uq_issuers_url", "issuers", ["url"], unique=True)


def downgrade() -> None:
    op.drop_table("issuers")
