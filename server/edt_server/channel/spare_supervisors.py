"""Spare supervisors: started before there is a job for them, with a zygote that has imported everything already.

A spare fits the jobs with the same interpreter and number of threads per slot, as long as the files it has imported are
still the installed ones. It has never run user code, becomes the supervisor of a job and is never used again. Spares
end with this server, however the server ends. A spare that was handed to a job does not. Spares are forked from a
template, and so are the supervisors of jobs that no spare is there for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from edt_sdk.schemas.wire.control import SAME, Launch
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.zygote import Ready, decode_answer, stamp
from edt_server.supervisor.programs.environment import start_time_variables
from edt_server.supervisor.programs.programs import shares_torch
from edt_server.supervisor.template import Kind, Template, TemplateChild, Templates, start_supervisor

log = logging.getLogger(__name__)

# A job that has just been started needs the machine more than the next one does.
REFILL_DELAY = 5.0
END_PATIENCE = 5.0
_LARGEST = 1 << 20


@dataclass(slots=True, eq=False)
class Spare:
    """A supervisor that waits for a job. `connection` is our end of its stdin.

    `files` are the files it has imported, as in `Ready.files`, None while it is still importing.
    """

    kind: Kind
    process: subprocess.Popen[bytes] | TemplateChild
    connection: socket.socket
    files: dict[str, tuple[int, int]] | None = field(default=None)

    def fits(self, kind: Kind) -> bool:
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
    """The spares of a server, all of the kind that the last job needed, and its templates.

    With `count` 0 there are no spares, and the first job starts its template. `warm.log` in `folder` has the output of
    spares before they have a job.
    """

    def __init__(self, count: int, folder: Path, interpreter: str, threads: int, environ: Mapping[str, str]) -> None:
        self._count = count
        self._folder = folder
        self._kind = Kind(interpreter, threads)
        self._environ = environ
        self._templates = Templates(environ)
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
        """Return a spare for this job, if there is one. The next spare is started a little later."""
        kind = Kind(orders.interpreter, orders.threads_per_slot)
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
            log.info("job %s starts without a spare supervisor: none fits it", orders.job_id)
        self._fill_in(REFILL_DELAY)
        return found

    def template_of_search(self, orders: Launch) -> Template | None:
        """Return the template of the search that the job is a trial of, None where it has none that is ready."""
        search = orders.spec.env.get("EDT_SEARCH", "")
        plain = orders.isolation.kind == SAME and shares_torch(orders.spec)
        if not search or not plain or start_time_variables(orders.spec.env):
            return None
        code = JobPaths(Path(orders.data_dir), orders.owner, orders.job_id).code_dir(orders.spec.code_dir)
        kind = Kind(orders.interpreter, orders.threads_per_slot, search, str(code / orders.spec.main))
        return self._templates.of_search(kind)

    async def template(self, orders: Launch) -> Template | None:
        """Return a template, ready, for this job without a spare. None for a cold start."""
        return await self._templates.of_job(orders)

    def let_go(self) -> None:
        """Have all jobs that wait for a template start cold, because this server ends."""
        self._templates.let_go()

    async def stop(self) -> None:
        """End the spares and the templates."""
        self._stopped = True
        if self._filling is not None:
            self._filling.cancel()
            await asyncio.wait({self._filling})
        spares, self.spares = self.spares, []
        await asyncio.gather(*(asyncio.to_thread(spare.end) for spare in spares))
        self._templates.stop()

    def _fill_in(self, seconds: float) -> None:
        if self._count > 0 and not self._stopped and (self._filling is None or self._filling.done()):
            self._filling = asyncio.create_task(self._fill(seconds), name="edt warm")

    async def _fill(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        kind = self._kind
        kept = [spare for spare in self.spares if spare.fits(kind)]
        outdated = [spare for spare in self.spares if spare not in kept]
        self.spares = kept
        await asyncio.gather(*(asyncio.to_thread(spare.end) for spare in outdated))
        while len(self.spares) < self._count:
            template = await self._templates.ready(kind)
            starting = asyncio.create_task(
                asyncio.to_thread(start_spare, kind, self._folder, self._environ, template), name="edt spare"
            )
            try:
                self.spares.append(await asyncio.shield(starting))
            except asyncio.CancelledError:
                # The thread goes on, and `stop` has to find the spare that it starts.
                self.spares.append(await starting)
                raise
            except OSError as wrong:
                log.warning("no spare supervisor: %s", wrong)
                return
        if not kind.same(self._kind):  # a job of another kind has come in the meantime
            await self._fill(0.0)


def start_spare(kind: Kind, folder: Path, environ: Mapping[str, str], template: Template | None = None) -> Spare:
    """Start a supervisor that waits, detached like a supervisor with a job. OSError when that is not possible."""
    ours, theirs = socket.socketpair()
    try:
        process = start_supervisor(
            ["--wait", kind.interpreter, str(kind.threads)],
            template,
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
