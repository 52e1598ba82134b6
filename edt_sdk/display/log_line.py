"""One line of a job's log, with where it came from."""

from __future__ import annotations

import msgspec


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a job's log; str() of it is what a terminal shows.

    Attributes:
        time: seconds since the epoch.
        stream: "stdout" or "stderr" of the driver, "elog", or "worker".
        worker: the worker's number, None for the driver.
        err: True when it was written to stderr.
    """

    time: float
    stream: str
    worker: int | None = None
    err: bool = False
    text: str

    def __str__(self) -> str:
        return self.text if self.worker is None else f"worker {self.worker} | {self.text}"
