"""Jobs that learn from other jobs

Revision: 0002, after 0001.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("teacher_uid", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("teacher_sha256", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("teaches", sa.Text(), nullable=True))
        batch_op.create_index("uq_jobs_project_teaches", ["project", "teaches"], unique=True)


def downgrade() -> None:
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_index("uq_jobs_project_teaches")
        batch_op.drop_column("teaches")
        batch_op.drop_column("teacher_sha256")
        batch_op.drop_column("teacher_uid")
