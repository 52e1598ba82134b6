"""Hold what the server knows of one host: its connection, its lease, and what it has been asked for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from edt_sdk.schemas.errors import EdtError
from edt_sdk.schemas.hosts import HostState, HostView
from edt_sdk.schemas.wire import agent as wire
from edt_sdk.schemas.wire.control import HOST_SILENT, ProcessIdentity
from edt_server.fleet.registry import MACHINE_ITSELF, HostRecord

# Seconds without a word after which a host is doubtful, and after which it is lost. The first is a setting, and the
# second and the time between beats change with it.
SILENT, LOST = HOST_SILENT, 15.0
# The latter where no host is heard at all. Then the server is cut off, and its hosts reach each other.
LOST_ALL = 600.0
BEAT = 2.0
# A host whose connection was closed, by the end of its agent as a rule, has this long to be back.
BACK = 2.0


class HostLost(EdtError):
    """The host is gone, and a request to it may not have been carried out."""


@dataclass(slots=True)
class Collecting:
    """A request for all files of a job. With `end` its processes end first. `over` is done when they are here."""

    over: asyncio.Future[None]
    end: bool


class AgentChannel(Protocol):
    """Declares what the fleet needs of the server's control channel."""

    def admit(self, owner: str, public_key: str) -> None:
        """Let a key connect under this name, in place of its former key."""

    def forget(self, owner: str) -> None:
        """Refuse the key of this name from now on."""

    def answer(self, peer: bytes, *frames: bytes) -> bool:
        """Send to the agent that a message came from. False when it is gone."""


@dataclass(slots=True, eq=False)
class HostConnection:
    """A host: its record, and how it stands now. Times are of the monotonic clock, `since` is of the day.

    Attributes:
        silent: seconds without a word after which it is doubtful.
        peer: where to answer, None while its agent is not connected.
        hello: the agent's last one.
        heard: when something came from it.
        excused: seconds since then in which no host was heard. They do not count.
        ends: why the machine will be taken away, "" while it stays.
        closed: when its connection was seen to be gone, None while it is there.
        prepared: the attempts whose orders the present agent has.
        below: the attempts whose supervisors run there.
        ended: set for each attempt when its supervisor has ended there.
        killed: the attempts whose supervisors were lost with the host.
        starting: who waits for a supervisor there.
        collecting: who waits for all files of a job.
        holds: jobs with files there.
        offered: the files of each job that the host may ask for.
        parts: what it has sent of files, over which connection, until it is on disk.
        taking: writes the parts, one batch after the other whatever becomes of the connection.
    """

    record: HostRecord
    since: float
    silent: float = SILENT
    heard: float = field(default_factory=time.monotonic)
    excused: float = 0.0
    peer: bytes | None = None
    hello: wire.HostHello | None = None
    ends: str = ""
    closed: float | None = None
    beat: wire.HostBeat | None = None
    why: str = ""
    prepared: set[tuple[str, int]] = field(default_factory=set)
    below: set[tuple[str, int]] = field(default_factory=set)
    ended: dict[tuple[str, int], asyncio.Event] = field(default_factory=dict)
    killed: set[tuple[str, int]] = field(default_factory=set)
    starting: dict[tuple[str, int], asyncio.Future[ProcessIdentity]] = field(default_factory=dict)
    collecting: dict[str, Collecting] = field(default_factory=dict)
    holds: set[str] = field(default_factory=set)
    offered: dict[str, frozenset[str]] = field(default_factory=dict)
    parts: asyncio.Queue[tuple[bytes, wire.FilePart | wire.Gone, bytes]] = field(default_factory=asyncio.Queue)
    taking: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return self.record.name

    @property
    def connected(self) -> bool:
        """Whether its agent can be asked for something now."""
        return self.record.up and self.peer is not None

    @property
    def offering(self) -> bool:
        """Whether jobs may use its slots."""
        record = self.record
        able = not record.lacks and (record.shared or bool(record.kind))
        staying = not record.draining and not self.ends
        return record.up and able and staying and record.provider != MACHINE_ITSELF

    def age(self) -> float:
        """Return the seconds since something came from it."""
        return time.monotonic() - self.heard

    def lost(self) -> str:
        """Return why the host is lost, "" while it is not."""
        if not self.record.up:
            return ""
        just_heard = self.closed is not None and self.closed - self.heard < 2 * self.beats
        if self.closed is not None and just_heard and time.monotonic() - self.closed > BACK:
            # ZeroMQ closes the connection of a silent host too, later (`Conversation`).
            return "Its agent has ended."
        return f"It has been silent for {self.lease:g} s." if self.age() - self.excused > self.lease else ""

    @property
    def lease(self) -> float:
        """The seconds without a word after which it is lost."""
        return LOST * self.silent / SILENT

    @property
    def beats(self) -> float:
        """The seconds between its heartbeats."""
        return BEAT * self.silent / SILENT

    def let_down(self, wrong: Callable[[], Exception]) -> None:
        """Fail all who wait for something of the host."""
        collecting = [each.over for each in self.collecting.values()]
        waiting: list[asyncio.Future[Any]] = [*self.starting.values(), *collecting]
        self.starting.clear()
        self.collecting.clear()
        for each in waiting:
            if not each.done():
                each.set_exception(wrong())
        for attempt in tuple(self.below):
            self.over(attempt, lost=True)

    def over(self, attempt: tuple[str, int], *, lost: bool = False) -> None:
        """Record that the supervisor of an attempt has ended there, or is lost with the host."""
        self.below.discard(attempt)
        if lost and not self.ending(attempt).is_set():
            self.killed.add(attempt)
        self.ending(attempt).set()

    def ending(self, attempt: tuple[str, int]) -> asyncio.Event:
        """Return the event of the end of an attempt's supervisor there."""
        return self.ended.setdefault(attempt, asyncio.Event())

    def view(self) -> HostView:
        """Return the host as people see it, without what only the core knows."""
        record, hello, beat = self.record, self.hello, self.beat
        state = HostState.UP
        if not record.up:
            state = HostState.STARTING if hello is None and not self.why else HostState.LOST
        elif self.peer is None or self.age() > self.silent:
            state = HostState.DOUBTFUL
        elif record.draining or self.ends:
            state = HostState.DRAINING
        why = self.why
        if state is HostState.DOUBTFUL:
            why = f"No word for {self.age():.0f} s. It gets no new jobs, and after {self.lease:g} s it counts as lost."
            if self.excused:
                why = (
                    f"No word for {self.age():.0f} s, as from all hosts: this server may be cut off. Jobs go on there."
                )
        elif state is HostState.UP and record.lacks:
            why = f"It offers no slots. {record.lacks}"
        elif state is HostState.UP and not record.shared and not record.kind:
            why = "There is no torch in its environment, so it offers no slots. Join from the environment of the jobs."
        elif state is HostState.DRAINING:
            why = f"{self.ends} It gives up its slots, each at its job's next update.".strip()
        return HostView(
            name=record.name,
            provider=record.provider or "joined",
            state=state,
            why=why,
            cores=record.cores,
            gpus=record.gpus,
            memory=0 if hello is None else hello.memory,
            load=None if beat is None else beat.load,
            memory_free=None if beat is None else beat.memory_free,
            disk_free=None if beat is None else beat.disk_free,
            kind=record.kind,
            wheel="" if hello is None else hello.wheel,
            address="" if hello is None else hello.endpoint.removeprefix("tcp://").rpartition(":")[0].strip("[]"),
            since=self.since,
            round_trip=None if beat is None else beat.round_trip,
        )
