"""Read recorded events as a run that happened, and as a workload that can be played again under other conditions.

The event list of a server (rows of `edt_sdk.schemas.events.Event`) has the arrivals with their settings, and the slots
of each job. The work of a job is derived from what it did: its workers over time, at its measured speeds, else at the
law of `speed.py`. So the same allocation gives the same end, and another allocation the end that the law predicts. The
time between trainings counts as work too. Jobs that have not ended are left out of the workload, because their
remaining work is unknown.

A program that is not elastic restarts without one of its slots: its work is what it did when it last had all.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import msgspec

from edt_sdk.schemas import events as kinds
from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.events import Event
from edt_server.core.events import (
    JobArrived,
    JobChanged,
    JobDemand,
    JobGone,
    SlotReleased,
    SlotsChanged,
    SpeedMeasured,
    from_data,
)
from edt_server.simulator.engine import Life, SimulatedRun
from edt_server.simulator.speed import Speed
from edt_server.simulator.workload import SimulatedJob

_SQLITE = b"SQLite format 3\0"


@dataclass(slots=True)
class _Past:
    """A job as the rows describe it. `slots` are the slots it is in."""

    arrived: JobArrived
    time: float
    demand: int = 1
    speeds: dict[int, float] = field(default_factory=dict)
    slots: set[int] = field(default_factory=set)
    sizes: list[tuple[float, int]] = field(default_factory=list)
    end: float | None = None

    def changed(self, now: float) -> None:
        size = len(self.slots)
        # A decision grants its slots one by one at the same time: that is one change of size, and one restart.
        if self.sizes and self.sizes[-1][0] == now:
            self.sizes[-1] = (now, size)
        elif (self.sizes[-1][1] if self.sizes else 0) != size:
            self.sizes.append((now, size))

    def least(self) -> int:
        unit = self.arrived.slots_per_unit
        return -(-self.arrived.min_workers // unit) * unit

    def most(self) -> int:
        unit = self.arrived.slots_per_unit
        used = max(self.demand, *(size for _, size in self.sizes), 1)
        return max(self.least(), min(self.arrived.max_workers, used) // unit * unit)

    def working(self) -> Sequence[tuple[float, int]]:
        """Return the sizes at which it did the work that counts, until the last of these times."""
        if not self.arrived.rigid:
            return self.sizes
        # Every earlier stretch was lost with a restart from the beginning, so only the last complete one is work.
        complete = [at for at, (_, size) in enumerate(self.sizes) if size >= self.least()]
        return self.sizes[complete[-1] : complete[-1] + 2] if complete else ()


def read_events(path: Path) -> list[Event]:
    """Read an event list, in order: one JSON object per line, or a server's SQLite store, which is opened read-only.

    InvalidRequest with the line when it cannot be read or is no event list.
    """
    try:
        with path.open("rb") as file:
            stored = file.read(len(_SQLITE)) == _SQLITE
        events = _stored(path) if stored else list(_lines(path))
    except OSError as wrong:
        raise InvalidRequest(f"{path} cannot be read: {wrong.strerror}.") from None
    except sqlite3.Error as wrong:
        raise InvalidRequest(f"{path} is no job store: {wrong}.") from None
    if not any(event.kind == kinds.JOB_ARRIVED for event in events):
        raise InvalidRequest(f"{path} has no job that arrives.", hint="Give a whole event list, from its beginning.")
    return sorted(events, key=lambda event: event.seq)


def _lines(path: Path) -> Iterator[Event]:
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if line.strip():
            try:
                yield msgspec.json.decode(line, type=Event)
            except msgspec.DecodeError as wrong:
                raise InvalidRequest(f"{path}, line {number}: this is no event: {wrong}.", line=number) from None


def _stored(path: Path) -> list[Event]:
    # Not through `edt_server.store`: that would migrate an older store, and a simulation must not change it.
    with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        rows = connection.execute("SELECT seq, time, job, kind, data, cause, text FROM edt_events ORDER BY seq")
        return [
            Event(seq=seq, time=time, job=job, kind=kind, data=json.loads(data), cause=cause, text=text)
            for seq, time, job, kind, data, cause, text in rows
        ]


def recorded_run(events: Iterable[Event]) -> SimulatedRun:
    """Return what happened, as if it had been simulated: times in seconds since the first row."""
    pasts, slots, begin = _pasts(events)
    lives = [
        Life(
            job=_job(past, begin),
            sizes=tuple((time - begin, size) for time, size in past.sizes),
            end=None if past.end is None else past.end - begin,
            restarts=_restarts(past.sizes),
        )
        for past in pasts
    ]
    return SimulatedRun(tuple(lives), slots, ())


def workload_of(events: Iterable[Event]) -> tuple[SimulatedJob, ...]:
    """Return the jobs that ended, with their work, by arrival. Times are in seconds since the first row."""
    pasts, _, begin = _pasts(events)
    jobs = [_job(past, begin) for past in pasts if past.end is not None and past.working()]
    return tuple(sorted(jobs, key=lambda job: job.time))


def work_done(sizes: Sequence[tuple[float, int]], speed: Speed, until: float) -> float:
    """Return what workers at these (time, workers) did up to `until`, in the unit of `speed`."""
    ends = [*(time for time, _ in sizes[1:]), until]
    return sum(speed.at(size) * max(0.0, end - time) for (time, size), end in zip(sizes, ends, strict=True))


def _job(past: _Past, begin: float) -> SimulatedJob:
    most = past.most()
    # Measured speeds win. The law is a guess for jobs that never reported any.
    speed = Speed.of(past.speeds.items()) if past.speeds else Speed.by_law(most)
    arrived, working = past.arrived, past.working()
    return SimulatedJob(
        name=arrived.job,
        time=past.time - begin,
        # A recording knows no application. The owner groups the jobs in the picture instead.
        application=arrived.owner or "job",
        replicas=most,
        max_workers=most,
        work=work_done(working, speed, working[-1][0]) if working else 0.0,
        speed=speed,
        priority=arrived.priority,
        min_workers=past.least(),
        instance_group=arrived.instance_group,
        owner=arrived.owner,
        slots_per_unit=arrived.slots_per_unit,
        keeps=arrived.rigid,
    )


def _restarts(sizes: Sequence[tuple[float, int]]) -> int:
    worked = [size for _, size in sizes if size]
    return sum(1 for before, after in pairwise(worked) if before != after)


def _pasts(events: Iterable[Event]) -> tuple[list[_Past], int, float]:
    """Return the jobs in order of arrival, the most slots there were, and the time of the first row."""
    pasts: dict[str, _Past] = {}
    most, begin = 0, None
    for event in events:
        begin = event.time if begin is None else begin
        # A grant is a decision of the core and no input, but only its row has the slot. A revoked slot counts until it
        # is released, because its worker still computes.
        if event.kind in kinds.INPUTS:
            told = from_data(event.kind, event.data)
            if isinstance(told, SlotsChanged):
                # Hosts come and go. The replay gets all slots that there ever were at once.
                most = max(most, len(told.slots))
            _take(pasts, told, event.time)
        elif event.kind == kinds.SLOT_GRANTED and event.job in pasts:
            pasts[event.job].slots.add(event.data["slot"])
            pasts[event.job].changed(event.time)
    return list(pasts.values()), most, begin or 0.0


def _take(pasts: dict[str, _Past], told: object, now: float) -> None:
    match told:
        case JobArrived(job=job):
            # A job that ended and was resumed has one life, with a gap in it.
            before = pasts.get(job)
            if before is None:
                pasts[job] = _Past(told, now, told.demand)
            else:
                before.end = None
        case JobDemand(job=job, demand=demand) if job in pasts:
            # The largest demand ever, because a job of the workload has only one maximum.
            pasts[job].demand = max(pasts[job].demand, demand)
        case JobChanged(job=job, patch=patch) if job in pasts:
            # The last setting of each kind stays, because the workload has only one.
            pasts[job].arrived = msgspec.structs.replace(pasts[job].arrived, **patch.changes())
        case SpeedMeasured(job=job, speeds=speeds) if job in pasts:
            pasts[job].speeds = {workers: speed for workers, speed in speeds.items() if workers >= 1 and speed > 0}
        case SlotReleased(job=job, slot=slot) if job in pasts:
            pasts[job].slots.discard(slot)
            pasts[job].changed(now)
        case JobGone(job=job) if job in pasts:
            pasts[job].slots.clear()
            pasts[job].changed(now)
            pasts[job].end = now
