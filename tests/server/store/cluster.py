"""A PostgreSQL cluster of our own: in a temporary folder, run by an ordinary user, reached through a Unix socket only.

The programs are Debian's package `postgresql`. Where they are missing and the tests run as root they are installed;
else `debian.Missing` says what to do. PostgreSQL refuses to run as root: there it runs as `postgres`, or as `nobody`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import psutil

from tests import debian
from tests.debian import Missing

__all__ = ["Cluster", "Missing"]

_PATIENCE = 180.0


class Cluster:
    """A running cluster; `stop` ends it and removes its folder."""

    def __init__(self) -> None:
        self._bin = _programs()
        self._as = _ordinary_user()
        self.folder = Path(tempfile.mkdtemp(prefix="edt-pg-", dir="/tmp"))  # short: it holds the socket
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count()
        if "user" in self._as:
            os.chown(self.folder, self._as["user"], self._as["group"])
        encoding = ["-E", "UTF8", "--locale=C.UTF-8"]
        try:
            self._run("initdb", "-D", self.data, "-A", "trust", "-U", "edt", *encoding, "--no-sync")
            self.start()
        except BaseException:
            self.stop()
            raise

    @property
    def data(self) -> str:
        return str(self.folder / "data")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start, and wait until it answers."""
        setpriv = shutil.which("setpriv")
        # Should the tests be killed, it ends itself.
        with_them = [setpriv, "--pdeathsig", "QUIT"] if setpriv else []
        arguments = ["-D", self.data, "-k", str(self.folder), "-c", "listen_addresses=", "-c", "fsync=off"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*with_them, str(self._bin / "postgres"), *arguments], stdout=log, stderr=log, cwd="/", **self._as
            )
        deadline = time.monotonic() + _PATIENCE
        while not self.answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start:\n{(self.folder / 'log').read_text()}")
            time.sleep(0.05)

    def answers(self) -> bool:
        done = subprocess.run([self._bin / "pg_isready", "-q", "-h", self.folder], **self._as, cwd="/", check=False)
        return done.returncode == 0

    def end(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it: SIGINT breaks connections and shuts down, SIGQUIT leaves without a word."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(how)
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def crash(self) -> None:
        """SIGKILL every process of it at once, as a machine that runs out of memory or power would end them."""
        assert self._process is not None
        # Not by their process group: each backend leads one of its own.
        every = [psutil.Process(self.pid), *psutil.Process(self.pid).children(recursive=True)]
        for process in every:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait(_PATIENCE)
        # A next one refuses to start while a backend of this one still has its shared memory.
        psutil.wait_procs(every, _PATIENCE)

    def stop(self) -> None:
        if self._process is not None:
            self.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def new_database(self, *options: str) -> str:
        """URL of a new, empty database."""
        name = f"edt{next(self._numbers)}"
        self._run("createdb", "-h", str(self.folder), "-U", "edt", *options, name)
        return f"postgresql+psycopg://edt@/{name}?host={self.folder}"

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._bin / program, *arguments], capture_output=True, text=True, check=False, cwd="/", **self._as
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr or done.stdout}")


def _programs() -> Path:
    """Folder of initdb and postgres."""
    # Debian's package makes and starts a cluster for everybody, unless it is told not to.
    settings = Path("/etc/postgresql-common/createcluster.conf")
    if os.getuid() == 0 and not settings.exists():
        with contextlib.suppress(OSError):
            settings.parent.mkdir(parents=True, exist_ok=True)
            settings.write_text("create_main_cluster = false\n")
    return debian.found(_installed, "postgresql")


def _installed() -> Path | None:
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    found = debian[-1] if debian else Path(on_path).resolve() if on_path else None
    return found.parent if found else None


def _ordinary_user() -> dict:
    if os.getuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise Missing("there is no user postgres or nobody that PostgreSQL could run as, and it refuses to run as root")
