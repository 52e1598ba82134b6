"""What is left when tests were killed before they could end anything: servers, jobs, kernels, browsers, their files.

Jobs outlive their server by design, and a killed test process ends neither. So beside each runs this program. It waits
for the end of a pipe that closes with the test process, and then kills whatever has the process's own temporary folder
in its environment, until there is nothing, and takes the folder away. After tests that ended in order it finds nothing.
Run as a program it needs nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path


def watch(folder: str) -> subprocess.Popen[bytes]:
    """Start it beside this process; closing its stdin, or this process's end, has it look for what is left.

    Args:
        folder: the value of TMPDIR of everything that this process will start, and of nothing else.
    """
    environ = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
    # A session of its own: Ctrl-C at the terminal is not for it.
    return subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, folder], stdin=subprocess.PIPE, env=environ, start_new_session=True
    )


def dismiss(watcher: subprocess.Popen[bytes]) -> None:
    """Have it look now, and wait until it has."""
    watcher.communicate()


def started_with(folder: str) -> dict[int, str]:
    """Other processes whose TMPDIR is this folder, and their command lines."""
    mark = f"TMPDIR={folder}".encode()
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                    found[int(entry.name)] = command.decode(errors="replace").strip()
    return found


def main(folder: str) -> None:
    """Wait, then leave nothing."""
    sys.stdin.buffer.read()
    while left := started_with(folder):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
