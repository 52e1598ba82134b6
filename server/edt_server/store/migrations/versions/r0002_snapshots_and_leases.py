"""Snapshots of the core, so that a start need not replay every event there ever was, and leases of servers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "edt_core_snapshots",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("created", sa.Float(53), nullable=False),
    )
    op.create_table(
        "edt_leases",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("holder", sa.JSON()),
        sa.Column("expires", sa.Float(53), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("fencing", sa.BigInteger(), nullable=False),
    )


def downgrade() -> None:
    """Drop both tables."""
    op.drop_table("edt_leases")
    op.drop_table("edt_core_snapshots")
