"""Provide private folders for sockets and locks, and the lock that allows one server per data folder.

A Unix socket's path must stay below about 100 bytes, which Jupyter's runtime folder may already exceed. Then a folder
below the temporary one is used, or below /tmp where TMPDIR is as long. It is made with 0700 and refused when it belongs
to another account.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from edt_sdk.schemas.errors import EdtError, ServerUnreachable
from edt_server.system.private_files import make_private_dir, write_private

_LONGEST_SOCKET = 100
_LONGEST_BELOW = len("/a-name-of-twenty-four-chars-abcdef/link.sock")


def runtime_dir(parent: Path, data_dir: Path) -> Path:
    """Return the folder for this data folder's sockets below `parent`, or a shorter path. It is made private.

    All servers of this host use the same one for a data folder, whatever each would choose, because jobs have their
    locks in it. The first server chooses, and writes the path into the data folder.
    """
    chosen = data_dir / "control" / f"runtime-{socket.gethostname()}"
    with contextlib.suppress(OSError, ValueError, EdtError):  # not chosen yet, or no longer usable
        return private_dir(Path(chosen.read_text(encoding="utf-8")))
    place = _choose(parent, data_dir)
    make_private_dir(chosen.parent)
    write_private(chosen, str(place).encode())
    return place


def _choose(parent: Path, data_dir: Path) -> Path:
    mark = hashlib.sha256(str(data_dir.resolve()).encode()).hexdigest()[:8]
    short = f"edt-{os.getuid()}-{mark}"
    places = (parent / f"edt-{mark}", Path(tempfile.gettempdir()) / short, Path("/tmp") / short)
    for place in places:
        if len(os.fsencode(place)) + _LONGEST_BELOW <= _LONGEST_SOCKET:
            return private_dir(place)
    raise AssertionError("/tmp is short enough")


def private_dir(place: Path) -> Path:
    """Return `place`, made with 0700 when it is missing. EdtError when it is not a folder of this account."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.mkdir(mode=0o700, exist_ok=True)
    info = place.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
        raise EdtError(
            f"{place} is not a folder of this account.",
            hint="Remove it, or set TMPDIR or JUPYTER_RUNTIME_DIR to another.",
        )
    place.chmod(0o700)
    return place


def leave_runtime_dir(place: Path) -> None:
    """Remove the folder of a server that ends, unless running jobs have their sockets in it. Blocks.

    The next server makes it again. The output of spare supervisors stays for it.
    """
    with contextlib.suppress(OSError):
        said = place / "warm.log"
        if said.exists() and not said.stat().st_size:
            said.unlink()
        place.rmdir()


@contextlib.contextmanager
def server_lock(path: Path) -> Iterator[None]:
    """Hold the lock of the one server that runs the jobs of a data folder. The system frees it when that process ends.

    Never waits. ServerUnreachable has the process that holds it. At the end an empty folder is removed.
    """
    descriptor = _locked(path)
    # The race with the end of a holder: a lock on a file that has lost its name would let a second server lock a new
    # file.
    while not _is_file(descriptor, path):
        os.close(descriptor)
        descriptor = _locked(path)
    try:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        yield
    finally:
        # Removed before it is unlocked: afterwards the file could already be another server's.
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # running jobs have their sockets in it
            path.parent.rmdir()
        # Unlocked explicitly: a process that is just being started still has a copy of the descriptor.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _locked(path: Path) -> int:
    """Open and lock the file. Return its descriptor."""
    private_dir(path.parent)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(descriptor, 32).decode("ascii", "replace").strip()
        os.close(descriptor)
        raise ServerUnreachable(
            f"Another Jupyter Server (pid {holder or 'unknown'}) runs the jobs of this data folder.",
            hint="Use that one, or set another c.EdtApp.data_dir; this server takes over when the other ends.",
        ) from None
    return descriptor


def _is_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
