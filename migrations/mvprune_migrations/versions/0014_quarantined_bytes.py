"""The size of the objects in quarantine

Revision: 0014, after 0013.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("quarantine") as table:  # the size of what is there already is not known
        table.add_column(sa.Column("size_bytes", sa.BigInteger(), nullable=False, server_default="0"))
    with op.batch_alter_table("quarantine") as table:
        table.alter_column("size_bytes", server_default=None)


def downgrade() -> None:
    with op.batch_alter_table("quarantine") as table:
        table.drop_column("size_bytes")
