"""Packages as a submission sends them, and the one of a script that only sleeps."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping

SLEEPER = b"import time\nprint('hello', flush=True)\ntime.sleep(600)\n"


def packed(files: Mapping[str, bytes]) -> bytes:
    """Return a gzipped tar of these files."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return raw.getvalue()
