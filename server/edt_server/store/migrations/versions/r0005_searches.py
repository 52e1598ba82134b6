"""Searches for hyper-parameters: their trials, reports and log, and the algorithms that users bring."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables, and give each job the search that it is a trial of, "" for none."""
    op.add_column("edt_jobs", sa.Column("search", sa.String(64), nullable=False, server_default=sa.text("''")))
    op.create_index("ix_edt_jobs_search", "edt_jobs", ["owner", "search", "created"])
    op.create_table(
        "edt_searches",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("created", sa.Float(53), nullable=False),
        sa.Column("ended", sa.Float(53)),
        sa.Column("best", sa.Integer()),
        sa.Column("outside", sa.Integer(), nullable=False),
        sa.Column("plugin_state", sa.LargeBinary()),
    )
    op.create_index("ix_edt_searches_name", "edt_searches", ["owner", "name"], unique=True)
    op.create_index("ix_edt_searches_created", "edt_searches", ["created"])
    op.create_table(
        "edt_trials",
        sa.Column("search", sa.String(64), primary_key=True),
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("rung", sa.Integer(), nullable=False),
        sa.Column("bracket", sa.Integer(), nullable=False),
        sa.Column("params", sa.JSON(), nullable=False),
        sa.Column("sampler_state", sa.LargeBinary()),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("value", sa.Float(53)),
        sa.Column("epochs", sa.Integer(), nullable=False),
        sa.Column("job", sa.String(64), nullable=False),
        sa.Column("parent", sa.Integer()),
        sa.Column("created", sa.Float(53), nullable=False),
        sa.Column("ended", sa.Float(53)),
        sa.Column("message", sa.Text(), nullable=False),
    )
    op.create_table(
        "edt_trial_reports",
        sa.Column("search", sa.String(64), primary_key=True),
        sa.Column("trial", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("budget", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
    )
    op.create_index("ix_edt_trial_reports_seq", "edt_trial_reports", ["search", "seq"])
    op.create_table(
        "edt_search_decisions",
        sa.Column("search", sa.String(64), primary_key=True),
        sa.Column("index", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("trial", sa.Integer()),
        sa.Column("rung", sa.Integer()),
        sa.Column("inputs", sa.String(16), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("outside", sa.Boolean(), nullable=False),
        sa.Column("event", sa.JSON()),
    )


def downgrade() -> None:
    """Drop the tables and the column."""
    op.drop_index("ix_edt_jobs_search", "edt_jobs")
    op.drop_column("edt_jobs", "search")
    for table in ("edt_search_decisions", "edt_trial_reports", "edt_trials", "edt_searches"):
        op.drop_table(table)
