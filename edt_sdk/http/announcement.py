"""Print what WMLA's engine printed when it was imported: a job's folders and its backend, once per process.

Outside of a job nothing is printed, because a notebook that imports the engine owns its output. Nor in a quiet job.
"""

from __future__ import annotations

import logging
import os
import sys
from functools import cache

from edt_sdk.schemas.wire.context import job_context

log = logging.getLogger(__name__)

_FOLDERS = ("DATA_DIR", "RESULT_DIR", "LOG_DIR", "SAVED_MODEL_DIR")
_BACKEND = "FABRIC_BACKEND"


@cache
def announce() -> None:
    """Print the lines, unless this process has printed them."""
    backend = os.environ.get(_BACKEND, "")
    if backend not in ("", "pytorch"):
        print(
            f"edt: {_BACKEND} is {backend!r}, which has no effect: models are PyTorch models here.",
            file=sys.stderr,
            flush=True,
        )
    job = job_context()
    if job is None:
        log.info("Using pytorch backend.")
    if job is None or job.quiet:
        return
    for variable in _FOLDERS:
        if value := os.environ.get(variable):
            print(f"<> {variable} {value}")
    print("Using pytorch backend.", flush=True)
