"""What a project's uploads have in all is kept, and how many parts each upload has

Revision: 0013, after 0012.
"""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "upload_totals",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("stored_bytes", sa.BigInteger(), nullable=False),
        sa.Column("parts", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project", name="pk_upload_totals"),
    )
    with op.batch_alter_table("uploads", schema=None) as batch_op:
        batch_op.add_column(sa.Column("parts", sa.BigInteger(), nullable=False, server_default="0"))
    connection = op.get_bind()
    uploads = connection.execute(sa.text("SELECT project, digest, files FROM uploads")).all()
    for project, digest, files in uploads:
        listed = json.loads(files) if isinstance(files, str) else files
        parts = len(listed) + len({chunk for file in listed for chunk in file["chunks"]})
        connection.execute(
            sa.text("UPDATE uploads SET parts = :parts WHERE project = :project AND digest = :digest"),
            {"parts": parts, "project": project, "digest": digest},
        )
    with op.batch_alter_table("uploads", schema=None) as batch_op:
        batch_op.alter_column("parts", server_default=None)
    op.execute(
        "INSERT INTO upload_totals (project, stored_bytes, parts) "
        "SELECT project, "
        "COALESCE((SELECT SUM(size_bytes) FROM upload_chunks WHERE upload_chunks.project = uploads.project), 0), "
        "SUM(parts) FROM uploads GROUP BY project"
    )


def downgrade() -> None:
    op.drop_table("upload_totals")
    with op.batch_alter_table("uploads", schema=None) as batch_op:
        batch_op.drop_column("parts")
