"""Spare supervisors: started before there is a job for them, with a zygote that has imported everything already.

A spare fits the jobs with the same interpreter and number of threads per slot, as long as the files it has imported are
still the installed ones. It has never run user code, becomes the supervisor of a job and is never used again. Spares
end with this server, however the server ends. A spare that was handed to a job does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from edt_sdk.schemas.wire.control import Launch
from edt_sdk.schemas.wire.zygote import Ready, decode_answer, stamp
from edt_server.supervisor.programs.environment import start_time_variables
from edt_server.system.detached import start_detached

log = logging.getLogger(__name__)

# A job that has just been started needs the machine more than the next one does.
REFILL_DELAY = 5.0
END_PATIENCE = 5.0
_LARGEST = 1 << 20


@dataclass(frozen=True, slots=True)
class SpareKind:
    """The interpreter and thread count of the jobs that a spare fits."""

    interpreter: str
    threads: int

    def same(self, other: SpareKind) -> bool:
        """Return whether a spare for one kind fits jobs of the other.

        An environment has its Python under several names: a kernel uses `bin/python`, a server started by a script
        `bin/python3.11`. The target of the link is not enough, because all environments may share one Python.
        """
        return self.threads == other.threads and _names(self.interpreter) == _names(other.interpreter)


@dataclass(slots=True, eq=False)
class Spare:
    """A supervisor that waits for a job. `connection` is our end of its stdin.

    `files` are the files it has imported, as in `Ready.files`, None while it is still importing.
    """

    kind: SpareKind
    process: subprocess.Popen[bytes]
    connection: socket.socket
    files: dict[str, tuple[int, int]] | None = field(default=None)

    def fits(self, kind: SpareKind) -> bool:
        """Return whether it lives, is for this kind of job, and has imported the files that are installed now."""
        if not self.kind.same(kind) or self.process.poll() is not None:
            return False
        if self.files is None:
            with contextlib.suppress(BlockingIOError, ConnectionError, msgspec.MsgspecError):
                answer = decode_answer(self.connection.recv(_LARGEST, socket.MSG_DONTWAIT))
                if isinstance(answer, Ready):
                    self.files = answer.files
        return all(stamp(path) == seen for path, seen in (self.files or {}).items())

    def hand_over(self, launch_file: Path) -> bool:
        """Make it the supervisor of the job with these orders. False when it has ended."""
        with self.connection:
            try:
                # The death of a spare in this moment is no race: `launch` then starts a new process.
                self.connection.sendall(f"{launch_file}\n".encode())
            except ConnectionError:
                return False
        return True

    def end(self) -> None:
        """End the process, and block until it has ended."""
        self.connection.close()
        try:
            self.process.wait(END_PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class SpareSupervisors:
    """The spares of a server, all of the kind that the last job needed. With `count` 0 every job starts cold.

    `warm.log` in `folder` has their output before they have a job.
    """

    def __init__(self, count: int, folder: Path, interpreter: str, threads: int, environ: Mapping[str, str]) -> None:
        self._count = count
        self._folder = folder
        self._kind = SpareKind(interpreter, threads)
        self._environ = environ
        self.spares: list[Spare] = []
        """The spares that wait now."""
        self._filling: asyncio.Task[None] | None = None
        self._awake = False
        self._stopped = False

    def wake(self) -> None:
        """Start the first spares, unless they were started before. For the event loop."""
        if not self._awake:
            self._awake = True
            self._fill_in(0.0)

    def take(self, orders: Launch) -> Spare | None:
        """Return a spare for this job, None for a cold start. The next spare is started a little later."""
        kind = SpareKind(orders.interpreter, orders.threads_per_slot)
        if self._count == 0:
            return None
        names = start_time_variables(orders.spec.env)
        if names:
            log.info("job %s starts cold because its env sets %s", orders.job_id, ", ".join(names))
            return None
        self._kind, self._awake = kind, True
        found = next((spare for spare in self.spares if spare.fits(kind)), None)
        if found is not None:
            self.spares.remove(found)
        else:
            log.info("job %s starts cold: no spare supervisor fits it", orders.job_id)
        self._fill_in(REFILL_DELAY)
        return found

    async def stop(self) -> None:
        """End the spares."""
        self._stopped = True
        if self._filling is not None:
            self._filling.cancel()
            await asyncio.wait({self._filling})
        spares, self.spares = self.spares, []
        await asyncio.gather(*(asyncio.to_thread(spare.end) for spare in spares))

    def _fill_in(self, seconds: float) -> None:
        if self._count > 0 and not self._stopped and (self._filling is None or self._filling.done()):
            self._filling = asyncio.create_task(self._fill(seconds), name="edt warm")

    async def _fill(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        kept = [spare for spare in self.spares if spare.fits(self._kind)]
        outdated = [spare for spare in self.spares if spare not in kept]
        self.spares = kept
        await asyncio.gather(*(asyncio.to_thread(spare.end) for spare in outdated))
        while len(self.spares) < self._count:
            try:
                # In this thread and without an await, so that a cancelled task never leaves a spare that is not listed.
                self.spares.append(start_spare(self._kind, self._folder, self._environ))
            except OSError as wrong:
                log.warning("no spare supervisor: %s", wrong)
                return


def start_spare(kind: SpareKind, folder: Path, environ: Mapping[str, str]) -> Spare:
    """Start a supervisor that waits, detached like a supervisor with a job. OSError when that is not possible."""
    ours, theirs = socket.socketpair()
    try:
        process = start_detached(
            "edt_server.supervisor",
            ["--wait", kind.interpreter, str(kind.threads)],
            folder=folder,
            log=folder / "warm.log",
            environ=environ,
            stdin=theirs.fileno(),
        )
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    log.info("spare supervisor started, pid=%d interpreter=%s threads=%d", process.pid, kind.interpreter, kind.threads)
    return Spare(kind, process, ours)


def _names(interpreter: str) -> tuple[str, str]:
    return os.path.realpath(os.path.dirname(interpreter)), os.path.realpath(interpreter)
