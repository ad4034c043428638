"""The column `teaches` of jobs is named `teacher_key`

Revision: 0006, after 0005.
"""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _rename("teaches", "teacher_key")


def downgrade() -> None:
    _rename("teacher_key", "teaches")


def _rename(old: str, new: str) -> None:
    op.drop_index(f"uq_jobs_project_{old}", table_name="jobs")
    op.execute(f"ALTER TABLE jobs RENAME COLUMN {old} TO {new}")  # in place, on SQLite too
    op.create_index(f"uq_jobs_project_{new}", "jobs", ["project", new], unique=True)
