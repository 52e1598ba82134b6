"""The store and the core, changed together: a decision is committed in the transaction of the input that caused it.

Everything here blocks and runs in one thread, the service's writer, so the core needs no lock and its state is always
that of the last commit. When a change fails, the store is rolled back and the core is rebuilt from it, now or as soon
as the store can be read. A connection that breaks during a commit leaves open whether it was committed. The next change
looks for its events in the store, and includes their outcome if they are there. Nothing here acts: the `ChangeOutcome`
of a `Change` names what has to be done after the commit.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from edt_sdk.schemas import events as kinds
from edt_sdk.schemas.errors import NotFound, ServerUnreachable
from edt_sdk.schemas.events import Event
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.job import JobSpec, JobState
from edt_sdk.schemas.plan import Plan
from edt_sdk.schemas.wire.control import Allocation
from edt_server.core import snapshot
from edt_server.core.core import Core
from edt_server.core.events import CoreEvent, JobArrived, SlotReleased, SlotsChanged, inputs, kind_of, to_data
from edt_server.core.instructions import GiveUp, Grant, Instruction, to_event
from edt_server.history import describe
from edt_server.store import JobRow, Store, StoreError, StoreUnavailable, Writer
from edt_server.system.device_claims import DeviceClaims
from edt_server.system.steady_clock import SteadyClock

log = logging.getLogger(__name__)
T = TypeVar("T")
SNAPSHOT_EVERY = 1000
# Events among which the latest is: a report that arrives late has the time at which it was made.
_RECENT = 100
# The bounds of a message, which is part of every list of jobs: characters of a line, and lines.
LINE = 500
LINES = 60
ANY = 1 << 30
CPU = "cpu"
# Jobs without a worker. The last two are seen with a slot only in the transaction that brings them back.
_IDLE = (JobState.SUBMITTED, JobState.PENDING, JobState.SUSPENDED, JobState.KILLED, JobState.FAILED)


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """The effects that a committed change asks for.

    Attributes:
        jobs: every job with a new event.
        allocations: the slots jobs may use from now on, where that may have changed.
        launches: jobs that have a slot and no supervisor.
        states: jobs with a changed state, as they are now, with the state before.
    """

    jobs: tuple[str, ...]
    allocations: Mapping[str, Allocation]
    launches: tuple[str, ...]
    states: tuple[tuple[JobRow, JobState | None], ...]


class Ledger:
    """An open store and the core that its events add up to. An empty store starts with `plan`."""

    def __init__(self, store: Store, plan: Plan | None = None) -> None:
        self.store = store
        self._plan = plan
        self.names = store.names()  # of jobs and searches, by id
        self.seq = 0
        self.claims: DeviceClaims | None = None  # where GPUs may be another store's
        self._kept = 0  # up to which event the snapshot goes
        self._stale = False
        self._doubt: Change | None = None
        self._late: Change | None = None
        self.core = self._replay()
        # A turn that began before a clock was set back must not last until that time comes again.
        newest = self.store.events(after=self.seq - _RECENT)
        self.clock = SteadyClock(max((event.time for event in newest), default=0.0))

    @classmethod
    def open(cls, url: str, plan: Plan | None = None) -> Ledger:
        """Open the store at `url` and replay it. StoreError when it cannot be used."""
        return cls(Store.open(url), plan)

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    def change(self, work: Callable[[Change], T]) -> tuple[T, ChangeOutcome]:
        """Run `work` in one transaction. Returns its result, and what has to be done after the commit.

        Raises:
            StoreUnavailable: the store cannot be used now, and `work` changed nothing. Only when the commit itself
                failed, the change may be committed. The outcome of the next successful change then includes it.
        """
        self._settle()
        change: Change | None = None
        complete = False
        try:
            with self.store.write() as tx:
                change = Change(tx, self, self.clock.now())
                if self._late is not None:
                    change.add(self._late)
                value = work(change)
                change.launch_granted()
                complete = True
        except BaseException as wrong:
            # The transaction was rolled back, but the core in memory has already taken its inputs.
            if change is not None and change.decided:
                self._stale = True
            # The commit's answer is lost, so its outcome is in doubt. The next change looks it up in the store
            # (docs/decisions/018).
            if change is not None and complete and change.events and isinstance(wrong, StoreUnavailable):
                self._doubt, self._stale = change, True
            with contextlib.suppress(StoreError):  # then with the next change
                self._settle()
            raise
        self._late = None
        self.seq = change.events[-1].seq if change.events else self.seq
        if change.decided:
            self.keep_claims()
        return value, change.outcome()

    def keep_claims(self) -> None:
        """Release the claims on GPUs that no job uses any more."""
        if self.claims is None:
            return
        used: dict[str, tuple[str, ...]] = {}
        for slot in self.core.slots:
            job = None if slot.device == CPU else self.core.holder(slot.id)
            if job is not None and job not in used.get(slot.device, ()):
                used[slot.device] = (*used.get(slot.device, ()), job)
        # A job may still be leaving a slot that is no longer offered. The slot's device is not known then, so the job
        # keeps all devices it has claimed.
        there = {slot.id for slot in self.core.slots}
        leaving = {job for job in self.core.jobs if not there.issuperset(self.core.leaving(job))}
        for device, jobs in self.claims.mine.items():
            still = tuple(job for job in jobs if job in leaving and job not in used.get(device, ()))
            if still:
                used[device] = (*used.get(device, ()), *still)
        self.claims.keep(used)

    @property
    def snapshot_due(self) -> bool:
        """Return True when a next start would have many events to replay."""
        return self.seq >= self._kept + SNAPSHOT_EVERY

    def keep_snapshot(self) -> None:
        """Store a snapshot of the core, from which the next start replays. A store that refuses it loses nothing."""
        if self._stale or self.seq == self._kept:
            return
        try:
            with self.store.write() as tx:
                tx.put_snapshot(self.seq, snapshot.VERSION, snapshot.dump(self.core))
        except (StoreError, ServerUnreachable) as wrong:  # it cannot be written to, or another server leads
            log.warning("no snapshot of the core was kept: %s", wrong)
        else:
            self._kept = self.seq

    def row(self, job: str) -> JobRow:
        """Return the job's row. Raises NotFound."""
        row = self.store.job(job)
        if row is None:
            raise missing(job)
        return row

    def name(self, job: str) -> str:
        """Return the name of a job or search as it stands in a sentence, or the id when the name is not known."""
        return self.names.get(job, job)

    def allocation(self, job: str) -> Allocation:
        """Return what a living job may use now. Versions grow with the event log, also across server restarts."""
        # One event may change the allocations of all jobs, so this looks at no other job's slots.
        slots = tuple(map(self.core.slot, self.core.holding(job)))
        asked = min(self.core.asked(job), self.core.slots_in(self.core.group_of(job).resource_group))
        return Allocation(
            version=self.seq, slots=slots, asked=asked, budget=self.core.budget(job), apart=self.core.apart(job)
        )

    def _settle(self) -> None:
        """Find out whether an interrupted commit succeeded, and rebuild the core from the store."""
        if self._doubt is not None:
            last = self._doubt.events[-1]
            found = self.store.events(after=last.seq - 1, limit=1)
            # The number alone is not enough: another server may have reused the numbers of a rolled back transaction.
            if [(each.seq, each.time, each.kind, each.job) for each in found] == [
                (last.seq, last.time, last.kind, last.job)
            ]:
                self._late = self._doubt
            self._doubt = None
        if self._stale:
            self.core = self._replay()
            self._stale = False

    def _replay(self) -> Core:
        kept = self.store.snapshot()
        core = None if kept is None else snapshot.load(kept.version, kept.data)
        after = 0 if kept is None or core is None else kept.seq
        events = self.store.events(kinds=kinds.INPUTS, after=after)
        self.seq = max(self.seq, self.store.newest())
        self._kept = after
        core = core or Core(self._plan)
        core.follow(inputs(events))
        return core


@dataclass(slots=True)
class Change:
    """One transaction under way. `now` is its time in seconds since the epoch."""

    tx: Writer
    ledger: Ledger
    now: float
    decided: bool = False
    events: list[Event] = field(default_factory=list)
    moved: dict[str, None] = field(default_factory=dict)
    granted: dict[str, int] = field(default_factory=dict)
    given_up: dict[str, tuple[int, float]] = field(default_factory=dict)
    touched: dict[str, None] = field(default_factory=dict)
    launches: list[str] = field(default_factory=list)
    states: list[tuple[JobRow, JobState | None]] = field(default_factory=list)

    @property
    def core(self) -> Core:
        """Return the core."""
        return self.ledger.core

    def row(self, job: str) -> JobRow:
        """Return the job's row as this transaction sees it. Raises NotFound."""
        row = self.tx.job(job)
        if row is None:
            raise missing(job)
        return row

    def append(
        self,
        kind: str,
        job: str | None,
        data: Mapping[str, Any],
        *,
        cause: int | None = None,
        time: float | None = None,
    ) -> int:
        """Append an event and return its number."""
        why = next((event for event in self.events if event.seq == cause), None)
        event = self.tx.append(
            kind,
            job=job,
            data=dict(data),
            time=self.now if time is None else min(time, self.now),
            cause=cause,
            text=describe(kind, data, job=job, cause=why, names=self.ledger.name),
        )
        self.events.append(event)
        if job is not None:
            self.touched[job] = None
        return event.seq

    def apply(self, event: CoreEvent, *, cause: int | None = None, **more: Any) -> int:
        """Apply an event to the core, and record the event (`more` in its data, for people) and the core's decisions.

        Returns the event's number. Raises what `Core.apply` raises, and records nothing then.
        """
        instructions = self.core.apply(event, self.now)
        self.decided = True
        job = getattr(event, "job", None)
        seq = self.append(kind_of(event), job, {**more, **to_data(event)}, cause=cause)
        if job is not None:
            self.moved[job] = None
        decided = self.tx.append_all([self._decision(instruction, self.events[-1]) for instruction in instructions])
        for instruction, made in zip(instructions, decided, strict=True):
            self.events.append(made)
            self.touched[instruction.job] = self.moved[instruction.job] = None
            if isinstance(instruction, Grant):
                self.granted.setdefault(instruction.job, made.seq)
            elif isinstance(instruction, GiveUp):
                self.given_up[instruction.job] = made.seq, instruction.seconds
        self._claim([each for each in instructions if isinstance(each, Grant)], seq)
        return seq

    def _claim(self, grants: Sequence[Grant], cause: int) -> None:
        """Claim the devices of granted slots on this machine, and revoke the grants when their claim is refused.

        Before the commit: two stores on one host never share a GPU, so no supervisor may hear of such a grant.
        """
        claims, core = self.ledger.claims, self.core
        if claims is None or not grants:
            return
        device = {slot.id: slot.device for slot in core.slots}
        refused = [each for each in grants if device[each.slot] != CPU and not claims.take(device[each.slot], each.job)]
        if not refused:
            return
        theirs = {device[each.slot] for each in refused}
        self.apply(SlotsChanged(tuple(slot for slot in core.slots if slot.device not in theirs)), cause=cause)
        for each in refused:
            if each.slot in core.leaving(each.job):
                self.apply(SlotReleased(each.job, each.slot), cause=cause)
            if not core.holding(each.job):
                self.granted.pop(each.job, None)

    def _decision(self, instruction: Instruction, cause: Event) -> dict[str, Any]:
        kind, data = to_event(instruction)
        text = describe(kind, data, job=instruction.job, cause=cause, names=self.ledger.name)
        return {"kind": kind, "job": instruction.job, "data": data, "time": self.now, "cause": cause.seq, "text": text}

    def set_state(
        self,
        job: str,
        state: JobState,
        message: str = "",
        *,
        cause: int | None = None,
        time: float | None = None,
    ) -> JobRow:
        """Put the job in `state` with `message`, record it, and return the new row."""
        before = self.row(job)
        message = briefly(message)
        when = self.now if time is None else min(time, self.now)
        changes: dict[str, Any] = {"state": state, "message": message, "state_since": when}
        if state is JobState.LAUNCHING and before.started is None:
            changes["started"] = when
        changes["ended"] = when if state.final else None
        row = self.tx.update_job(job, **changes)
        data: dict[str, Any] = {"state": state.value, "before": before.state.value, "message": message}
        if state.final and row.started is not None:
            data["seconds"] = when - row.started
        self.append(kinds.STATE, job, data, cause=cause, time=when)
        self.states.append((row, before.state))
        return row

    def wait(self, job: str, *, cause: int | None = None) -> None:
        """Put a job without a slot in PENDING, with the reason in its story."""
        reason = self.core.reason(job, self.ledger.name)
        self.set_state(job, JobState.PENDING, reason.text if reason else "", cause=cause)
        self.tx.update_job(job, message="")  # the reason changes with other jobs, so views compute it

    def launch(self, job: str) -> None:
        """Start a supervisor for the job once this is committed."""
        if job not in self.launches:
            self.launches.append(job)

    def launch_granted(self) -> None:
        """Start the jobs without a worker that were granted a slot: all of it, or only workers if its driver lives."""
        for job, seq in self.granted.items():
            row = self.tx.job(job)
            if row is not None and row.state in _IDLE:
                self.set_state(job, JobState.LAUNCHING, cause=seq)
                if not row.supervised:
                    self.launch(job)

    def add(self, earlier: Change) -> None:
        """Include the outcome of an earlier change, which turned out to be committed."""
        self.moved.update(earlier.moved)
        self.touched.update(earlier.touched)
        self.launches.extend(earlier.launches)
        self.states.extend(earlier.states)

    def outcome(self) -> ChangeOutcome:
        """Return what has to be done after the commit."""
        living = self.core.jobs
        return ChangeOutcome(
            jobs=tuple(self.touched),
            allocations={job: self.ledger.allocation(job) for job in self.moved if job in living},
            launches=tuple(self.launches),
            states=tuple(self.states),
        )


def missing(job: str) -> NotFound:
    """Return the error for an id that no job has."""
    return NotFound(
        f"There is no job {job!r}.", hint="List the jobs there are: client.jobs(), or at a shell: edt list", job=job
    )


def arrival(job: str, owner: str, spec: JobSpec) -> JobArrived:
    """Return the event for a job that is submitted."""
    return JobArrived(
        job,
        spec.priority,
        spec.max_workers,
        spec.instance_group,
        owner=owner,
        min_workers=spec.min_workers,
        slots_per_unit=spec.slots_per_unit,
        pending_timeout=spec.pending_timeout,
        rigid=not Framework(spec.framework).elastic,
        demand=_first_demand(spec),
        search=spec.search,
    )


def _first_demand(spec: JobSpec) -> int:
    """Return the slots that a job can use before it has asked for any."""
    # Agents of a torchrun job form their own group, so the demand never changes. Any number up to the maximum is used.
    if spec.framework == Framework.TORCHRUN:
        return ANY
    serves = None if spec.registered is None else spec.registered.serves
    # A first replica shows whether the version can be served at all.
    return 1 if serves is None else max(1, serves.least)


def briefly(message: str) -> str:
    """Return the message with long lines cut, and only the first and last lines of very many."""
    lines = message.splitlines()
    if len(message) <= LINE and len(lines) <= LINES:
        return message
    if len(lines) > LINES:
        left_out = len(lines) - LINES
        lines = [
            *lines[: LINES // 2],
            f"… {left_out:,} lines are left out here; the log has them …",
            *lines[-LINES // 2 :],
        ]
    return "\n".join(map(_cut, lines))


def _cut(line: str) -> str:
    if len(line) <= LINE:
        return line
    return f"{line[:LINE]} … (cut; the log has all {len(line):,} characters)"
