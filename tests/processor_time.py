"""`EDT_PROCESSOR_TIME=1 make test`: the processor seconds of each test file, with everything it started.

`time` does not count servers and supervisors, which are detached. A control group (cgroup v1, cpuacct) does: before a
file's first test this process enters the group of the file, with every process that it has started. The end of the run
prints the seconds of folders and files, largest first. Needs root and a writable cpuacct hierarchy.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from tests import aftermath

_ROOT = Path("/sys/fs/cgroup/cpuacct")
_SHOWN = 400


class ProcessorTime:
    """The groups of one run, which all of its processes share."""

    def __init__(self, config: pytest.Config) -> None:
        uid = os.environ.setdefault("EDT_PROCESSOR_TIME_RUN", f"edt-tests-{os.getpid()}")
        self._folder = _ROOT / uid
        self._folder.mkdir(exist_ok=True)
        self._reports = not hasattr(config, "workerinput")
        self._file = ""
        if "TMPDIR" in os.environ:
            self._enter("(collection)")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Enter the group of the test's file before its fixtures start anything."""
        self._enter(os.path.relpath(item.path, item.config.rootpath))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the seconds of each file, and of each folder."""
        if not self._reports:
            return
        seconds = {
            group.name.replace("|", "/"): int((group / "cpuacct.usage").read_text()) / 1e9
            for group in self._folder.iterdir()
            if group.is_dir()
        }
        folders: dict[str, float] = {}
        for file, used in seconds.items():
            folder = file.rpartition("/")[0] or file
            folders[folder] = folders.get(folder, 0.0) + used
        terminalreporter.section(f"processor time: {sum(seconds.values()):.0f} s")
        for what in (folders, seconds):
            for name, used in sorted(what.items(), key=lambda each: -each[1])[:_SHOWN]:
                terminalreporter.write_line(f"{used:8.1f} s  {name}")

    def _enter(self, file: str) -> None:
        if file == self._file:
            return
        self._file = file
        group = self._folder / file.replace("/", "|")
        group.mkdir(exist_ok=True)
        # Servers that several files share work for this file from now on.
        for pid in (os.getpid(), *aftermath.started_with(os.environ["TMPDIR"])):
            with contextlib.suppress(ProcessLookupError):
                (group / "cgroup.procs").write_text(str(pid))
