"""Keep room on the disk for an SQLite store: a store that cannot write for lack of room could free none either.

A commit appends to the write-ahead log, which SQLite copies into the file every 1000 pages (4 MB), to start it again
from its beginning. The log has blocks behind its end, and the file has free pages inside. With these the lease is
renewed, jobs are stopped and deleted, and reports are committed on a full disk. Only what needs new files is refused
there. Other programs on the disk cannot take this room, as they would take that of a reserve file that is given up.
Blocks behind the end of the file itself would not do: SQLite frees them whenever it has copied the log.
"""

from __future__ import annotations

import logging
import os
import sqlite3

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from edt_sdk.schemas.wire.preallocation import allocate

log = logging.getLogger(__name__)

# Bytes behind the end of the log, and inside of the file.
LOG, FREE = 8 << 20, 1 << 20
_STEP = 1 << 20
_BLOCK = 512  # stat(2)
# Free bytes of the disk below which the file does not grow only to have free pages: the growth might not be completed,
# and the log could then not start again.
_LEAST = 4 * FREE
_FREE = "SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size"  # bytes inside of the file


class StoreRoom:
    """The room of one SQLite file. `keep` is called after each commit, and is cheap when nothing has grown."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._path = str(engine.url.database)

    def keep(self) -> None:
        """Have blocks behind the end of the log and free pages in the file, as far as the disk has room. Blocks."""
        try:
            self._keep_log()
            self._keep_pages()
        except FileNotFoundError:
            return  # there is no log on a network file system
        except (OSError, sqlite3.Error, SQLAlchemyError) as wrong:
            log.debug("no room is kept for the job store: %s", wrong)

    def _keep_log(self) -> None:
        found = os.stat(f"{self._path}-wal")
        if found.st_blocks * _BLOCK + _STEP >= found.st_size + LOG:
            return
        # Only for the log: to close a descriptor of the file would end SQLite's locks on it
        # (https://sqlite.org/howtocorrupt.html, 2.2).
        descriptor = os.open(f"{self._path}-wal", os.O_RDWR | os.O_CLOEXEC)
        try:
            allocate(descriptor, found.st_size + LOG)
        finally:
            os.close(descriptor)

    def _keep_pages(self) -> None:
        # Not SQLAlchemy's connection: a checkpoint runs outside of any transaction.
        connection = self._engine.raw_connection()
        try:
            cursor = connection.cursor()
            (free,) = cursor.execute(_FREE).fetchone()
            disk = os.statvfs(self._path)
            if free >= FREE // 2 or disk.f_bavail * disk.f_frsize < _LEAST:
                return
            cursor.execute("DROP TABLE IF EXISTS edt_room")  # of a server that was killed here
            cursor.execute("CREATE TABLE edt_room (filler BLOB)")
            cursor.execute("INSERT INTO edt_room VALUES (zeroblob(?))", (FREE,))
            # Copied into the file before the table is dropped: pages that are free by then would become a hole.
            cursor.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            cursor.execute("DROP TABLE edt_room")
        finally:
            connection.close()
