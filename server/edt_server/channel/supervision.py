"""The service's half of the control channel: start supervisors, take their reports, send their slots, see their end.

Every message from a supervisor becomes a change of the ledger before it is answered, and every slot is committed before
it is sent. Fencing: the service talks only with the newest attempt of a job, in the process it was started as.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from edt_sdk.schemas.errors import EdtError
from edt_sdk.schemas.job import JobProgress, JobState
from edt_sdk.schemas.plan import InstanceGroup, Plan
from edt_sdk.schemas.wire import control as wire
from edt_sdk.schemas.wire.agent import MACHINE
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.channel.control import ControlServer, NotYet
from edt_server.channel.final_reports import finalize, read_final_reports
from edt_server.channel.launcher import launch, orders_of, wait_gone
from edt_server.channel.spare_supervisors import SpareSupervisors
from edt_server.files import job_files
from edt_server.fleet import Fleet, HostLost
from edt_server.ledger import Change, Changes, reports
from edt_server.messaging import key_pair, read_struct
from edt_server.settings import Settings
from edt_server.store import JobRow, StoreError
from edt_server.system.processes import PRESENCE, is_alive, is_held, same_kernel

log = logging.getLogger(__name__)
T = TypeVar("T")

_HELLO_LIMIT = 15.0
_FAR_AWAY = 5.0  # seconds between two looks at a process of another pid namespace
_LEASE = 15.0  # a supervisor that lives connects to a new server much sooner
_STORE_AWAY = 1.0
_LINKS = 0.5  # seconds between two looks at which hosts reach each other
_LINKS_KNOWN = 15.0  # seconds after which a server that starts knows that
_STARTING = (JobState.LAUNCHING, JobState.RECOVERING)
# What the machine lacks now and may have again: processes, memory, descriptors, room on disk. Every other error of a
# start comes from the job or the configuration and stays.
_PASSING = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT})
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds between two attempts to start a supervisor, doubled each time
PATIENCE = 600.0  # seconds until a job that cannot be started for such a reason ends


class Supervision:
    """All supervisors of a service, on this machine, or on the hosts of a `fleet`.

    `change` runs a change and commits it. `progressed` gets the newest progress of a job.
    """

    def __init__(
        self,
        settings: Settings,
        change: Changes,
        progressed: Callable[[str, JobProgress], None],
        spares: SpareSupervisors | None = None,
        fleet: Fleet | None = None,
    ) -> None:
        self._settings = settings
        self._change = change
        self._progressed = progressed
        self._spares = spares
        self._fleet = fleet
        self._progress: dict[str, JobProgress] = {}
        self._watchers: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._starting: set[str] = set()
        # Jobs that wait for the machine to recover: the first failure, and the task that starts them again.
        self._failing: dict[str, tuple[float, asyncio.Task[None]]] = {}
        self._stopping: dict[str, str] = {}
        self._collecting: set[str] = set()
        self._unheard: dict[str, tuple[int, frozenset[int]]] = {}
        self._heard: dict[str, asyncio.Event] = {}
        self._greeted: dict[str, int] = {}
        self._taking: set[str] = set()
        self._outdated: set[str] = set()
        self._ending = False
        self._watching: asyncio.Task[None] | None = None
        self._control = ControlServer(
            settings.control_dir,
            interface=settings.worker_interface,
            on_hello=self._on_hello,
            on_report=self._on_report,
            on_progress=self._on_progress,
            on_connected=self._on_connected,
            hosts=fleet,
        )

    async def start(self) -> None:
        """Listen. EdtError when that is not possible."""
        await self._control.start()
        if self._fleet is not None:
            self._watching = asyncio.create_task(self._keep_together(self._fleet), name="edt links")

    async def stop(self) -> None:
        """Stop listening and watching. Supervisors go on."""
        self._ending = True
        if self._spares is not None:
            self._spares.let_go()
        await self._unwatch()
        # A launch under way is completed, so that the next server finds the identity of its process in the store. The
        # watchers that launches start in the meantime are then cancelled too.
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._unwatch()
        await self._control.stop()

    async def _unwatch(self) -> None:
        links = [] if self._watching is None else [self._watching]
        watchers = [*links, *self._watchers.values(), *(task for _, task in self._failing.values())]
        for task in watchers:
            task.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)

    async def _change_until_committed(self, work: Callable[[Change], T]) -> T:
        """Change the ledger, and retry while the store cannot be written to.

        For changes that no other party would repeat. Supervisors repeat their own requests, which need no retry here.
        """
        while True:
            try:
                return await self._change(work)
            except StoreError:
                if self._ending:
                    raise
                await asyncio.sleep(_STORE_AWAY)

    # --- what the service asks for ------------------------------------------------------------------------------------

    def progress(self, job: str) -> JobProgress | None:
        """Return the newest progress received from a job."""
        return self._progress.get(job)

    def allocate(self, job: str, allocation: wire.Allocation) -> None:
        """Send the job its slots. A supervisor that is not connected gets them when it connects."""
        if job in self._taking:
            # The race: this allocation was computed before the report that is being taken, and would be sent after its
            # Ack. The supervisor may rely on an allocation after an Ack to know the report (a release, perhaps), see
            # `control.py`. So it is dropped here and sent again, newer, by the transaction that takes the report.
            self._outdated.add(job)
            return
        if self._fleet is not None:
            # First, because the supervisor asks for its outposts as soon as it has the slots.
            self._fleet.may_span(job, {slot.host for slot in allocation.slots})
        self._control.send(job, allocation)

    def end(self, job: str, why: str) -> None:
        """Stop the job, now or as soon as its supervisor connects."""
        self._stopping[job] = why
        self._control.send(job, wire.StopJob(why=why))

    def begin(self, job: str) -> None:
        """Start a supervisor for a job that has none. Calls while it starts have no effect."""
        if job in self._starting:
            return
        # A job that was stopped and resumed in the meantime must not be started twice.
        if job in self._failing and self._failing[job][1] is not asyncio.current_task():
            self._failing.pop(job)[1].cancel()
        self._starting.add(job)
        self._until_done(asyncio.create_task(self._launch(job), name=f"edt launch {job}"))

    def adopt(self, row: JobRow, *, stopping: str | None) -> None:
        """Take over a job of an earlier server."""
        if stopping is not None:
            self._stopping[row.id] = stopping
        if not row.supervised:
            if row.state in _STARTING:
                self.begin(row.id)
            return
        self._control.admit(row.id, row.public_key)
        if self._fleet is not None:
            orders = read_struct(JobPaths(self._settings.data_dir, row.owner, row.id).launch_file, wire.Launch)
            if orders is not None and orders.attempt == row.attempt:
                self._fleet.attempts.adopt(orders)
        if row.supervisor is not None:
            self._watch(row.id, row.attempt, row.supervisor)
        else:
            # The last server ended after it started the supervisor and before it stored the identity of the process.
            self._watchers[row.id] = asyncio.create_task(self._await_hello(row), name=f"edt hello {row.id}")

    async def gone(self, job: str, seconds: float) -> bool:
        """Wait until no process of an ended job runs. Return False when `seconds` pass before that."""
        watcher = self._watchers.get(job)
        return watcher is None or bool((await asyncio.wait([watcher], timeout=seconds))[0])

    # --- starting -----------------------------------------------------------------------------------------------------

    async def _launch(self, job: str) -> None:
        public, secret = key_pair()
        try:
            host = MACHINE if self._fleet is None else await self._place(self._fleet, job)
        except BaseException:
            self._starting.discard(job)
            raise
        if host is None:
            self._starting.discard(job)
            return  # this server stops, and the next one starts the supervisor

        def begin(change: Change) -> tuple[JobRow, Plan, InstanceGroup] | None:
            row = change.tx.job(job)
            if row is None or row.state not in _STARTING:
                return None  # it was stopped in the meantime, and perhaps deleted
            # Committed before the process exists: if this server dies in between, the new number keeps every process of
            # the old attempt out (fencing).
            row = change.tx.update_job(job, attempt=row.attempt + 1, public_key=public, supervisor=None)
            return row, change.core.plan, change.core.group_of(job)

        try:
            begun = await self._change_until_committed(begin)
        finally:
            self._starting.discard(job)
        if begun is None:
            self._failing.pop(job, None)
            return
        row, plan, group = begun
        self._control.admit(job, public)
        control_file = self._control.control_file
        try:
            portable = plan.portable(group, row.spec.env)
            make = partial(orders_of, row, self._settings, control_file, secret, host, self._fleet, portable=portable)
            # In a thread, because the owner's account may be looked up over the network.
            orders = await asyncio.to_thread(make)
            kind = "" if self._fleet is None else self._fleet.kind_of(orders.host, portable=portable)
            if portable != orders.portable or kind not in ("", orders.kind):
                await self._mark_inexact(row, orders)
            identity = await self._start(orders)
        except HostLost as lost:
            log.warning("%s job=%s", lost, job)
            if self._fleet is not None and not self._fleet.stopped:
                self.begin(job)
            return
        except (EdtError, OSError) as error:
            if isinstance(error, OSError) and error.errno in _PASSING and await self._start_later(job, error):
                return
            self._failing.pop(job, None)
            message = f"It could not be started: {error}"
            await self._change_until_committed(lambda change: reports.end(change, job, JobState.ERROR, message))
            await self._over(job)
            return
        log.info("supervisor started, job=%s attempt=%d pid=%d", job, row.attempt, identity.pid)
        settled = {"message": ""} if self._failing.pop(job, None) else {}
        await self._change_until_committed(lambda change: change.tx.update_job(job, supervisor=identity, **settled))
        self._watch(job, row.attempt, identity)

    async def _mark_inexact(self, row: JobRow, orders: wire.Launch) -> None:
        """Record that a training goes on where other bits are computed than where it began."""
        place = orders.host or "this machine"
        why = f"It goes on on {place}, whose processor, torch or resource group rounds otherwise than where it began."
        before = self._progress.get(row.id) or row.progress or JobProgress()
        progress = msgspec.structs.replace(before, inexact=before.inexact or why)
        self._progress[row.id] = progress
        await self._change_until_committed(lambda change: reports.store_progress(change, row.id, progress))

    async def _start_later(self, job: str, error: OSError) -> bool:
        """Try again after a pause that doubles. Return False when PATIENCE is over. The job keeps its slots."""
        now = time.monotonic()
        since = self._failing[job][0] if job in self._failing else now
        waited = now - since
        if waited >= PATIENCE:
            return False
        pause = min(max(waited, _FIRST_PAUSE), _LONGEST_PAUSE, PATIENCE - waited)
        log.warning("a supervisor cannot be started, next attempt in %.0f s, job=%s: %s", pause, job, error)
        self._control.forget(job)

        def postpone(change: Change) -> bool:
            row = change.tx.job(job)
            starts = row is not None and row.state in _STARTING
            if starts:
                message = f"This machine cannot start it now ({error.strerror or error}). "
                message += f"It is tried again until that works, for {PATIENCE / 60:.0f} minutes at most."
                # A row without a key has no supervisor, so the job can be stopped and suspended at once.
                change.tx.update_job(job, public_key="", message=message)
            return starts

        async def again() -> None:
            await asyncio.sleep(pause)
            self.begin(job)

        if await self._change_until_committed(postpone) and not self._ending:
            self._failing[job] = since, asyncio.create_task(again(), name=f"edt start {job} later")
        return True

    async def _place(self, fleet: Fleet, job: str) -> str | None:
        """Return the host for the job's supervisor: the one with most of its slots, as soon as it is there."""

        def held(change: Change) -> list[str]:
            if job not in change.core.jobs:
                return []
            where = {slot.id: slot.host for slot in change.core.slots}
            found = [where[slot] for slot in change.core.holding(job) if slot in where]
            # Only a supervisor gives back what was revoked, perhaps while there was none. Without it jobs that all have
            # lost their hosts, and are back on these, would wait for each other's slots for ever.
            found = found or [where[slot] for slot in change.core.leaving(job) if slot in where]
            return sorted(set(found), key=lambda host: (-found.count(host), host))

        return await fleet.place(lambda: self._change_until_committed(held))

    def _until_done(self, task: asyncio.Task[Any]) -> None:
        """Keep a task that `stop` has to wait for."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _start(self, orders: wire.Launch) -> wire.ProcessIdentity:
        if self._fleet is not None:
            if orders.host != MACHINE:
                return await self._fleet.attempts.start_supervisor(orders)
            self._fleet.attempts.adopt(orders)
        spares = self._spares
        template = None if spares is None else spares.template_of_search(orders)
        spare = None if spares is None or template is not None else spares.take(orders)
        if spares is not None and template is None and spare is None:
            template = await spares.template(orders)
        return await asyncio.to_thread(launch, orders, self._settings.job_environ, spare, template)

    # --- listening ----------------------------------------------------------------------------------------------------

    async def _on_hello(self, job: str, hello: wire.SupervisorHello) -> wire.Welcome | wire.Refused:
        stored: list[JobProgress] = []

        def take(change: Change) -> wire.Welcome | wire.Refused:
            row = change.tx.job(job)
            why = _refusal(row, hello)
            if why is not None or row is None:
                return wire.Refused(why=why or "")
            if row.supervisor is None:
                change.tx.update_job(job, supervisor=hello.identity)
            if row.progress is not None:
                stored.append(row.progress)
            return wire.Welcome(protocol=wire.PROTOCOL, acknowledged=row.last_report)

        answer = await self._change(take)
        if isinstance(answer, wire.Welcome):
            if stored and job not in self._progress:
                self._progress[job] = stored[0]
            self._greeted[job] = hello.attempt
            self._unheard[job] = (hello.last_report, frozenset(hello.holding))
            if job in self._heard:
                self._heard[job].set()
        return answer

    async def _on_connected(self, job: str) -> None:
        def allocate(change: Change) -> JobRow | None:
            change.moved[job] = None
            self._reconcile(change, job)
            return change.tx.job(job)

        row = await self._change_until_committed(allocate)
        if row is not None and row.state.final:
            # It usually waits only for the Ack of its last report. If it does not, it must still not go on.
            self._control.send(job, wire.StopJob(why=f"The job is {row.state.value}."))
        elif job in self._stopping:
            self._control.send(job, wire.StopJob(why=self._stopping[job]))

    def _reconcile(self, change: Change, job: str) -> None:
        """Release the slots that were granted and revoked while the supervisor was not connected.

        A supervisor that never received a slot cannot release it. Its reports that are still open are taken first,
        because one of them may be such a release, and a slot must not be released twice.
        """
        if job not in self._unheard or job not in change.core.jobs:
            return
        last_report, holding = self._unheard[job]
        if change.row(job).last_report < last_report:
            return
        del self._unheard[job]
        for slot in change.core.leaving(job):
            if slot not in holding:
                reports.release(change, job, slot, None, None)

    async def _on_report(self, job: str, numbered: wire.Numbered) -> None:
        def take(change: Change) -> None:
            # In the writer thread: no other change can come in before this one, so an allocation that is computed from
            # here on includes this report.
            self._taking.discard(job)
            if job in self._outdated:
                self._outdated.discard(job)
                change.moved[job] = None
            if change.tx.job(job) is not None and reports.take(change, job, numbered, self._progress.get(job)):
                self._reconcile(change, job)

        if self._fleet is not None and isinstance(numbered.report, wire.JobEnded):
            self._await_files(self._fleet, job)
        self._taking.add(job)
        try:
            await self._change(take)
        finally:
            self._taking.discard(job)

    def _await_files(self, fleet: Fleet, job: str) -> None:
        """Raise NotYet while files of the job are still on their way from its hosts: it has not ended before."""
        if fleet.attempts.complete(job):
            return
        if job not in self._collecting:
            self._collecting.add(job)
            self._until_done(asyncio.create_task(self._collect(fleet, job), name=f"edt collect {job}"))
        raise NotYet(f"job {job} ends when its files are here")

    async def _collect(self, fleet: Fleet, job: str) -> None:
        try:
            await fleet.attempts.collect(job, end=False)
        finally:
            self._collecting.discard(job)
        row = await self._change_until_committed(lambda change: change.tx.job(job))
        if row is not None:
            self._control.repeat(job, row.last_report)  # the report that had to wait

    def _on_progress(self, job: str, progress: JobProgress) -> None:
        known = self._progress.get(job)
        before = "" if known is None else known.inexact
        if before:
            # A job that was not exact once is so for good, though the next rank 0 has not seen it.
            progress = msgspec.structs.replace(progress, inexact=before)
        elif progress.inexact:
            note = self._change_until_committed(lambda change: reports.store_progress(change, job, progress))
            self._until_done(asyncio.create_task(note, name=f"edt inexact {job}"))
        self._progress[job] = progress
        self._progressed(job, progress)

    # --- missing ------------------------------------------------------------------------------------------------------

    def _watch(self, job: str, attempt: int, identity: wire.ProcessIdentity) -> None:
        task = asyncio.create_task(self._until_gone(job, attempt, identity), name=f"edt watch {job}")
        self._watchers[job] = task

    async def _until_gone(self, job: str, attempt: int, identity: wire.ProcessIdentity) -> None:
        since, lost_host = time.monotonic(), ""
        while True:
            if self._fleet is not None and self._fleet.attempts.away(job):
                lost_host = await self._fleet.attempts.supervisor_gone(job, attempt)
                break
            await wait_gone(identity)
            if not is_alive(identity):
                break
            # The process is in another pid namespace and cannot be seen. Only its own messages or its lock show that it
            # lives, and it gets the time of a lease to connect.
            await asyncio.sleep(_FAR_AWAY)
            if time.monotonic() > since + _LEASE and await asyncio.to_thread(self._left_behind, job, attempt, identity):
                log.warning("the supervisor ended with its container, job=%s attempt=%d", job, attempt)
                break
        await self._finalize(job, attempt, lost_host)

    def _left_behind(self, job: str, attempt: int, identity: wire.ProcessIdentity) -> bool:
        """Return whether an invisible supervisor is gone: on this machine, not connected, and without its lock file."""
        lock = self._settings.data_dir / "jobs" / job / PRESENCE
        return same_kernel(identity) and self._greeted.get(job) != attempt and not is_held(lock)

    async def _finalize(self, job: str, attempt: int, lost_host: str) -> None:
        """Take the reports that a dead supervisor could not deliver. Start its successor unless the job has ended."""
        row = await self._change_until_committed(lambda change: change.tx.job(job))
        # Another attempt was started in the meantime, and its own watcher looks after it.
        if row is not None and row.attempt != attempt:
            return
        # Before the change that may launch the next attempt: what is admitted after it must not be forgotten here.
        self._control.forget(job)
        self._unheard.pop(job, None)
        if row is not None:
            if self._fleet is not None:
                await self._fleet.attempts.collect(job, end=True)
            paths = JobPaths(self._settings.data_dir, row.owner, job)
            left = await asyncio.to_thread(read_final_reports, paths, lost_host)
            over = await self._change_until_committed(
                lambda change: finalize(change, job, left, self._progress.get(job), stopping=self._stopping.get(job))
            )
            if not over:
                return
        await self._over(job)

    async def _over(self, job: str) -> None:
        """Drop what is kept for a job of which no process runs or will run."""
        self._failing.pop(job, None)
        self._control.forget(job)
        self._stopping.pop(job, None)
        self._progress.pop(job, None)
        if self._fleet is not None:
            self._fleet.attempts.forget(job)
        await asyncio.to_thread(job_files.clear_traces, self._settings.runtime_dir, job)
        if self._watchers.get(job) is asyncio.current_task():
            del self._watchers[job]  # last: a waiter in `gone` may restart the job

    async def _keep_together(self, fleet: Fleet) -> None:
        """Take the hosts from each job that the others of its hosts do not reach, until they do."""

        def look(change: Change) -> bool:
            core = change.core
            where = {slot.id: slot.host for slot in core.slots}
            for job in core.jobs:
                slots = [where[slot] for slot in core.holding(job)]
                apart, why = fleet.apart(job, slots, core.apart(job))
                if apart != core.apart(job):
                    reports.set_apart(change, job, apart, why)
            return any(map(core.apart, core.jobs))

        # Until then it leaves what an earlier one has found.
        await asyncio.sleep(_LINKS_KNOWN)
        some = True
        while True:
            if some or fleet.parted:
                some = await self._change_until_committed(look)
            await asyncio.sleep(_LINKS)

    async def _await_hello(self, row: JobRow) -> None:
        """Wait for the hello of a supervisor with an unknown process. Start another supervisor if no hello comes."""
        heard = self._heard[row.id] = asyncio.Event()
        try:
            async with asyncio.timeout(_HELLO_LIMIT):
                await heard.wait()
        except TimeoutError:
            # Fencing: should the old supervisor appear after all, the number of the next attempt keeps it out.
            self.begin(row.id)
            return
        finally:
            del self._heard[row.id]
        now = await self._change_until_committed(lambda change: change.row(row.id))
        if now.supervisor is not None:
            await self._until_gone(row.id, now.attempt, now.supervisor)


def _refusal(row: JobRow | None, hello: wire.SupervisorHello) -> str | None:
    """Return why the server refuses this supervisor (fencing), None when it accepts it."""
    if row is None:
        return "The job was deleted."
    if hello.protocol != wire.PROTOCOL:
        return f"The server speaks protocol {wire.PROTOCOL}, not {hello.protocol}."
    if hello.attempt != row.attempt:
        return f"Attempt {row.attempt} has taken the place of attempt {hello.attempt}."
    if row.supervisor is not None and row.supervisor != hello.identity:
        return "Another process is this job's supervisor."
    return None
