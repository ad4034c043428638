"""Notes on jobs, and tokens that show one job or sweep

Revision: 0015, after 0014.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("note", sa.Text()))
    op.add_column("tokens", sa.Column("resource", sa.Text()))


def downgrade() -> None:
    # Without the column, a token that shows one job would show the whole project.
    op.execute("DELETE FROM tokens WHERE resource IS NOT NULL")
    with op.batch_alter_table("tokens") as table:
        table.drop_column("resource")
    with op.batch_alter_table("jobs") as table:
        table.drop_column("note")
