"""The lock of a supervisor says that it lives, to whoever cannot see it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from edt_server.system.processes import announce, is_held

HOLDER = """
import pathlib, sys
from edt_server.system.processes import announce
announce(pathlib.Path(sys.argv[1]))
print(1, flush=True)
input()
"""


def test_it_is_held_as_long_as_the_process_lives(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    assert not is_held(lock)
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"1\n"
    assert is_held(lock)
    holder.kill()
    holder.communicate()
    assert not is_held(lock)


def test_where_it_cannot_be_made_nobody_fails(tmp_path: Path) -> None:
    assert announce(tmp_path / "missing" / "lock") == -1
