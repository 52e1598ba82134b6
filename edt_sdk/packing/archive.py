"""Write files into an archive.

The archive is reproducible: the same files give the same bytes (sorted, no times, no owners). Writing stops at the size
cap, before a byte is sent. The archive contains nothing of its machine except the listed files.
"""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Sequence
from typing import IO

from edt_sdk.packing.sources import IGNORE_FILE, SourceFile
from edt_sdk.packing.table import human_bytes
from edt_sdk.schemas.errors import PackageError, TooLarge


def write_archive(files: Sequence[SourceFile], target: IO[bytes], *, cap: int | None = None) -> int:
    """Write a tar.gz of `files` to `target` and return its size in bytes.

    Raises:
        TooLarge: it would exceed `cap` bytes. The message names the largest files.
        PackageError: a file cannot be read, or changed while it was read.
    """
    capped = _Capped(target, cap)
    try:
        # Level 6 is zlib's own default. It is fixed here, so that the bytes do not depend on the Python version.
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
    """Signals that the archive is over the cap. Not an OSError, which would look like an unreadable file."""


class _Capped:
    """Counts written bytes and stops at the cap, even in the middle of a file."""

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
    # A new TarInfo instead of gettarinfo: no owner, no times, so equal files give equal bytes.
    info = tarfile.TarInfo(file.name)
    info.mode = 0o755 if file.executable else 0o644
    if isinstance(file.content, bytes):
        info.size = len(file.content)
        archive.addfile(info, io.BytesIO(file.content))
        return
    try:
        with file.content.open("rb") as opened:
            # The size of the opened file, not of the listing: it may have changed, and a wrong size corrupts the tar.
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
        hint=f"Name what the job does not need in {IGNORE_FILE}. Read large data by path instead of packing it.",
    )
