"""The catalogue: data sets, models and templates that users keep under a name."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "edt_catalogue",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created", sa.Float(53), nullable=False),
        sa.Column("changed", sa.Float(53), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
    )
    op.create_index("ix_edt_catalogue_name", "edt_catalogue", ["owner", "kind", "name"], unique=True)


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("edt_catalogue")
