"""Uploads, their chunks, and the jobs and sweeps that use them

Revision: 0009, after 0008.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "uploads",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("display_name", sa.Text(), nullable=False),
        sa.Column("files", sa.JSON(), nullable=False),
        sa.Column("total_bytes", sa.BigInteger(), nullable=False),
        sa.Column("creator", sa.Text(), nullable=False),
        sa.Column("create_us", sa.BigInteger(), nullable=False),
        sa.Column("used_us", sa.BigInteger(), nullable=False),
        sa.Column("ready_us", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("project", "digest", name="pk_uploads"),
    )
    op.create_index("ix_uploads_project_create_us", "uploads", ["project", "create_us", "digest"])
    op.create_index("ix_uploads_used_us", "uploads", ["used_us"])
    op.create_table(
        "upload_chunks",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("is_ready", sa.Boolean(), nullable=False),
        sa.Column("create_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project", "sha256", name="pk_upload_chunks"),
    )
    op.create_index("uq_upload_chunks_uid", "upload_chunks", ["uid"], unique=True)
    op.create_table(
        "upload_parts",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        _of_upload("upload_parts", "CASCADE"),
        sa.ForeignKeyConstraint(
            ["project", "sha256"],
            ["upload_chunks.project", "upload_chunks.sha256"],
            name="fk_upload_parts_project_sha256",
        ),
        sa.PrimaryKeyConstraint("project", "digest", "sha256", name="pk_upload_parts"),
    )
    op.create_index("ix_upload_parts_project_sha256", "upload_parts", ["project", "sha256"])
    for owner in ("job", "sweep"):
        table = f"{owner}_uploads"
        op.create_table(
            table,
            sa.Column(f"{owner}_uid", sa.Text(), nullable=False),
            sa.Column("project", sa.Text(), nullable=False),
            sa.Column("digest", sa.Text(), nullable=False),
            sa.ForeignKeyConstraint(
                [f"{owner}_uid"], [f"{owner}s.uid"], name=f"fk_{table}_{owner}_uid", ondelete="CASCADE"
            ),
            _of_upload(table, "RESTRICT"),
            sa.PrimaryKeyConstraint(f"{owner}_uid", "digest", name=f"pk_{table}"),
        )
        op.create_index(f"ix_{table}_project_digest", table, ["project", "digest"])


def downgrade() -> None:
    for table in ("sweep_uploads", "job_uploads", "upload_parts", "upload_chunks", "uploads"):
        op.drop_table(table)


def _of_upload(table: str, ondelete: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["project", "digest"],
        ["uploads.project", "uploads.digest"],
        name=f"fk_{table}_project_digest",
        ondelete=ondelete,
    )
