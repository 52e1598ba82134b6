"""Build the request body for an archive, and report how much has been sent.

The archive is sent from a file, so memory use does not depend on its size.
"""

from __future__ import annotations

import io
import sys
import time
import uuid
from collections.abc import Callable
from typing import IO

from edt_sdk.packing.table import human_bytes

QUIET_VARIABLE = "EDT_NONINTERACTIVE"
PROGRESS_AFTER = 2.0


class Multipart:
    """Streams the body of a submission: part `spec` (JSON), then part `package` (the archive).

    requests' own `files=` reads every file into memory first. An object with `read` and a length is sent in pieces.
    """

    def __init__(
        self, spec: bytes, package: IO[bytes], package_bytes: int, on_sent: Callable[[int, int], None] | None = None
    ) -> None:
        # Random, so that it does not occur in the archive.
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
        """Return the value of the Content-Type header."""
        return f"multipart/form-data; boundary={self.boundary}"

    def __len__(self) -> int:
        return self._length

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, at most `size`, b"" at the end."""
        data = b""
        # An exhausted part returns b"", which means the end of the body to the caller. Go on to the next part first.
        while self._parts and not data:
            data = self._parts[0].read(size)
            if not data:
                self._parts.pop(0)
        self._sent += len(data)
        if self._on_sent is not None:
            self._on_sent(self._sent, self._length)
        return data


def upload_progress() -> Callable[[int, int], None]:
    """Return a function that prints the percentage sent to stderr, once the upload has taken 2 s."""
    started, last = time.monotonic(), -1

    def show(sent: int, total: int) -> None:
        nonlocal last
        percent = 100 * sent // max(total, 1)
        if percent == last or time.monotonic() - started < PROGRESS_AFTER:
            return
        last = percent
        end = "\n" if sent >= total else ""
        print(f"\rUploading {human_bytes(total)}: {percent:3d} %", end=end, file=sys.stderr, flush=True)

    return show
