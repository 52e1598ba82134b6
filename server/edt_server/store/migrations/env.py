"""What alembic runs around the migrations. The connection, its transaction included, comes from `schema.migrate`."""

from __future__ import annotations

from alembic import context

from edt_server.store import VERSION_TABLE, Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    # SQLite alters most things only by copying the table.
    render_as_batch=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
