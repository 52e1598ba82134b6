"""A secret shared by all servers over one data folder: a file that only this account can read (0600)."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from edt_server.system.private_files import make_private_dir, write_private


def shared_secret(path: Path) -> str:
    """Return the secret in the file. The first call makes it, and concurrent first calls all get the same secret."""
    while True:
        with contextlib.suppress(FileNotFoundError):
            if secret := path.read_text(encoding="ascii"):
                return secret
            path.unlink()  # a machine that lost its power, or a full disk, left it empty
        make_private_dir(path.parent)
        fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        write_private(fresh, secrets.token_urlsafe(32).encode("ascii"))
        # A link and not a rename: a rename would replace the secret that another server has just made and returned.
        with contextlib.suppress(FileExistsError):
            os.link(fresh, path)
        fresh.unlink()
