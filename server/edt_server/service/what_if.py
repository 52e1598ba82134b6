"""Compute the effect of other settings of a job with a copy of the core.

Two parts, because the core belongs to the service's writer thread: `Now` is copied there, quickly, and `answer` works
on it anywhere. The forecast runs the present jobs in the simulator, on a copy of the core. The speed of each at another
number of workers is derived from its work so far.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from edt_sdk.schemas import events as kinds
from edt_sdk.schemas.events import Event
from edt_sdk.schemas.forecast import WhatIf, WhatIfShare
from edt_sdk.schemas.job import SCHEDULED, JobPatch, JobProgress, JobSettings, JobSpec, JobState
from edt_server.core.core import Core
from edt_server.core.events import JobChanged, SlotReleased
from edt_server.core.instructions import Revoke
from edt_server.ledger import Ledger
from edt_server.service.coming_hosts import ComingHosts
from edt_server.simulator.engine import Engine, SimulationSettings
from edt_server.simulator.recorded import work_done
from edt_server.simulator.speed import Speed
from edt_server.simulator.workload import SimulatedJob
from edt_server.store import JobRow

HISTORY = (kinds.TRAINING_STARTED, kinds.GENERATION, kinds.STATE, kinds.SPEED_MEASURED)
MOST_FORECAST = 1000  # with more jobs no end is forecast: simulating them would take seconds of the server's time
# Where more jobs than slots take turns for hours, slots change jobs many thousands of times. No end is forecast that
# comes after so many instants.
MOST_INSTANTS = 2000
_WORKING = (JobState.RUNNING.value, JobState.RECOVERING.value)


@dataclass(frozen=True, slots=True)
class Now:
    """A private copy of all that an answer needs, at `time` in seconds since the epoch.

    `rows` and `names` are of every job in the core, `progress` and `history` of jobs with at least one update. `coming`
    are the hosts on their way, by resource group.
    """

    time: float
    core: Core
    rows: Mapping[str, JobRow]
    progress: Mapping[str, JobProgress]
    history: Mapping[str, Sequence[Event]]
    names: Mapping[str, str]
    coming: Mapping[str, Sequence[ComingHosts]] = field(default_factory=dict)


def look(
    ledger: Ledger,
    progress: Callable[[str], JobProgress | None],
    now: float,
    coming: Mapping[str, Sequence[ComingHosts]] | None = None,
) -> Now:
    """Copy the present state. For the thread that owns the ledger. `coming` are hosts by resource group."""
    living = ledger.store.jobs(states=[state for state in JobState if not state.final])
    rows = {row.id: row for row in living if row.id in ledger.core.jobs}
    moving = {job: p for job, row in rows.items() if (p := progress(job) or row.progress) is not None and p.update > 0}
    return Now(
        time=now,
        # The only work in the writer thread: everything after it runs on the copy, while decisions go on.
        core=copy.deepcopy(ledger.core),
        rows=rows,
        progress=moving,
        history={job: ledger.store.events(job=job, kinds=HISTORY) for job in moving},
        names={each: ledger.name(each) for each in {*rows, *(row.spec.search for row in rows.values())} - {""}},
        coming=dict(coming or {}),
    )


def answer(now: Now, job: str, patch: JobPatch) -> WhatIf:
    """Return the effect of this change. Unprocessable when it would be refused."""
    change = JobChanged(job, patch)
    found = _shared(now, job, (job,), patch.apply_to(now.rows[job].settings), patch)
    return msgspec.structs.replace(found, ends_now=forecast(now, job, None), ends_then=forecast(now, job, change))


def answer_of_search(now: Now, search: str, spec: JobSpec, patch: JobPatch) -> WhatIf:
    """Return the effect of this change of a search, whose next jobs have the settings of `spec` after it.

    No end is forecast: it depends on trials that do not exist yet. Unprocessable when it would be refused.
    """
    return _shared(now, search, [job for job, row in now.rows.items() if row.spec.search == search], spec, patch)


def _shared(now: Now, of: str, jobs: Sequence[str], settings: JobSettings, patch: JobPatch) -> WhatIf:
    """Return who would hold how many slots with a change of these jobs. The trials of a search are one row."""
    core = copy.deepcopy(now.core)
    for job in jobs:
        core.apply(JobChanged(job, patch), now.time)
    settle(core, now.time)
    shares: dict[str, WhatIfShare] = {}
    for job in core.jobs:
        search = "" if job == of or job not in now.rows else now.rows[job].spec.search
        row = search or job
        known = shares.get(row) or WhatIfShare(job=row, name=now.names.get(row, row), now=0, then=0)
        held = known.now + len(now.core.holding(job)), known.then + len(core.holding(job))
        shares[row] = msgspec.structs.replace(known, now=held[0], then=held[1])
    reasons = (core.reason(job, lambda each: now.names.get(each, each)) for job in jobs)
    return WhatIf(
        job=of,
        **{name: getattr(settings, name) for name in SCHEDULED},
        shares=tuple(shares.values()),
        reason=next(filter(None, reasons), None),
    )


def settle(core: Core, now: float) -> None:
    """Release every slot that a job has to leave."""
    leaving = [(job, slot) for job in core.jobs for slot in core.leaving(job)]
    while leaving:
        revoked = [step for job, slot in leaving for step in core.apply(SlotReleased(job, slot), now)]
        leaving = [(step.job, step.slot) for step in revoked if isinstance(step, Revoke)]


def forecast(now: Now, job: str, change: JobChanged | None) -> float | None:
    """Return when the training would end with `change`, seconds since the epoch. None where that is not known."""
    if job not in now.progress or len(now.core.jobs) > MOST_FORECAST:
        return None
    core = copy.deepcopy(now.core)
    jobs = [_simulated(now, each) for each in core.jobs if each in now.rows]
    present = {each: len(core.holding(each)) + len(core.leaving(each)) for each in core.jobs}
    engine = Engine(core, len(core.slots), jobs, SimulationSettings(), present=present, begin=now.time)
    for each in core.jobs:
        for slot in core.leaving(each):
            engine.leave(each, slot, now.time)
    if change is not None:
        engine.tell(change, now.time)
    run = engine.run(until=job, most=MOST_INSTANTS)
    return next(life.end for life in run.lives if life.job.name == job)


def _simulated(now: Now, job: str) -> SimulatedJob:
    row = now.rows[job]
    most = max(1, min(row.settings.max_workers, row.shards or row.settings.max_workers))
    speed, left = Speed.by_law(max(most, len(now.core.slots))), float("inf")
    progress = now.progress.get(job)
    if progress is not None and progress.total_updates:
        # Measured speeds where there are any. Otherwise Amdahl's law.
        speed = _measured(now.history[job]) or speed
        done = work_done(_sizes(now.history[job]), speed, now.time)
        begun = _begun(now.history[job])
        if done > 0 and progress.update > begun:
            left = done * max(0, progress.total_updates - progress.update) / (progress.update - begun)
    return SimulatedJob(job, now.time, row.spec.name, most, most, left, speed)


def _training(history: Sequence[Event]) -> Sequence[Event]:
    """Return the events of the training under way."""
    starts = [at for at, event in enumerate(history) if event.kind == kinds.TRAINING_STARTED]
    return history[starts[-1] :] if starts else history


def _sizes(history: Sequence[Event]) -> list[tuple[float, int]]:
    """Return (time, workers) of the training under way: the size of each generation, 0 while it did not run."""
    sizes: list[tuple[float, int]] = []
    for event in _training(history):
        if event.kind == kinds.GENERATION:
            sizes.append((event.time, len(event.data["workers"])))
        elif event.kind == kinds.STATE and event.data["state"] not in _WORKING and sizes:
            sizes.append((event.time, 0))
    return sizes


def _begun(history: Sequence[Event]) -> int:
    """Return the first update of the training under way: not 0 after a resume from a checkpoint."""
    return next((event.data.get("update") or 0 for event in _training(history) if event.kind == kinds.GENERATION), 0)


def _measured(history: Iterable[Event]) -> Speed | None:
    """Return the last measured speeds, None without any."""
    tables = [event.data["speeds"] for event in history if event.kind == kinds.SPEED_MEASURED]
    points = {int(n): speed for n, speed in (tables[-1] if tables else {}).items() if int(n) >= 1 and speed > 0}
    return Speed.of(points.items()) if points else None
