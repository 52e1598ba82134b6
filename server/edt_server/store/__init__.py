"""The job store: the truth about jobs and everything that happened to them.

SQLAlchemy models with alembic migrations from revision 1. It keeps rows and hands them out; it decides nothing.
"""

from edt_server.store.engine import sqlite_url
from edt_server.store.errors import StoreError, StoreUnavailable
from edt_server.store.rows import CatalogueRow, JobRow, Lease, Snapshot, Use
from edt_server.store.store import Store
from edt_server.store.writer import Writer

__all__ = [
    "CatalogueRow",
    "JobRow",
    "Lease",
    "Snapshot",
    "Store",
    "StoreError",
    "StoreUnavailable",
    "Use",
    "Writer",
    "sqlite_url",
]
