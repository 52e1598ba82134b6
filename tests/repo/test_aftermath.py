"""Tests that are killed leave nothing behind: neither a process, whoever its parent is, nor a folder."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.aftermath import started_with

ROOT = Path(__file__).parents[2]
# A test with a process that nobody will end, not even a server: it is its own session and has lost its parent.
HANGS = """
import subprocess, tempfile, time, pathlib
def test_hangs():
    subprocess.Popen("sleep 600 &", shell=True, start_new_session=True).wait()
    (pathlib.Path(tempfile.gettempdir()) / "left").touch()
    pathlib.Path({told!r}).write_text(tempfile.gettempdir())
    time.sleep(600)
"""


@pytest.mark.parametrize("processes", [0, 1])
def test_of_killed_tests_nothing_is_left(tmp_path, processes):
    told = tmp_path / "told"
    (tmp_path / "test_it.py").write_text(HANGS.format(told=str(told)))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", str(processes)]
    command += ["--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"), "--confcutdir", str(ROOT)]
    # Its own conftest is the repository's, which is loaded by name: the file lies elsewhere.
    command += ["-p", "tests.conftest", str(tmp_path / "test_it.py")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True) as tests:
        while not (told.exists() and told.read_text()):
            assert tests.poll() is None
            time.sleep(0.05)
        folder = told.read_text()
        assert any("sleep 600" in command for command in started_with(folder).values())
        os.kill(tests.pid, signal.SIGKILL)
    while started_with(folder) or Path(folder).exists():
        time.sleep(0.05)
