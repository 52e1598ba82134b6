"""Read `edge.json` whenever the server has replaced it."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from edt_sdk.schemas.serving.edge_file import EdgeFile

log = logging.getLogger(__name__)


class FileWatch:
    """The file, and its state when it was read last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None

    def changed(self) -> EdgeFile | None:
        """Return the content when the file has changed. None when it has not, or is missing or broken."""
        try:
            state = self._path.stat()
            seen = state.st_ino, state.st_mtime_ns, state.st_size
            if seen == self._seen:
                return None
            self._seen = seen  # before it is read: a broken file is logged once
            return msgspec.json.decode(self._path.read_bytes(), type=EdgeFile)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as wrong:
            log.warning("%s cannot be read, what was known stays valid: %s", self._path.name, wrong)
            return None
