"""What is seen of machines and jobs from outside while `make chaos-fleet` runs, and what must be true of it."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf, isinf
from pathlib import Path

import psutil

_LOOK = 0.25
AGENT = "edt_server.agent"
# Clocks of a process and of the report of its start.
_NEAR = 3.0


@dataclass(slots=True)
class Seen:
    """A process on a machine: its pid there, its command, and when it was there first and last, by the day's clock."""

    machine: str
    pid: int
    inner: int
    command: str
    created: float
    last: float


@dataclass(slots=True)
class Growth:
    """How many updates a job had when: in the server's log, and in the longest log anywhere."""

    served: list[tuple[float, int]] = field(default_factory=list)
    anywhere: list[tuple[float, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Hold:
    """A job's hold on a slot of a machine, from its worker's start to the slot's return, or as long as it was seen."""

    machine: str
    slot: int
    job: str
    pid: int
    begin: float
    end: float


class Watch:
    """Looks at the processes of all machines, and at the commit logs of all jobs, four times a second.

    Args:
        namespaces: the inode of each machine's network.
        server: the folder with the jobs of the server.
        hosts: those of all machines.
    """

    def __init__(self, namespaces: Mapping[int, str], server: Path, hosts: Iterable[Path]) -> None:
        self._namespaces = namespaces
        self._server = server
        self._hosts = tuple(hosts)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="watch", daemon=True)
        self._known: dict[tuple[int, float], Seen] = {}
        self._journals: dict[Path, int] = {}
        self._started: set[tuple[str, int, int, float]] = set()
        self.growth: defaultdict[str, Growth] = defaultdict(Growth)
        self.wrong: list[str] = []

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def seen(self) -> list[Seen]:
        """All processes that were ever seen."""
        return list(self._known.values())

    def living(self) -> list[Seen]:
        """Return those that are there now."""
        return [self._known[key] for key in self._look_at_processes()]

    def workers(self, hosts_of_slots: Mapping[int, Collection[str]]) -> list[Hold]:
        """Return how long each worker was seen in its slot, by the journals of all hosts, zombies included."""
        started = (Hold("", slot, job, pid, when, when) for job, slot, pid, when in sorted(self._started))
        seen = [(each, self._process(each, hosts_of_slots)) for each in started]
        return [
            replace(each, machine=process.machine, begin=process.created, end=process.last)
            for each, process in seen
            if process is not None
        ]

    def placed(self, hold: Hold, hosts_of_slots: Mapping[int, Collection[str]]) -> Hold:
        """Return the hold with the machine on which its worker was seen, "" where it never was.

        A hold that no journal ends was over when its worker was seen last: nobody is left to give back the slots of an
        attempt that died with its machine.
        """
        process = self._process(hold, hosts_of_slots)
        last = hold.begin if process is None else process.last
        machine = "" if process is None else process.machine
        return replace(hold, machine=machine, end=last if isinf(hold.end) else hold.end)

    def _process(self, hold: Hold, hosts_of_slots: Mapping[int, Collection[str]]) -> Seen | None:
        """The number of a slot was that of several hosts in turn: one that comes back gets the lowest that are free."""
        there = [
            each
            for each in self.seen
            if each.inner == hold.pid
            and each.machine in hosts_of_slots.get(hold.slot, ())
            and abs(each.created - hold.begin) < _NEAR
        ]
        return min(there, key=lambda each: abs(each.created - hold.begin), default=None)

    def _work(self) -> None:
        while not self._over.wait(_LOOK):
            try:
                self._look_at_processes()
                self._look_at_logs()
            except Exception as wrong:
                self.wrong.append(repr(wrong))
                raise

    def _look_at_processes(self) -> list[tuple[int, float]]:
        found = []
        now = time.time()
        for name in os.listdir("/proc"):
            if not name.isdecimal():
                continue
            try:
                machine = self._namespaces.get(os.stat(f"/proc/{name}/ns/net").st_ino)
                if machine is None:
                    continue
                key = int(name), psutil.Process(int(name)).create_time()
                if key not in self._known:
                    status = Path(f"/proc/{name}/status").read_text()
                    line = next(each for each in status.splitlines() if each.startswith("NSpid:"))
                    inner = int(line.split()[-1])
                    command = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    self._known[key] = Seen(machine, key[0], inner, command, key[1], now)
            except (OSError, psutil.Error):
                continue
            self._known[key].last = now
            found.append(key)
        return found

    def _look_at_logs(self) -> None:
        now = time.monotonic()
        most: dict[str, int] = {}
        for path in self._server.glob("*/training-0.commits.jsonl"):
            count = most[path.parent.name] = _lines(path)
            _grown(self.growth[path.parent.name].served, now, count)
        for host in self._hosts:
            for path in host.glob("jobs/*/training-0.commits.jsonl"):
                most[path.parent.name] = max(most.get(path.parent.name, 0), _lines(path))
        for job, count in most.items():
            _grown(self.growth[job].anywhere, now, count)
        for host in self._hosts:
            for path in host.glob("jobs/*/journal.jsonl"):
                self._read(path)

    def _read(self, journal: Path) -> None:
        """Remember the starts of workers that a journal has more of than at the last look."""
        try:
            data = journal.read_bytes().rpartition(b"\n")[0]
        except OSError:
            return
        if len(data) == self._journals.get(journal):
            return
        self._journals[journal] = len(data)
        for line in data.split(b"\n"):
            if b"WorkerStarted" in line:
                numbered = json.loads(line)
                report = numbered["report"]
                self._started.add((journal.parent.name, report["slot"], report["pid"], numbered["time"]))


def holds(job: str, journal: Path) -> list[Hold]:
    """Return what a journal says of slots, without their machines. `end` is infinite where it says none."""
    found: dict[int, Hold] = {}
    for line in journal.read_bytes().split(b"\n")[:-1]:
        numbered = json.loads(line)
        report, when = numbered["report"], numbered["time"]
        match report["type"]:
            case "WorkerStarted":
                found[report["worker"]] = Hold("", report["slot"], job, report["pid"], when, inf)
            case "SlotReleased" if report["worker"] in found:
                found[report["worker"]] = replace(found[report["worker"]], end=when)
    return list(found.values())


def shared_slots(all_holds: Iterable[Hold], more: float = 0.0) -> list[tuple[Hold, Hold]]:
    """Return the pairs of holds of two jobs that one slot had at the same time for `more` than this many seconds."""
    found = []
    by_slot: defaultdict[tuple[str, int], list[Hold]] = defaultdict(list)
    for each in all_holds:
        by_slot[each.machine, each.slot].append(each)
    for several in by_slot.values():
        several.sort(key=lambda hold: hold.begin)
        for number, first in enumerate(several):
            for second in several[number + 1 :]:
                if second.begin >= first.end:
                    break
                if second.job != first.job and min(first.end, second.end) - second.begin > more:
                    found.append((first, second))
    return found


def _lines(path: Path) -> int:
    try:
        return path.read_bytes().count(b"\n")
    except OSError:
        return 0


def _grown(series: list[tuple[float, int]], now: float, count: int) -> None:
    if not series or count > series[-1][1]:
        series.append((now, count))
