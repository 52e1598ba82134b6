"""Receive the archive of a model on its way to the disk."""

from __future__ import annotations

import tempfile
from pathlib import Path

from edt_sdk.schemas.errors import TooLarge


class ModelArchive:
    """The body of an upload, in a folder of its own below `uploads`, with at most `cap` bytes."""

    def __init__(self, uploads: Path, _content_type: str, cap: int) -> None:
        self._kept = tempfile.TemporaryDirectory(prefix="upload-", dir=uploads)
        self.folder = Path(self._kept.name)
        self.path = self.folder / "model.tar"
        self._file = self.path.open("wb")
        self._left, self._cap = cap, cap

    def write(self, data: bytes) -> None:
        """Take the next bytes. TooLarge for more than there may be. Blocks."""
        self._left -= len(data)
        if self._left < 0:
            raise TooLarge(f"The archive is larger than this server accepts ({self._cap} bytes).")
        self._file.write(data)

    def finish(self) -> None:
        """End the file."""
        self._file.close()

    def close(self) -> None:
        """Remove the file. May be called twice."""
        self._file.close()
        self._kept.cleanup()
