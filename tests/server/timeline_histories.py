"""Event lists as the service writes them, caused by a real core."""

from __future__ import annotations

import json
import random

from edt_sdk.schemas.events import Event
from edt_sdk.schemas.wire.control import Slot
from edt_server.core.core import Core
from edt_server.core.events import (
    JobArrived,
    JobDemand,
    JobGone,
    JobResumed,
    JobSuspended,
    SlotReleased,
    SlotsChanged,
    kind_of,
    to_data,
)
from edt_server.core.instructions import to_event
from edt_server.history.story import describe


def call(job: str) -> str:
    return f"digits-{job}"


class Recorder:
    """Applies events to a core and writes the event list as the service does."""

    def __init__(self) -> None:
        self.core = Core()
        self.events: list[Event] = []

    def apply(self, event, **more) -> None:
        cause = self._append(kind_of(event), getattr(event, "job", None), {**more, **to_data(event)}, None)
        for instruction in self.core.apply(event, cause.time):
            kind, data = to_event(instruction)
            self._append(kind, instruction.job, data, cause)

    def leave(self) -> None:
        for job in self.core.jobs:
            for slot in self.core.leaving(job):
                self.apply(SlotReleased(job, slot))

    def note(self) -> None:
        """Something that is no matter of the core."""
        self._append("generation", "a", {}, None)

    def _append(self, kind, job, data, cause) -> Event:
        seq = len(self.events) + 1
        text = describe(kind, data, job=job, cause=cause, names=call)
        made = Event(
            seq=seq,
            time=1000.0 + seq,
            job=job,
            kind=kind,
            data=json.loads(json.dumps(data)),
            cause=cause and cause.seq,
            text=text,
        )
        self.events.append(made)
        return made


def wander(recorder: Recorder, rng: random.Random, number: int) -> None:
    """One random step that the core takes; `number` names a job that arrives in it."""
    core = recorder.core
    leaving = [(job, slot) for job in core.jobs for slot in core.leaving(job)]
    if leaving and rng.random() < 0.6:
        recorder.apply(SlotReleased(*rng.choice(leaving)))
    elif not core.jobs or rng.random() < 0.3:
        recorder.apply(JobArrived(f"j{number}", rng.choice([1000, 5000]), rng.randint(1, 5), "default"))
    elif rng.random() < 0.3:
        recorder.apply(JobGone(rng.choice(core.jobs)))
    elif rng.random() < 0.2:
        recorder.apply(SlotsChanged(tuple(Slot(id=n, host="h") for n in rng.sample(range(7), rng.randint(2, 6)))))
    elif rng.random() < 0.2:
        job = rng.choice(core.jobs)
        recorder.apply(JobResumed(job) if core.suspended(job) else JobSuspended(job))
    else:
        recorder.apply(JobDemand(rng.choice(core.jobs), rng.randint(0, 6)))
