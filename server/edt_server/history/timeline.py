"""Keep the allocation timeline: which job had how many slots when, and why that changed.

The index is pure, and the feed gives it the events of a store. Each event is taken once, and any window of rows is
computed from what was kept. The index reads decisions (granted, revoked, released, gone) and never evaluates the rule
again, so it stays true when the rule changes. Invariant of every row: the slots of all jobs + `free` = `capacity`,
except for slots that were taken away while a job was still in them.

An entry holds changes, not all slots of all jobs. Some entries also hold the whole state, less often the larger it is.
A window therefore costs as much as it contains, and memory grows with changes, not with changes × jobs.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypedDict

from edt_sdk.schemas import events as kinds
from edt_sdk.schemas.events import Event
from edt_server.history.story import because, between_trainings, suspends

KINDS = kinds.INPUTS | {kinds.SLOT_GRANTED, kinds.SLOT_REVOKED}
# Rows between two states: computing a row from the state before it costs about as much as copying that state.
_LEAST_APART = 32
_APART_BY_JOB = 4
MOST_POINTS = 10_000
DEFAULT_POINTS = 500
_PAGE = 1000


class TimelineRow(TypedDict):
    """The allocation from one instant on, as it goes into JSON.

    Attributes:
        time: seconds since the epoch of the event that changed it.
        seq: that event's number.
        slots: slots each job occupies, without jobs that have none. A slot counts until its job has left it.
        leaving: how many of these slots each job was asked to give back.
        free: slots without a job.
        capacity: slots there are.
        settled: True when nothing is in transit: every job has exactly what it is entitled to.
        cause: kind of the event that changed it.
        text: one sentence.
    """

    time: float
    seq: int
    slots: dict[str, int]
    leaving: dict[str, int]
    free: int
    capacity: int
    settled: bool
    cause: str
    text: str


class _Entry(NamedTuple):
    """A row. `changes` has (job, slots, leaving) for each job with other figures than in the row before."""

    time: float
    cause: str
    text: str
    free: int
    capacity: int
    changes: tuple[tuple[str, int, int], ...]


@dataclass(slots=True)
class _Life:
    """A job's first and newest event that counts here, and whether it has ended."""

    first: int
    last: int
    over: bool


class TimelineIndex:
    """All rows so far. `seq` is the number of the newest event taken, 0 before the first."""

    def __init__(self, names: Callable[[str], str] = str) -> None:
        self.seq = 0
        self._names = names
        self._step: tuple[Event, list[Event]] | None = None
        self._slots: set[int] = set()
        self._holder: dict[int, str] = {}
        self._leaving: set[int] = set()
        self._occupied: dict[str, int] = {}
        self._left: dict[str, int] = {}
        self._free = 0
        self._told: tuple[int, int] | None = None
        self._entries: list[_Entry] = []
        # Arrays of machine numbers take a fraction of the memory of lists, and bisection works on both.
        self._seqs = array("q")
        self._times = array("d")  # never going back, whatever the clock did
        self._marks = array("q")
        self._states: list[tuple[dict[str, int], dict[str, int]]] = []
        self._lives: dict[str, _Life] = {}

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._entries)

    # --- taking events in ---------------------------------------------------------------------------------------------

    def take(self, events: Iterable[Event], *, more: bool = False) -> None:
        """Take the next events, in order. Kinds other than `KINDS` may be left out.

        With `more`, decisions that follow from the last event may be missing, and come with the next call. ValueError
        for a decision without the input it followed from.
        """
        for event in events:
            self.seq = event.seq
            if event.kind in kinds.INPUTS:
                self._close_step()
                # The step stays open: decisions that follow from this input come next, perhaps with the next page.
                self._step = (event, [])
            elif event.kind not in KINDS:
                continue
            elif self._step is None:
                raise ValueError(f"event {event.seq} is a decision without the input it followed from")
            else:
                self._step[1].append(event)
            if event.job is not None:
                self._live(event, event.job)
        if not more:
            self._close_step()

    def _live(self, event: Event, job: str) -> None:
        life = self._lives.get(job)
        if life is None:
            life = self._lives[job] = _Life(event.seq, event.seq, False)
        life.last = event.seq
        if event.kind in (kinds.JOB_ARRIVED, kinds.JOB_GONE):
            life.over = event.kind == kinds.JOB_GONE

    def _close_step(self) -> None:
        if self._step is None:
            return
        (cause, decisions), self._step = self._step, None
        changed: dict[str, tuple[int, int]] = {}
        for event in (cause, *decisions):
            self._apply(event, changed)
        changes = tuple(
            (job, *now)
            for job, before in changed.items()
            if (now := (self._occupied.get(job, 0), self._left.get(job, 0))) != before
        )
        figures = (self._free, len(self._slots))
        # An input that moved nothing, such as a progress of time, is no row.
        if not changes and figures == self._told:
            return
        self._told = figures
        text = tell(cause, decisions, self._names)
        # A wall clock can be set back, and `window` searches by bisection, which needs rising times.
        self._times.append(max(cause.time, self._times[-1]) if self._times else cause.time)
        self._seqs.append(cause.seq)
        self._entries.append(_Entry(cause.time, cause.kind, text, *figures, changes))
        # A whole state only now and then: with one in each row, memory would grow with changes × jobs.
        row, apart = len(self._entries) - 1, max(_LEAST_APART, _APART_BY_JOB * len(self._occupied))
        if not self._marks or row - self._marks[-1] >= apart:
            self._marks.append(row)
            self._states.append((dict(self._occupied), dict(self._left)))

    def _apply(self, event: Event, changed: dict[str, tuple[int, int]]) -> None:
        slot: int = event.data.get("slot", -1)
        match event.kind:
            case kinds.SLOTS_CHANGED:
                self._slots = {each["id"] for each in event.data["slots"]}
                self._free = len(self._slots - self._holder.keys())
            case kinds.SLOT_GRANTED if event.job is not None:
                self._clear(slot, changed)
                self._note(event.job, changed)
                self._holder[slot] = event.job
                self._occupied[event.job] = self._occupied.get(event.job, 0) + 1
                self._free -= slot in self._slots
            case kinds.SLOT_REVOKED if slot in self._holder and slot not in self._leaving:
                job = self._holder[slot]
                self._note(job, changed)
                self._leaving.add(slot)
                self._left[job] = self._left.get(job, 0) + 1
            case kinds.SLOT_RELEASED:
                self._clear(slot, changed)
            case kinds.JOB_GONE if event.job in self._occupied:
                for each in [each for each, job in self._holder.items() if job == event.job]:
                    self._clear(each, changed)

    def _clear(self, slot: int, changed: dict[str, tuple[int, int]]) -> None:
        job = self._holder.get(slot)
        if job is None:
            return
        self._note(job, changed)
        del self._holder[slot]
        # Only a slot that is still offered becomes free. Its host may be gone by now.
        self._free += slot in self._slots
        _less(self._occupied, job)
        if slot in self._leaving:
            self._leaving.remove(slot)
            _less(self._left, job)

    def _note(self, job: str, changed: dict[str, tuple[int, int]]) -> None:
        changed.setdefault(job, (self._occupied.get(job, 0), self._left.get(job, 0)))

    # --- reading ------------------------------------------------------------------------------------------------------

    def window(self, *, job: str | None = None, start: float | None = None, end: float | None = None) -> range:
        """Return the numbers of the rows in force from `start` to `end`, seconds since the epoch.

        The first row is the one in force at `start`. With `job`, only the rows of its life: from its first event to its
        end, or to the newest row while it lives. A job that ended and was resumed has one life, with a gap in it.
        """
        first, last = 0, len(self._entries)
        if job is not None:
            life = self._lives.get(job)
            if life is None:
                return range(0)
            first = bisect_left(self._seqs, life.first)
            last = bisect_right(self._seqs, life.last) if life.over else last
        if start is not None:
            # One row earlier: the row in force at `start` began before it.
            first = max(first, bisect_right(self._times, start) - 1)
        if end is not None:
            last = min(last, bisect_right(self._times, end))
        return range(first, max(first, last))

    def thin(self, rows: range, points: int) -> Sequence[int]:
        """Return at most `points` (≥ 2) of these rows: the first, and the last of each of several equal time spans.

        An allocation that held for longer than a span is therefore included, with its own time. The newest row
        always is.
        """
        if len(rows) <= points:
            return rows
        begin, stop = self._times[rows[0]], self._times[rows[-1]]
        chosen = [rows[0]]
        for number in range(1, points):
            until = begin + (stop - begin) * number / (points - 1)
            row = rows[-1] if number == points - 1 else bisect_right(self._times, until, rows[0], rows[-1] + 1) - 1
            if row > chosen[-1]:
                chosen.append(row)
        return chosen

    def rows(self, numbers: Sequence[int]) -> list[TimelineRow]:
        """Return the rows with these numbers, ascending."""
        rows: list[TimelineRow] = []
        at = -1
        slots: dict[str, int] = {}
        leaving: dict[str, int] = {}
        for number in numbers:
            place = bisect_right(self._marks, number) - 1
            # Start at the newest whole state, unless the last row was computed from a later place already.
            if at < self._marks[place]:
                at = self._marks[place]
                slots, leaving = (dict(each) for each in self._states[place])
            for entry in self._entries[at + 1 : number + 1]:
                for job, occupied, left in entry.changes:
                    _set(slots, job, occupied)
                    _set(leaving, job, left)
            at = number
            row = self._entries[number]
            rows.append(
                {
                    "time": row.time,
                    "seq": self._seqs[number],
                    "slots": dict(slots),
                    "leaving": dict(leaving),
                    "free": row.free,
                    "capacity": row.capacity,
                    "settled": not leaving,
                    "cause": row.cause,
                    "text": row.text,
                }
            )
        return rows


class TimelineEvents(Protocol):
    """The part of a store that is read."""

    def events(self, *, kinds: frozenset[str] | None = None, after: int = 0, limit: int | None = None) -> list[Event]:
        """Return events with seq > `after`, oldest first, only of `kinds` and only the first `limit`, where given."""
        ...


class TimelineFeed:
    """The timeline index of a store, which reads at each request only what was committed since the last one.

    It needs no feeding. It finds missing events in the store, so a rolled-back change never shows, a change by another
    server does, and it may be created at any time. A transaction commits an input together with every decision that
    follows from it. Calls block, so make them in a thread. Concurrent calls wait for each other.

    `newest` returns the number of the newest committed event, so that nothing is read where nothing is new.
    """

    def __init__(self, store: TimelineEvents, newest: Callable[[], int], names: Callable[[str], str]) -> None:
        self._store = store
        self._newest = newest
        self._names = names
        self._index = TimelineIndex(names)
        self._seen = -1
        self._lock = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """Stop a `catch_up` that is under way at its next page."""
        self._closed = True

    def catch_up(self) -> None:
        """Read the events committed since the last call."""
        with self._lock:
            # Read before the events: an event committed in between is found now, and looked for once more by the next
            # call.
            newest = self._newest()
            if newest == self._seen:
                return
            # Page by page: in between, the others get their turn, and no more than a page is held.
            while not self._closed:
                page = self._store.events(kinds=KINDS, after=self._index.seq, limit=_PAGE)
                full = len(page) == _PAGE
                self._index.take(page, more=full)
                if not full:
                    self._seen = newest
                    return

    def read(
        self,
        *,
        job: str | None = None,
        start: float | None = None,
        end: float | None = None,
        points: int | None = None,
    ) -> dict[str, Any]:
        """Return which job held how many slots when and why, up to now.

        Args:
            job: only while this job lived.
            start: only since then, seconds since the epoch. The first row is the one in force then.
            end: only until then.
            points: most rows, ≥ 2. By default `DEFAULT_POINTS`, or `MOST_POINTS` for a window.

        Returns:
            `rows`, `total` (how many rows the window has), `thinned` (True when some were left out), and `names` of the
            jobs in the rows.
        """
        self.catch_up()
        with self._lock:
            window = self._index.window(job=job, start=start, end=end)
            whole = start is None and end is None
            chosen = self._index.thin(window, points or (DEFAULT_POINTS if whole else MOST_POINTS))
            rows = self._index.rows(chosen)
        held = {each for row in rows for each in row["slots"]}
        return {
            "rows": rows,
            "total": len(window),
            "thinned": len(rows) < len(window),
            "names": {each: self._names(each) for each in sorted(held)},
        }


def _less(counts: dict[str, int], job: str) -> None:
    _set(counts, job, counts[job] - 1)


def _set(counts: dict[str, int], job: str, number: int) -> None:
    if number:
        counts[job] = number
    else:
        counts.pop(job, None)


def tell(cause: Event, decisions: list[Event], names: Callable[[str], str]) -> str:
    """Return a sentence about an input of the core and the decisions that followed from it."""
    revoked = Counter(event.job or "" for event in decisions if event.kind == kinds.SLOT_REVOKED)
    granted = Counter(event.job or "" for event in decisions if event.kind == kinds.SLOT_GRANTED)
    own = between_trainings(cause) or suspends(cause)
    verb = "gives back" if own else "is asked for"
    parts = [f"{names(job)} {verb} {number}" for job, number in revoked.items()]
    parts += [f"{names(job)} gets {number}" for job, number in granted.items()]
    what = because(cause, names=names)
    return f"{what}: {', '.join(parts)}" if parts else what
