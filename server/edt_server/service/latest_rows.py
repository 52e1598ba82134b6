"""Rows of jobs as they were last read: whoever watches a job asks for it every second, and it changes now and then.

A row holds until the next change of the store, whatever that changes (`Commits.version`). While the store is in trouble
it is asked each time: what it says then is news.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from edt_server.ledger import Commits
from edt_server.store import JobRow


class LatestRows:
    """The rows that were asked for last. To be used on one event loop.

    Args:
        commits: of the ledger whose rows these are.
        most: rows that are kept.
    """

    def __init__(self, commits: Commits, most: int = 256) -> None:
        self._commits = commits
        self._most = most
        self._version = -1
        self._rows: OrderedDict[str, JobRow] = OrderedDict()

    async def read(self, job: str, row: Callable[[str], JobRow]) -> JobRow:
        """The job's row; read with `row`, whose errors are the caller's, between two changes where it is not known."""
        version = self._commits.version
        if version != self._version or self._commits.trouble is not None:
            self._rows.clear()
            self._version = version
        found = self._rows.get(job)
        if found is None:
            found = await self._commits.read(row, job)
            # Nobody else's question may have found out meanwhile that there was a change.
            if version == self._version:
                self._rows[job] = found
                while len(self._rows) > self._most:
                    self._rows.popitem(last=False)
        else:
            self._rows.move_to_end(job)
        return found
