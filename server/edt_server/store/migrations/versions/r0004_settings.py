"""Keep the settings of a job that may change in one JSON column, so that a further setting needs no migration."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_COLUMNS: dict[str, TypeEngine[Any]] = {
    "priority": sa.Integer(),
    "max_workers": sa.Integer(),
    "instance_group": sa.Text(),
}
_JOBS = sa.table(
    "edt_jobs", sa.column("settings", sa.JSON()), *(sa.column(name, kind) for name, kind in _COLUMNS.items())
)


def upgrade() -> None:
    """Move the three columns into the new one."""
    op.add_column("edt_jobs", sa.Column("settings", sa.JSON()))
    build = sa.func.json_object if op.get_bind().dialect.name == "sqlite" else sa.func.json_build_object
    pairs = [part for name in _COLUMNS for part in (sa.literal_column(f"'{name}'"), _JOBS.c[name])]
    op.execute(_JOBS.update().values(settings=build(*pairs)))
    with op.batch_alter_table("edt_jobs") as batch:
        batch.alter_column("settings", existing_type=sa.JSON(), nullable=False)
        for name in _COLUMNS:
            batch.drop_column(name)


def downgrade() -> None:
    """Move the values back. Notes and tags are lost."""
    for name, kind in _COLUMNS.items():
        op.add_column("edt_jobs", sa.Column(name, kind))
    values = {name: _JOBS.c.settings[name].as_string() for name in _COLUMNS}
    op.execute(_JOBS.update().values({name: sa.cast(values[name], kind) for name, kind in _COLUMNS.items()}))
    with op.batch_alter_table("edt_jobs") as batch:
        batch.drop_column("settings")
        for name, kind in _COLUMNS.items():
            batch.alter_column(name, existing_type=kind, nullable=False)
