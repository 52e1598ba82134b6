"""Packages as a submission sends them, and scripts that need no torch: one sleeps, another writes its weights."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping

SLEEPER = b"import time\nprint('hello', flush=True)\ntime.sleep(600)\n"
# What it is told becomes its weights, which is all that a version needs.
WRITES_WEIGHTS = b"""
import os, sys
from pathlib import Path
train = Path(os.environ["RESULT_DIR"], "model", "train")
train.mkdir(parents=True)
(train / "model_epoch_final.pth").write_text(sys.argv[1])
"""


def packed(files: Mapping[str, bytes]) -> bytes:
    """Return a gzipped tar of these files."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return raw.getvalue()
