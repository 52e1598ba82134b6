"""The allocation timeline computed from the whole event list at once, which `TimelineIndex` must equal to the event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from edt_sdk.schemas import events as kinds
from edt_sdk.schemas.events import Event
from edt_server.history.timeline import TimelineRow, tell


class _State:
    """The slots by id, and the job in each."""

    def __init__(self) -> None:
        self.slots: set[int] = set()
        self.holder: dict[int, str] = {}
        self.leaving: set[int] = set()

    def take(self, event: Event) -> None:
        slot: int = event.data.get("slot", -1)
        match event.kind:
            case kinds.SLOTS_CHANGED:
                self.slots = {each["id"] for each in event.data["slots"]}
            case kinds.SLOT_GRANTED if event.job is not None:
                self.holder[slot] = event.job
            case kinds.SLOT_REVOKED:
                self.leaving.add(slot)
            case kinds.SLOT_RELEASED:
                self._clear([slot])
            case kinds.JOB_GONE:
                self._clear([each for each, job in self.holder.items() if job == event.job])

    def _clear(self, slots: Iterable[int]) -> None:
        for slot in slots:
            self.holder.pop(slot, None)
            self.leaving.discard(slot)

    def row(self, event: Event, text: str) -> TimelineRow:
        return {
            "time": event.time,
            "seq": event.seq,
            "slots": Counter(self.holder.values()),
            "leaving": Counter(self.holder[slot] for slot in self.leaving),
            "free": len(self.slots - self.holder.keys()),
            "capacity": len(self.slots),
            # The core grants every free slot that a job is entitled to in the same step, so only leavers are waited
            # for.
            "settled": not self.leaving,
            "cause": event.kind,
            "text": text,
        }


def allocation(events: Iterable[Event], names: Callable[[str], str] = str) -> list[TimelineRow]:
    """Return the timeline, oldest first: one row for each input of the core that changed the allocation.

    Grants and revocations that followed from an input are part of its row. `events` must begin with the store's first
    event, or slots granted earlier are missing. Kinds that change no allocation may be left out. `names` maps ids to
    the jobs' names, for the sentences. The keys stay ids.
    """
    state = _State()
    rows: list[TimelineRow] = []
    for cause, decisions in _steps(events):
        for event in (cause, *decisions):
            state.take(event)
        row = state.row(cause, tell(cause, decisions, names))
        if not rows or any(row[key] != rows[-1][key] for key in ("slots", "leaving", "free", "capacity")):
            rows.append(row)
    return rows


def during(rows: Iterable[TimelineRow], events: Iterable[Event], job: str) -> list[TimelineRow]:
    """Return the rows from the job's first event to its end, or to the last row while it lives.

    A job that ended and was resumed has one life, with a gap in it.
    """
    own = [event for event in events if event.job == job]
    ends = [event.kind for event in own if event.kind in (kinds.JOB_ARRIVED, kinds.JOB_GONE)]
    over = ends[-1:] == [kinds.JOB_GONE]
    return [row for row in rows if own[0].seq <= row["seq"] and (not over or row["seq"] <= own[-1].seq)]


def _steps(events: Iterable[Event]) -> list[tuple[Event, list[Event]]]:
    """Return each input of the core with the decisions that followed it."""
    steps: list[tuple[Event, list[Event]]] = []
    for event in events:
        if event.kind in kinds.INPUTS:
            steps.append((event, []))
        elif event.kind in (kinds.SLOT_GRANTED, kinds.SLOT_REVOKED):
            if not steps:
                raise ValueError(f"event {event.seq} is a decision without the input it followed from")
            steps[-1][1].append(event)
    return steps
