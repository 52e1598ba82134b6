"""Keep the journal: every report of a job, numbered, on disk before it is sent.

A report is one JSON line, written in one piece. The file outlives the supervisor, so that unacknowledged reports are
not lost when it exits: the next server reads them with `read_journal`. The file is not synced to the disk: it has to
survive processes, and a machine that goes down takes the job with it anyway. It has blocks of the disk behind its end:
a job can be stopped, and report that, although the disk is full.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from edt_sdk.schemas.wire.control import Numbered, encode
from edt_sdk.schemas.wire.preallocation import allocate, release
from edt_sdk.schemas.wire.regular import read_regular

AHEAD = 64 << 10
_decode = msgspec.json.Decoder(Numbered).decode


def read_journal(path: Path) -> list[Numbered]:
    """Return all reports in order, [] when there is no file. A torn last line is left out."""
    try:
        lines = read_regular(path).split(b"\n")
    except FileNotFoundError:
        return []
    return [_decode(line) for line in lines[:-1]]


class Journal:
    """Append reports, and know which of them are acknowledged."""

    def __init__(self, path: Path) -> None:
        self.reports = read_journal(path)
        """All reports, with the reports of earlier attempts."""
        self.acknowledged = 0
        """The highest number that a server has committed, as far as is known here."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        # Cut off the half line of a writer that died, so that the next report starts a line.
        data = os.pread(self._descriptor, os.fstat(self._descriptor).st_size, 0)
        os.ftruncate(self._descriptor, data.rfind(b"\n") + 1)
        self._allocated = 0
        self._keep_room()

    @property
    def last(self) -> int:
        """Number of the newest report, 0 when there is none."""
        return self.reports[-1].number if self.reports else 0

    @property
    def delivered(self) -> bool:
        """True when every report is acknowledged."""
        return self.acknowledged >= self.last

    def append(self, report: Numbered) -> None:
        """Write a report. Its number is `last` + 1."""
        if report.number != self.last + 1:
            raise ValueError(f"report {report.number} follows {self.last}")
        # One write, so that a crash leaves at most the last line torn. The file is complete before the report is sent
        # (decision 003).
        os.write(self._descriptor, encode(report) + b"\n")
        self.reports.append(report)
        self._keep_room()

    def acknowledge(self, number: int) -> None:
        """Record that the reports up to `number` are committed. Numbers may repeat or be out of order."""
        self.acknowledged = max(self.acknowledged, min(number, self.last))

    def welcome(self, number: int) -> None:
        """Record the last committed report of a new server. It may have lost later ones, and gets them again."""
        self.acknowledged = min(number, self.last)

    def open_reports(self) -> list[Numbered]:
        """Return the unacknowledged reports, in order."""
        return [report for report in self.reports if report.number > self.acknowledged]

    def close(self) -> None:
        """Close the file."""
        release(self._descriptor)
        os.close(self._descriptor)

    def _keep_room(self) -> None:
        size = os.fstat(self._descriptor).st_size
        if size + AHEAD // 2 > self._allocated and allocate(self._descriptor, size + AHEAD):
            self._allocated = size + AHEAD
