"""Files become an archive, and the archive an upload.

The archive is reproducible: the same files give the same bytes (sorted, no times, no owners). It is written to a
temporary file and sent from there, so that memory does not depend on its size; it is over the cap as soon as it is over
the cap, before a byte is sent. Of the machine it comes from, it contains nothing but the files listed.
"""

from __future__ import annotations

import gzip
import io
import os
import sys
import tarfile
import time
import uuid
from collections.abc import Callable, Sequence
from typing import IO

from edt_sdk.schemas.errors import PackageError, TooLarge
from edt_sdk.sources import IGNORE_FILE, Collected, SourceFile

QUIET_VARIABLE = "EDT_NONINTERACTIVE"
PROGRESS_AFTER = 2.0
_SHOWN = 20


def write_archive(files: Sequence[SourceFile], target: IO[bytes], *, cap: int | None = None) -> int:
    """Write a tar.gz of `files` to `target`; its number of bytes.

    Raises:
        TooLarge: it would be over `cap` bytes; the message names the largest files.
        PackageError: a file cannot be read, or changed while it was read.
    """
    capped = _Capped(target, cap)
    try:
        # Level 6 is zlib's own default; fixed, so that the bytes do not depend on the Python version.
        with (
            gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=capped, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for file in sorted(files, key=lambda f: f.name):
                _add(archive, file)
    except _OverCap:
        raise _too_large(files, cap or 0) from None
    return capped.written


class _OverCap(Exception):
    """The archive is over the cap; not an OSError, which would look like an unreadable file."""


class _Capped:
    """Counts what is written and stops at the cap, in the middle of a file if need be."""

    def __init__(self, target: IO[bytes], cap: int | None) -> None:
        self._target, self._cap, self.written = target, cap, 0

    def write(self, data: bytes) -> int:
        self.written += len(data)
        if self._cap is not None and self.written > self._cap:
            raise _OverCap
        return self._target.write(data)

    def flush(self) -> None:
        self._target.flush()


def _add(archive: tarfile.TarFile, file: SourceFile) -> None:
    info = tarfile.TarInfo(file.name)
    info.mode = 0o755 if file.executable else 0o644
    if isinstance(file.content, bytes):
        info.size = len(file.content)
        archive.addfile(info, io.BytesIO(file.content))
        return
    try:
        with file.content.open("rb") as opened:
            info.size = os.fstat(opened.fileno()).st_size
            archive.addfile(info, opened)
    except OSError as refused:
        raise PackageError(
            f"{file.name} cannot be packed: {refused.strerror or refused}.",
            hint=f"Name it in {IGNORE_FILE} if the job does not need it.",
            field="source",
        ) from None


def _too_large(files: Sequence[SourceFile], cap: int) -> TooLarge:
    largest = sorted(files, key=lambda f: -f.size)[:5]
    shown = ", ".join(f"{f.name} ({human_bytes(f.size)})" for f in largest)
    return TooLarge(
        f"The package is over the server's limit of {human_bytes(cap)}. Largest files: {shown}.",
        hint=f"Name what the job does not need in {IGNORE_FILE}; large data is better read by path than packed.",
    )


def packing_table(collected: Collected, archive_bytes: int) -> str:
    """What is packed, for people: one line a file, largest first when there are many, then sums and notes."""
    files = sorted(collected.files, key=lambda f: f.name)
    shown = files if len(files) <= _SHOWN else sorted(files, key=lambda f: -f.size)[: _SHOWN - 1]
    width = max(len(f.name) for f in shown)
    lines = [
        f"  {f.name:<{width}}  {human_bytes(f.size):>9}{'  ← main' if f.name == collected.main else ''}" for f in shown
    ]
    if len(shown) < len(files):
        rest = sum(f.size for f in files) - sum(f.size for f in shown)
        lines.append(f"  {f'… and {len(files) - len(shown)} smaller files':<{width}}  {human_bytes(rest):>9}")
    total = sum(f.size for f in files)
    noun = "file" if len(files) == 1 else "files"
    head = f"Packing {len(files)} {noun}, {human_bytes(total)}, {human_bytes(archive_bytes)} compressed:"
    return "\n".join([head, *lines, *(f"  note: {note}" for note in collected.notes)])


def human_bytes(size: float) -> str:
    """`size` in bytes with a unit, such as "3.2 MB" (powers of 1000)."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 99.5 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


class Multipart:
    """The body of a submission: part `spec` (JSON), then part `package` (the archive), read while it is sent.

    requests' own `files=` reads every file into memory first; an object with `read` and a length is sent in pieces.
    """

    def __init__(
        self, spec: bytes, package: IO[bytes], package_bytes: int, on_sent: Callable[[int, int], None] | None = None
    ) -> None:
        self.boundary = uuid.uuid4().hex
        head = (
            f'--{self.boundary}\r\nContent-Disposition: form-data; name="spec"\r\n'
            "Content-Type: application/json\r\n\r\n"
        ).encode()
        between = (
            f'\r\n--{self.boundary}\r\nContent-Disposition: form-data; name="package"; filename="package.tar.gz"\r\n'
            "Content-Type: application/gzip\r\n\r\n"
        ).encode()
        tail = f"\r\n--{self.boundary}--\r\n".encode()
        self._parts: list[IO[bytes]] = [io.BytesIO(head + spec + between), package, io.BytesIO(tail)]
        self._length = len(head) + len(spec) + len(between) + package_bytes + len(tail)
        self._sent = 0
        self._on_sent = on_sent

    @property
    def content_type(self) -> str:
        """Value of the Content-Type header."""
        return f"multipart/form-data; boundary={self.boundary}"

    def __len__(self) -> int:
        return self._length

    def read(self, size: int = -1) -> bytes:
        """The next bytes, at most `size`; b"" at the end."""
        data = b""
        while self._parts and not data:
            data = self._parts[0].read(size)
            if not data:
                self._parts.pop(0)
        self._sent += len(data)
        if self._on_sent is not None:
            self._on_sent(self._sent, self._length)
        return data


def upload_progress(stream: IO[str] | None = None) -> Callable[[int, int], None]:
    """A function that prints the percentage sent to stderr, once the upload has taken 2 s."""
    started, last = time.monotonic(), -1

    def show(sent: int, total: int) -> None:
        nonlocal last
        percent = 100 * sent // max(total, 1)
        if percent == last or time.monotonic() - started < PROGRESS_AFTER:
            return
        last = percent
        end = "\n" if sent >= total else ""
        print(f"\rUploading {human_bytes(total)}: {percent:3d} %", end=end, file=stream or sys.stderr, flush=True)

    return show
