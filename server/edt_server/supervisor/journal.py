"""The journal: every report of a job, numbered, on disk before it is sent.

A report is one JSON line, written in one piece. The file outlives the supervisor, so what no server has acknowledged is
not lost when it exits: the next server reads it with `read_journal`. Not synced to the disk: it has to survive
processes, and a machine that goes down takes the job with it anyway.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from edt_sdk.schemas.wire.control import Numbered, encode

_decode = msgspec.json.Decoder(Numbered).decode


def read_journal(path: Path) -> list[Numbered]:
    """All reports in order; [] when there is no file. A torn last line is left out."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    reports: list[Numbered] = []
    for line in lines[:-1]:
        reports.append(_decode(line))
    return reports


class Journal:
    """Appends reports and knows which are acknowledged."""

    def __init__(self, path: Path) -> None:
        self._reports = read_journal(path)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        _drop_torn_line(self._descriptor)
        self._acknowledged = 0

    @property
    def reports(self) -> tuple[Numbered, ...]:
        """All reports, those of earlier attempts included."""
        return tuple(self._reports)

    @property
    def last(self) -> int:
        """Number of the newest report, 0 when there is none."""
        return self._reports[-1].number if self._reports else 0

    @property
    def acknowledged(self) -> int:
        """Highest number a server has committed, as far as is known here."""
        return self._acknowledged

    @property
    def delivered(self) -> bool:
        """True when every report is acknowledged."""
        return self._acknowledged >= self.last

    def append(self, report: Numbered) -> None:
        """Write a report; its number is `last` + 1."""
        if report.number != self.last + 1:
            raise ValueError(f"report {report.number} follows {self.last}")
        os.write(self._descriptor, encode(report) + b"\n")
        self._reports.append(report)

    def acknowledge(self, number: int) -> None:
        """Reports up to `number` are committed. Numbers may come twice or out of order."""
        self._acknowledged = max(self._acknowledged, min(number, self.last))

    def welcome(self, number: int) -> None:
        """A server just greeted has committed the reports up to `number`; it may have forgotten later ones."""
        self._acknowledged = min(number, self.last)

    def open_reports(self) -> list[Numbered]:
        """What is not acknowledged yet, in order."""
        return [report for report in self._reports if report.number > self._acknowledged]

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def _drop_torn_line(descriptor: int) -> None:
    """Cut what a writer that died in the middle of a line has left, so that the next line starts one."""
    data = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    os.ftruncate(descriptor, data.rfind(b"\n") + 1)
