"""Keep the processes of a job in a sandbox: they see the job's own files, and nothing of other jobs or the server.

The supervisor and the zygotes, which run no code of the job, stay outside. So warm starts, reports and keys are as
without a sandbox, and a job's code never sees the key of its own supervisor (decision 040). Driver, workers and all
that they start are inside. They share one sandbox, because ranks share memory and send each other signals.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from edt_sdk.schemas.errors import EdtError
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.wire.control import Launch
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.system.bubblewrap import Mounts, Sandbox
from edt_server.system.presence import FILE as PRESENCE

log = logging.getLogger(__name__)


class JobSandbox:
    """The sandbox of a job. It is started for the first process, and again should it end before the job does.

    Nothing of an earlier attempt may run any more. `lifeline` is a descriptor that processes hold which may outlive
    the supervisor: without one of them, and without the supervisor, the sandbox ends.
    """

    def __init__(self, orders: Launch, memory_dir: str) -> None:
        self._orders = orders
        self._memory_dir = memory_dir
        self._paths = JobPaths(Path(orders.data_dir), orders.owner, orders.job_id)
        self._read, self.lifeline = os.pipe2(os.O_CLOEXEC)
        self._running: Sandbox | None = None
        self._former: list[Sandbox] = []

    @property
    def pids(self) -> tuple[int, ...]:
        """The pids of the sandbox itself, of which the last adopts the orphans in it. () before it is started."""
        return () if self._running is None else self._running.pids

    def namespaces(self, places: Collection[str]) -> Sequence[int]:
        """Return descriptors of its namespaces, as `zygote.Fork.namespaces` takes them. Blocks for some milliseconds.

        `places` are the zygote's. EdtError when there is no sandbox.
        """
        if not places:
            raise EdtError(
                "This server's jobs run in a sandbox, and the job's Python has an older jupyter-edt, which cannot.",
                hint=f"Install the server's version there: {self._orders.interpreter} -m pip install -U jupyter-edt",
            )
        if self._running is not None and not self._running.alive:
            log.warning("the sandbox has ended: a new one is started")
            # Not closed before the end: its own end may wait for processes that this thread has yet to reap.
            self._former.append(self._running)
            self._running = None
        if self._running is None:
            mounts = self._mounts(places)
            self._running = Sandbox(mounts, (self._read, self.lifeline), network=self._orders.isolation.network)
            log.info("sandbox started, pids=%s", self.pids)
        return self._running.namespaces

    def close(self) -> None:
        """Kill everything in it, and remove its temporary files."""
        for sandbox in (*self._former, *([self._running] if self._running is not None else [])):
            sandbox.close()
        self._former.clear()
        self._running = None
        os.close(self._read)
        os.close(self.lifeline)
        try:
            _remove(self._paths.temporary)
        except OSError as wrong:
            # Such as a folder that the job's code has closed to its own account. It goes with the job's other files.
            log.warning("the temporary files stay: %s", wrong)

    def _mounts(self, places: Iterable[str]) -> Mounts:
        orders, paths = self._orders, self._paths
        # What an earlier attempt has left there may also be a link.
        _remove(paths.temporary)
        paths.temporary.mkdir(mode=0o700)
        home = os.environ.get("HOME", "")
        runtime = Path(orders.runtime_dir)
        empty = (orders.data_dir, str(runtime.parent))
        agents = orders.spec.framework == Framework.TORCHRUN
        # A name that is mounted cannot be renamed inside. So whatever the job's code does, it stays ours outside.
        ours = (paths.launch_file, paths.journal, paths.supervisor_log, paths.stream_index, paths.job_dir / PRESENCE)
        writable = [paths.result_dir, paths.job_dir, runtime, *([paths.streams_dir] if agents else [])]
        fixed = [orders.dataset_dir] if orders.dataset_dir else []
        return Mounts(
            readable=(*_without(home, places), *filter(None, (orders.data_fs, *orders.isolation.readable))),
            empty=empty,
            writable=(*map(str, writable), *([self._memory_dir] if self._memory_dir else [])),
            hidden=tuple(str(path) for path in ours if path.exists()),
            fixed=(*fixed, *([] if agents else [str(paths.streams_dir)])),
            home="" if os.path.realpath(home) == "/" else home,
            temporary=str(paths.temporary),
        )


def _without(home: str, places: Iterable[str]) -> list[str]:
    """Return the places of an interpreter that do not show the home folder, though they may lie in it."""
    found = []
    for place in places:
        if home and Path(os.path.realpath(home)).is_relative_to(os.path.realpath(place)):
            log.warning("%s is not shown in the sandbox, because the home folder is in it", place)
        else:
            found.append(place)
    return found


def _remove(path: Path) -> None:
    """Remove whatever has this name, never what a link leads to."""
    try:
        if stat.S_ISDIR(path.lstat().st_mode):
            shutil.rmtree(path)
        else:
            path.unlink()
    except FileNotFoundError:
        pass
