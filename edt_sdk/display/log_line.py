"""Represent a line of a job's log with its origin."""

from __future__ import annotations

import msgspec


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a line of a job's log. str() gives the text for a terminal.

    Attributes:
        time: seconds since the epoch.
        stream: "stdout" or "stderr" of the driver, "elog", or "worker".
        worker: the worker's number, None for the driver.
        err: True for stderr.
    """

    time: float
    stream: str
    worker: int | None = None
    err: bool = False
    text: str

    def __str__(self) -> str:
        return self.text if self.worker is None else f"worker {self.worker} | {self.text}"
