"""A secret that all servers over one data folder know, and nobody else: a file of this account alone (0600)."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from edt_server.system.private_files import make_private_dir, write_private


def shared_secret(path: Path) -> str:
    """What is in the file, made at the first call; of callers that make it at once, all get the same."""
    while True:
        with contextlib.suppress(FileNotFoundError):
            return path.read_text(encoding="ascii")
        make_private_dir(path.parent)
        fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        write_private(fresh, secrets.token_urlsafe(32).encode("ascii"))
        # A link and not a rename: the first one there is it.
        with contextlib.suppress(FileExistsError):
            os.link(fresh, path)
        fresh.unlink()
