"""Record which GPUs of this machine the jobs of each store use: two stores of an account never share one.

There is one file per device, in a folder outside all data folders (/tmp/edt-<uid>-devices, 0700). A server writes its
claim before a job learns of the device, and removes it when no job of its store is in it any more. A claim outlives the
server that wrote it: it counts as long as that server lives, or any process of its jobs, which all hold a lock of their
job (`supervisor/predecessors.py`). A claim without a living process may be replaced. Blocks, but briefly.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from edt_sdk.schemas.wire.control import ProcessIdentity
from edt_server.system.private_files import write_private
from edt_server.system.processes import is_alive, is_held, visible
from edt_server.system.runtime import private_dir

_SUFFIX = ".json"
# A supervisor takes its job's lock when it has started: until then the claim counts for this long on its own.
_FRESH = 60.0


class DeviceClaim(msgspec.Struct, frozen=True):
    """The user of a device: the data folder, the server that wrote the claim, the jobs, and the locks they hold."""

    data_dir: str
    server: ProcessIdentity
    jobs: tuple[str, ...]
    locks: tuple[str, ...]


class DeviceClaims:
    """The claims of this store (identified by `data_dir`), with a view of the other stores' claims.

    `runtime_dir` has the jobs' locks, `folder` all claims on this machine, None for the account's own.
    """

    def __init__(self, data_dir: Path, runtime_dir: Path, me: ProcessIdentity, folder: Path | None = None) -> None:
        self._data_dir = str(data_dir.resolve())
        self._runtime_dir = runtime_dir
        self._me = me
        self._folder = folder or Path(tempfile.gettempdir()) / f"edt-{os.getuid()}-devices"
        self._mine: dict[str, tuple[str, ...]] = {}
        self._looked = False  # whether claims of an earlier server of this store were looked for

    @property
    def mine(self) -> Mapping[str, tuple[str, ...]]:
        """Device → jobs, as this store has claimed them."""
        return self._mine

    def take(self, device: str, job: str) -> bool:
        """Claim a device for a job. Return False when another store's jobs are in it."""
        if job in self._mine.get(device, ()):
            return True
        with self._alone():
            there = self._read(self._path(device))
            if there is not None and there.data_dir != self._data_dir and self._counts(device, there):
                return False
            self._write(device, (*self._mine.get(device, ()), job))
        return True

    def keep(self, used: Mapping[str, tuple[str, ...]]) -> None:
        """Set the devices that this store's jobs are in now (device → jobs). Its other claims are dropped."""
        if used == self._mine and self._looked:
            return
        self._looked = True
        if not used and not self._folder.exists():  # no store of this account has ever used a GPU
            return
        with self._alone():
            for device in self._devices():
                there = self._read(self._path(device))
                if device not in used and there is not None and there.data_dir == self._data_dir:
                    self._path(device).unlink(missing_ok=True)
            self._mine = {device: jobs for device, jobs in self._mine.items() if device in used}
            for device, jobs in used.items():
                there = self._read(self._path(device))
                ours = there is None or there.data_dir == self._data_dir or not self._counts(device, there)
                if ours and self._mine.get(device) != jobs:
                    self._write(device, jobs)

    def elsewhere(self) -> dict[str, DeviceClaim]:
        """Return the devices that jobs of other stores are in."""
        found: dict[str, DeviceClaim] = {}
        if not self._folder.exists():
            return found
        for device in self._devices():
            claim = self._read(self._path(device))
            if claim is not None and claim.data_dir != self._data_dir and self._counts(device, claim):
                found[device] = claim
        return found

    def _write(self, device: str, jobs: tuple[str, ...]) -> None:
        locks = tuple(str(self._runtime_dir / job / "alive.lock") for job in jobs)
        write_private(self._path(device), msgspec.json.encode(DeviceClaim(self._data_dir, self._me, jobs, locks)))
        self._mine[device] = jobs

    def _counts(self, device: str, claim: DeviceClaim) -> bool:
        """Return whether a living process holds the claim."""
        if visible(claim.server) and is_alive(claim.server):
            return True
        # A dead server's jobs go on without it, and their supervisors hold these locks.
        if any(is_held(Path(lock)) for lock in claim.locks):
            return True
        with contextlib.suppress(FileNotFoundError):
            # The age of a claim is never negative: a clock that was set back would keep the device for long.
            return abs(time.time() - self._path(device).stat().st_mtime) < _FRESH
        return False

    def _path(self, device: str) -> Path:
        return self._folder / f"{device.replace(':', '-')}{_SUFFIX}"

    def _devices(self) -> list[str]:
        return [path.name.removesuffix(_SUFFIX).replace("-", ":") for path in self._folder.glob(f"*{_SUFFIX}")]

    @staticmethod
    def _read(path: Path) -> DeviceClaim | None:
        try:
            return msgspec.json.decode(path.read_bytes(), type=DeviceClaim)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock under which claims are read and written."""
        private_dir(self._folder)
        descriptor = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # Reading a claim and replacing it must be atomic, or two servers could both find a device free.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)
