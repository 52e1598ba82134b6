"""Keep the processes of a job in a sandbox: they see the job's own files, and nothing of other jobs or the server.

The supervisor and the zygotes, which run no code of the job, stay outside. So warm starts, reports and keys are as
without a sandbox, and a job's code never sees the key of its own supervisor (decision 040). Driver, workers and all
that they start are inside. They share one sandbox on each host, because ranks share memory and send each other signals.
On other hosts than the supervisor's an outpost takes its place.

With isolation ACCOUNT they are processes of the account of the job's owner too, and this process is root (decision
042). The results belong to that account. Folders of ours in which it makes files stay ours, and are sticky as /tmp is:
it can remove or replace nothing in them but its own.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from edt_sdk.schemas.errors import EdtError
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.wire.control import Account, Launch
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.regular import make_folder
from edt_server.supervisor.processes.predecessors import LOCK
from edt_server.system.bubblewrap import Mounts, Sandbox
from edt_server.system.processes import PRESENCE

log = logging.getLogger(__name__)


class JobSandbox:
    """The sandbox of a job. It is started for the first process, and again should it end before the job does.

    Nothing of an earlier attempt may run any more. `lifeline` is a descriptor that processes hold which may outlive
    the supervisor: without one of them, and without the supervisor, the sandbox ends. `member` is the name of the host,
    where the supervisor is on another one.
    """

    def __init__(self, orders: Launch, memory_dir: str, member: str = "") -> None:
        self._orders = orders
        self._member = member
        self.account = orders.isolation.account
        """The account of its processes, None for this process's own."""
        # The folder of an account is in the service's, which is swept by name.
        self.memory_dir = memory_dir if self.account is None or not memory_dir else f"{memory_dir}/own"
        """The job's folder in memory, "" for none."""
        self._paths = JobPaths(Path(orders.data_dir), orders.owner, orders.job_id)
        # No host has this name.
        self._temporary = self._paths.temporary / (member or "_")
        self._read, self.lifeline = os.pipe2(os.O_CLOEXEC)
        self._running: Sandbox | None = None
        self._former: list[Sandbox] = []

    @property
    def pids(self) -> tuple[int, ...]:
        """The pids of the sandbox itself, of which the last adopts the orphans in it. () before it is started."""
        return () if self._running is None else self._running.pids

    def hand_over(self) -> None:
        """Give the account what it needs of the job's folders, before the first process starts. Blocks.

        EdtError when the results belong to another account.
        """
        account, paths = self.account, self._paths
        if account is None:
            return
        agents = self._orders.spec.framework == Framework.TORCHRUN
        for folder in (paths.job_dir, Path(self._orders.runtime_dir), *([paths.streams_dir] if agents else [])):
            os.chown(folder, -1, account.gid)
            folder.chmod(0o1770)
        if self.memory_dir:
            Path(self.memory_dir).mkdir(mode=0o700, exist_ok=True)
            os.chown(self.memory_dir, account.uid, account.gid)
        if self._orders.warm_start:
            self.give(Path(self._orders.warm_start))
        found = paths.result_dir.lstat().st_uid
        if found == os.geteuid():
            # Nothing of the job has run with an account, so no name in there is someone's trap. The folder itself
            # comes last: what is interrupted here is done again.
            for place, folders, files in os.walk(paths.result_dir, topdown=False):
                for name in (*folders, *files):
                    self.give(Path(place, name))
            paths.result_dir.chmod(0o700)
            self.give(paths.result_dir)
        elif found != account.uid:
            raise EdtError(
                f"The job's results belong to the account {found}, and its owner's is {account.name} ({account.uid}).",
                hint=f"Give them to that account: chown -R {account.uid}:{account.gid} {paths.result_dir}",
                job=self._orders.job_id,
            )

    def give(self, path: Path) -> None:
        """Make the account the owner of something of ours, which only we can replace. A link itself, not its target.

        A file with other names, such as the weights that a job begins with, is replaced by a copy: the others have
        other owners.
        """
        if self.account is None:
            return
        try:
            status = path.lstat()
        except FileNotFoundError:
            return
        if status.st_uid != os.geteuid():
            return
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            fresh = path.with_name(f".{path.name}.new")
            shutil.copy2(path, fresh)
            fresh.replace(path)
        os.chown(path, self.account.uid, self.account.gid, follow_symlinks=False)

    def namespaces(self, places: Collection[str]) -> Sequence[int]:
        """Return descriptors of its namespaces, as `zygote.Fork.namespaces` takes them. Blocks for some milliseconds.

        `places` are the zygote's. EdtError when there is no sandbox.
        """
        if not places:
            raise EdtError(
                "This server's jobs run in a sandbox, and the job's Python has an older jupyter-edt, which cannot.",
                hint=f"Install the server's version there: {self._orders.interpreter} -m pip install -U jupyter-edt",
            )
        self._check_readable(places)
        if self._running is not None and not self._running.alive:
            log.warning("the sandbox has ended: a new one is started")
            # Not closed before the end: its own end may wait for processes that this thread has yet to reap.
            self._former.append(self._running)
            self._running = None
        if self._running is None:
            mounts = self._mounts(places)
            self._running = Sandbox(
                mounts,
                (self._read, self.lifeline),
                network=self._orders.isolation.network,
                users=self.account is None,
            )
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
            _remove(self._temporary if self._member else self._paths.temporary)
        except OSError as wrong:
            # Such as a folder that the job's code has closed to its own account. It goes with the job's other files.
            log.warning("the temporary files stay: %s", wrong)

    def _check_readable(self, places: Iterable[str]) -> None:
        """Raise EdtError when the account may not read a place of the interpreter. The folders above do not count."""
        account = self.account
        if account is None:
            return
        for place in places:
            status = os.stat(place)
            owner, group = status.st_uid == account.uid, status.st_gid in (account.gid, *account.groups)
            wanted = 0o4 | (0o1 if stat.S_ISDIR(status.st_mode) else 0)
            if not wanted & ~(status.st_mode >> (6 if owner else 3 if group else 0)):
                continue
            raise EdtError(
                f"The account {account.name} may not read {place}, which the job's Python needs.",
                hint=f"Its administrator makes it readable (chmod -R a+rX {place}), or installs jupyter-edt where all "
                "accounts can read it, such as /opt, and sets c.EdtApp.python.",
            )

    def _mounts(self, places: Iterable[str]) -> Mounts:
        orders, paths = self._orders, self._paths
        # What an earlier attempt has left there may also be a link.
        if paths.temporary.is_symlink():
            paths.temporary.unlink()
        _remove(self._temporary)
        make_folder(self._temporary, within=paths.job_dir)
        # Not the account's own, which could put a link in its place.
        self._temporary.chmod(0o700 if self.account is None else 0o1777)
        home = os.environ.get("HOME", "")
        runtime = Path(orders.runtime_dir)
        empty = (orders.data_dir, str(runtime.parent))
        agents = orders.spec.framework == Framework.TORCHRUN
        # A name that is mounted cannot be renamed inside. So whatever the job's code does, it stays ours outside.
        index = paths.stream_index_of(self._member) if self._member else paths.stream_index
        ours = (paths.launch_file, paths.journal, paths.supervisor_log, index, paths.job_dir / PRESENCE, runtime / LOCK)
        writable = [paths.result_dir, paths.job_dir, runtime, *([paths.streams_dir] if agents else [])]
        # Of the temporary files the name: another host of this machine mounts what is below it.
        fixed = [str(paths.temporary), *([orders.dataset_dir] if orders.dataset_dir else [])]
        return Mounts(
            readable=(*_without(home, places), *filter(None, (orders.data_fs, *orders.isolation.readable))),
            empty=empty,
            writable=(*map(str, writable), *([self.memory_dir] if self.memory_dir else [])),
            hidden=tuple(str(path) for path in ours if path.exists()),
            fixed=(*fixed, *([] if agents else [str(paths.streams_dir)])),
            home="" if os.path.realpath(home) == "/" or self.account is not None else home,
            kept=() if self.account is None else tuple(_home(self.account)),
            temporary=str(self._temporary),
        )


def _home(account: Account) -> Iterator[str]:
    """Yield the home folder of an account that has one. A system account's may be a folder of the system."""
    home = Path(account.home)
    try:
        # A folder that its owner could replace by a link to another one is not shown.
        if home.lstat().st_uid == account.uid and not any(parent.lstat().st_uid for parent in home.parents):
            yield account.home
    except OSError as wrong:
        log.warning("the home folder of %s is not shown: %s", account.name, wrong)


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
