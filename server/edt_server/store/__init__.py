"""Own the rows: the job store is the truth about jobs and everything that happened to them.

SQLAlchemy models with alembic migrations since revision 1, on SQLite or PostgreSQL.

Never: decisions. It keeps rows and returns them.

Read first: `store.py`, then `writer.py`.
"""

from edt_server.store.engine import sqlite_url
from edt_server.store.errors import StoreError, StoreUnavailable
from edt_server.store.models import Base
from edt_server.store.rows import CatalogueRow, JobRow, Lease, Use
from edt_server.store.schema import VERSION_TABLE
from edt_server.store.store import Store
from edt_server.store.writer import Writer

__all__ = [
    "VERSION_TABLE",
    "Base",
    "CatalogueRow",
    "JobRow",
    "Lease",
    "Store",
    "StoreError",
    "StoreUnavailable",
    "Use",
    "Writer",
    "search_rows",
    "sqlite_url",
]
