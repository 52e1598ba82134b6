"""Which processes of a server's folder are still there: its kernels, supervisors, drivers, workers, loaders.

A process belongs to a folder when its command line or one of the variables that we set names it. Nothing is matched by
a program's name, so other people's servers are never touched.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil

OUR_VARIABLES = ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "EDT_JOB", "RESULT_DIR")


def leftovers(folder: Path) -> list[psutil.Process]:
    """The living processes of `folder`, this one excepted."""
    found = []
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            environ = process.environ()
            marks = [*process.cmdline(), *(environ.get(name, "") for name in OUR_VARIABLES)]
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if any(f"{folder}{os.sep}" in mark for mark in marks):
            found.append(process)
    return found


def wait_for_none(folder: Path, limit: float) -> list[psutil.Process]:
    """The processes that are still there after `limit` seconds; returns at once when there are none."""
    deadline = time.monotonic() + limit
    while (left := leftovers(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def end(processes: list[psutil.Process]) -> None:
    """SIGTERM by pid, SIGKILL to what is there 5 s later."""
    for process in processes:
        try:
            process.terminate()
        except psutil.NoSuchProcess:
            continue
    _, stubborn = psutil.wait_procs(processes, timeout=5)
    for process in stubborn:
        process.kill()
