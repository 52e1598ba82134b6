"""Programs of a training forked from one zygote, as a supervisor's are: starting each would import torch again.

That a forked one finds what a started one finds is tested in test_zygote.py.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from edt_sdk.schemas.wire.zygote import PASS, Fork, Forked, Ready, to_wire
from edt_server.supervisor.processes.zygote import ZygoteProcess
from edt_server.supervisor.programs.environment import zygote_environment

PR_SET_CHILD_SUBREAPER = 36


class Process:
    """A child of this process, with the part of `subprocess.Popen` that tests use."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float = 180.0) -> int:
        """Its exit code when it has ended; subprocess.TimeoutExpired when it does not."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(0.005)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Nothing to one that has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def fork(module: str, environ: Mapping[str, str], directory: Path, said: Path) -> Process:
    """`python -u -m <module>` with these variables in this folder; what it says goes to a new file."""
    zygote = _zygote()
    out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    read, write = os.pipe()
    try:
        # Only as long as it takes: whatever else loses its parent is not for us to reap.
        with _adopting():
            zygote.ask(
                Fork(module=module, environ=to_wire(environ), directory=str(directory), umask=0o022), read, (out, out)
            )
            answer = _answer(zygote)
        assert isinstance(answer, Forked), answer
        os.write(write, PASS)
    finally:
        for descriptor in (out, read, write):
            os.close(descriptor)
    return Process(answer.pid)


@contextlib.contextmanager
def _adopting() -> Iterator[None]:
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@functools.cache
def _zygote() -> ZygoteProcess:
    zygote = ZygoteProcess(sys.executable, zygote_environment({**os.environ, "PYTHONWARNINGS": "default"}, 1))
    assert isinstance(_answer(zygote), Ready)
    return zygote


def end() -> None:
    """End the zygote, if anything was forked; the next fork starts another."""
    if _zygote.cache_info().currsize:
        _zygote().end()
        _zygote.cache_clear()


def _answer(zygote: ZygoteProcess) -> object:
    while (answer := zygote.hear()) is None:
        assert not zygote.silent, zygote.words()
        select.select([zygote.socket], [], [])
    return answer
