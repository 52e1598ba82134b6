"""A job store with a long past: thousands of ended jobs, and all that happened to them.

What happened is caused by the real core: eight jobs at a time share the slots, each is given some, gives some back as
others come, and ends. Jobs and events are written in one go, since it is reading them that is measured.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import insert

from edt_sdk.schemas import events as kinds
from edt_sdk.schemas.events import Event
from edt_sdk.schemas.job import JobSettings, JobSpec, JobState
from edt_sdk.schemas.wire.control import Slot
from edt_server.core.core import Core
from edt_server.core.events import (
    CoreEvent,
    JobArrived,
    JobDemand,
    JobGone,
    SlotReleased,
    SlotsChanged,
    kind_of,
    to_data,
)
from edt_server.core.instructions import to_event
from edt_server.store import Store, sqlite_url
from edt_server.store.engine import make_engine
from edt_server.store.models import EventModel, JobModel

SLOTS = 16
TOGETHER = 8
BEGUN = 1.7e9
NAME = "digits"


class _Past:
    """Applies events to a core and keeps them as the service would."""

    def __init__(self) -> None:
        self.core = Core()
        self.events: list[Event] = []
        self.now = BEGUN

    def apply(self, event: CoreEvent) -> None:
        self.now += 1.0
        seq = self._note(kind_of(event), getattr(event, "job", None), to_data(event), None)
        for instruction in self.core.apply(event, self.now):
            kind, data = to_event(instruction)
            self._note(kind, instruction.job, data, seq)

    def tell(self, kind: str, job: str, **data: object) -> None:
        self._note(kind, job, data, None)

    def leave(self) -> None:
        for job in self.core.jobs:
            for slot in self.core.leaving(job):
                self.apply(SlotReleased(job, slot))

    def _note(self, kind: str, job: str | None, data: dict[str, object], cause: int | None) -> int:
        seq = len(self.events) + 1
        text = f"{kind.replace('_', ' ')}, as it is told to people in about as many words as these"
        self.events.append(Event(seq=seq, time=self.now, job=job, kind=kind, data=data, cause=cause, text=text))
        return seq


def _live(past: _Past, jobs: int) -> Iterator[tuple[str, float, float]]:
    """Let jobs come and go; (id, arrival, end) of each that has ended."""
    rng = random.Random(4)
    past.apply(SlotsChanged(tuple(Slot(id=number, host="here") for number in range(SLOTS))))
    living: dict[str, float] = {}
    for number in range(jobs):
        job = f"{NAME}-{number:06d}"
        living[job] = past.now
        past.apply(JobArrived(job=job, priority=rng.choice((5000, 10000)), max_workers=4, instance_group="default"))
        past.tell(kinds.STATE, job, state="RUNNING", before="LAUNCHING", message="")
        past.leave()
        past.apply(JobDemand(job=job, demand=4))
        past.leave()
        if len(living) > TOGETHER or number == jobs - 1:
            for over in list(living) if number == jobs - 1 else [rng.choice(list(living))]:
                past.tell(kinds.STATE, over, state="FINISHED", before="RUNNING", message="")
                past.apply(JobGone(job=over))
                yield over, living.pop(over), past.now


def write(data_dir: Path, owner: str, jobs: int) -> int:
    """Make the job store of a data folder, with that many ended jobs; the number of its events."""
    data_dir.mkdir(parents=True, mode=0o700)
    url = sqlite_url(data_dir / "edt.sqlite")
    Store.open(url).close()
    past = _Past()
    rows = [_row(job, owner, created, ended) for job, created, ended in _live(past, jobs)]
    engine = make_engine(url)
    with engine.begin() as connection:
        connection.execute(insert(JobModel), rows)
        columns = Event.__struct_fields__
        connection.execute(insert(EventModel), [{name: getattr(one, name) for name in columns} for one in past.events])
    engine.dispose()
    return len(past.events)


def _row(job: str, owner: str, created: float, ended: float) -> dict[str, object]:
    return {
        "id": job,
        "owner": owner,
        "spec": JobSpec(name=NAME, main="train.py", max_workers=4),
        "state": JobState.FINISHED,
        "state_since": ended,
        "created": created,
        "started": created,
        "ended": ended,
        "attempt": 1,
        "message": "",
        "interpreter": "/usr/bin/python3",
        "threads_per_slot": 1,
        "supervisor": None,
        "public_key": "",
        "shards": 4,
        "last_report": 20,
        "progress": None,
        "settings": JobSettings(max_workers=4, instance_group="default"),
        "project": None,
        "definition": None,
        "metric": None,
    }
