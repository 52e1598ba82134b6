"""Jobs and events.

Written out and not taken from the models, which go on changing: this is what revision 1 was.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "edt_jobs",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("state_since", sa.Float(53), nullable=False),
        sa.Column("created", sa.Float(53), nullable=False),
        sa.Column("started", sa.Float(53)),
        sa.Column("ended", sa.Float(53)),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("interpreter", sa.Text(), nullable=False),
        sa.Column("threads_per_slot", sa.Integer(), nullable=False),
        sa.Column("supervisor", sa.JSON()),
        sa.Column("public_key", sa.Text(), nullable=False),
        sa.Column("shards", sa.Integer()),
        sa.Column("last_report", sa.BigInteger(), nullable=False),
        sa.Column("progress", sa.JSON()),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("max_workers", sa.Integer(), nullable=False),
        sa.Column("instance_group", sa.Text(), nullable=False),
        sa.Column("project", sa.Text()),
        sa.Column("definition", sa.Text()),
        sa.Column("metric", sa.Text()),
    )
    op.create_index("ix_edt_jobs_owner", "edt_jobs", ["owner", "created"])
    op.create_index("ix_edt_jobs_state", "edt_jobs", ["state", "created"])
    op.create_index("ix_edt_jobs_created", "edt_jobs", ["created"])
    op.create_table(
        "edt_events",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("time", sa.Float(53), nullable=False),
        sa.Column("job", sa.String(64)),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("cause", sa.BigInteger()),
        sa.Column("text", sa.Text(), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_edt_events_job", "edt_events", ["job", "seq"])
    op.create_index("ix_edt_events_kind", "edt_events", ["kind", "seq"])


def downgrade() -> None:
    """Drop both tables."""
    op.drop_table("edt_events")
    op.drop_table("edt_jobs")
