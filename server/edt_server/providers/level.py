"""Hold what all providers share: the loop that compares the wish with what the engine has, ids, retries and notices.

A provider implements four calls. Only the loop makes them, one after the other, so they need no lock.

- `_look` returns what the engine has of ours. It is the truth, also about what an earlier server started.
- `_start` asks the engine for a machine under an id of ours. An order with a lost answer shows up at the next look.
- `_admit` hands a token to a machine that is about to start an agent. It is called once for each that is STARTING.
- `_stop` ends a machine. It is repeated until the engine has accepted it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import ClassVar, Generic, TypeVar

import msgspec

from edt_sdk.schemas.errors import EdtError
from edt_server.providers.provider import (
    NOTICE,
    Admission,
    Notice,
    Provided,
    ProvidedState,
    ProviderSettings,
    Wish,
    join_command,
)
from edt_server.system.detached import inherited

log = logging.getLogger(__name__)
S = TypeVar("S", bound=ProviderSettings)

# Seconds before the first retry, and at most. Each failure doubles them.
FIRST, LONGEST = 1.0, 60.0
# Seconds that a machine has to be up to count as a success.
_STEADY = 10.0
# How many machines that are gone are still reported.
_MOST_GONE = 64
# Seconds for one call of an engine.
_PATIENCE = 60.0
_COUNTING = (ProvidedState.ASKED, ProvidedState.STARTING, ProvidedState.UP)


class EngineTrouble(Exception):
    """The engine has refused or not answered. The message is a sentence for people."""


class BackOff:
    """When to try again: the delay doubles with every failure, and begins again after a success."""

    def __init__(self) -> None:
        self._delay, self._after = 0.0, 0.0

    def failed(self) -> None:
        """Wait twice as long as the last time."""
        self._delay = min(2 * self._delay, LONGEST) or FIRST
        self._after = time.monotonic() + self._delay

    @property
    def left(self) -> float:
        """The seconds to wait from now."""
        return max(0.0, self._after - time.monotonic())


class LevelProvider(ABC, Generic[S]):
    """A provider that keeps a number of machines."""

    poll: ClassVar[float]

    def __init__(self, name: str, settings: S, admission: Admission, mark: str) -> None:
        self.name, self.settings, self.mark = name, settings, mark
        self._admission = admission
        self._wish = Wish(hosts=0)
        self._wake = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None
        self._listeners: list[asyncio.Queue[Notice | None]] = []
        # All machines, in the order in which they were asked for.
        self._machines: dict[str, Provided] = {}
        self._up_since: dict[str, float] = {}
        self._noticed: set[str] = set()
        self._admitted: set[str] = set()
        self._released: dict[str, str] = {}
        self._stopped: set[str] = set()
        # By place: a host of ssh, and all machines of another engine.
        self._back_offs: dict[str, BackOff] = {}
        self._engine = BackOff()
        self._engine_trouble = self._start_trouble = ""

    @property
    def trouble(self) -> str:
        """Why the engine cannot be used now, or why its last machine did not start, "" where all is well."""
        return self._engine_trouble or self._start_trouble

    async def want(self, wish: Wish) -> None:
        """Have as many machines as this from now on."""
        self._wish = wish
        self._wake.set()
        if self._loop is None:
            self._loop = asyncio.create_task(self._keep(), name=f"edt provider {self.name}")

    async def hosts(self) -> tuple[Provided, ...]:
        """Return the machines as they stand, and those that have gone lately."""
        return tuple(self._machines.values())

    async def release(self, host_id: str, why: str) -> None:
        """End a machine, which may be unknown here when an earlier server started it."""
        known = self._machines.get(host_id)
        if known is None or known.state is not ProvidedState.GONE:
            self._released.setdefault(host_id, why)
            self._wake.set()

    def notices(self) -> AsyncIterator[Notice]:
        """Return the notices from this call on, until the provider is closed."""
        queue: asyncio.Queue[Notice | None] = asyncio.Queue()
        self._listeners.append(queue)

        async def following() -> AsyncIterator[Notice]:
            while (notice := await queue.get()) is not None:
                yield notice

        return following()

    async def close(self, *, keep: bool) -> None:
        """Look after the machines no longer. With `keep` they go on, otherwise they get the order to end."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.wait([self._loop])
        if not keep:
            with contextlib.suppress(EngineTrouble):
                self._update(await self._look())
            for machine in tuple(self._machines.values()):
                if machine.state is not ProvidedState.GONE:
                    with contextlib.suppress(EngineTrouble):
                        await self._stop(machine.id)
        await self._disconnect()
        for queue in self._listeners:
            queue.put_nowait(None)

    # --- what the engines do differently ------------------------------------------------------------------------------

    @abstractmethod
    async def _look(self) -> Mapping[str, Provided]:
        """Return the engine's machines with our mark. A machine it does not name is gone. Raises EngineTrouble."""

    @abstractmethod
    async def _start(self, host_id: str) -> None:
        """Ask for a machine. Raises EngineTrouble."""

    @abstractmethod
    async def _admit(self, host_id: str, token: str) -> None:
        """Let the agent of a machine that is STARTING join. Raises EngineTrouble."""

    @abstractmethod
    async def _stop(self, host_id: str) -> None:
        """End a machine, with SIGTERM to its agent first. One that is not there is no error. Raises EngineTrouble."""

    async def _disconnect(self) -> None:
        """End what connects the server with the engine, and leave the machines alone."""

    def _free_places(self) -> Sequence[str]:
        """Return where machines can start, as the beginning of their ids, as often as one can start there."""
        return [self.mark] * self.settings.max_hosts

    # --- the loop -----------------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self._compare()
            except Exception as why:  # the loop has to survive whatever an engine answers
                expected = isinstance(why, EngineTrouble | EdtError | OSError)
                if not self._engine_trouble:
                    log.warning("provider %s: %s", self.name, why, exc_info=not expected)
                self._engine_trouble = str(why) if expected else f"{self.name} answers what was not expected: {why!r}"
                self._engine.failed()
            else:
                self._engine, self._engine_trouble = BackOff(), ""
            # A failed call waits even when there is a new wish, because the engine would refuse that one too.
            await asyncio.sleep(self._engine.left)
            waiting = [each.left for each in self._back_offs.values() if each.left]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min([self.settings.poll or self.poll, *waiting])):
                    await self._wake.wait()

    async def _compare(self) -> None:
        self._update(await self._look())
        bounded = min(max(self._wish.hosts, self.settings.min_hosts), self.settings.max_hosts)
        counting = [each for each in self._machines.values() if each.state in _COUNTING]
        # The newest first, and those that wait before those that start. A machine that is up ends by `release` alone.
        surplus = [each for state in _COUNTING[:2] for each in reversed(counting) if each.state is state]
        for machine in surplus[: max(0, len(counting) - bounded)]:
            self._released.setdefault(machine.id, "It is no longer wanted.")
        for host_id in self._released.keys() - self._stopped:
            await self._stop(host_id)
            self._stopped.add(host_id)
        for machine in tuple(self._machines.values()):
            starting = machine.state is ProvidedState.STARTING and machine.id not in self._released
            if starting and machine.id not in self._admitted:
                await self._admit(machine.id, await self._admission.token(machine.id))
                self._admitted.add(machine.id)
        alive = sum(each.state is not ProvidedState.GONE for each in self._machines.values())
        # One that will be taken away has a successor at once, unless there would be more than max_hosts.
        missing = min(bounded - len(counting), self.settings.max_hosts - alive)
        if missing <= 0 and len(counting) >= bounded:
            self._start_trouble = ""
        ready = (place for place in self._free_places() if not self._back_off(place).left)
        for place, _ in zip(ready, range(missing), strict=False):
            await self._begin(f"{place}-{secrets.token_hex(4)}")

    async def _begin(self, host_id: str) -> None:
        try:
            await self._start(host_id)
        except EngineTrouble as why:
            self._failed(host_id, str(why))
        else:
            log.info("provider %s: %s was asked for", self.name, host_id)
            # An engine that is fast may have changed it already.
            self._machines.setdefault(host_id, Provided(host_id, ProvidedState.ASKED))

    def _update(self, seen: Mapping[str, Provided]) -> None:
        """Take over what the engine has."""
        for machine in tuple(self._machines.values()):
            if machine.state is not ProvidedState.GONE and machine.id not in seen:
                self._change(msgspec.structs.replace(machine, state=ProvidedState.GONE, why="It is no longer there."))
        for machine in seen.values():
            known = self._machines.get(machine.id)
            # GONE is final. What ended before this server came is of no interest.
            if (known or machine).state is not ProvidedState.GONE:
                self._change(machine)
        gone = [each.id for each in self._machines.values() if each.state is ProvidedState.GONE]
        for host_id in gone[: max(0, len(gone) - _MOST_GONE)]:
            del self._machines[host_id]

    def _change(self, machine: Provided) -> None:
        why = self._released.get(machine.id)
        now = time.monotonic()
        if machine.state is ProvidedState.GONE:
            since = self._up_since.pop(machine.id, None)
            if why is None and (since is None or now - since < _STEADY) and machine.id in self._machines:
                self._failed(machine.id, f"{machine.id} has ended at once: {machine.why}")
            for each in (self._noticed, self._admitted, self._stopped):
                each.discard(machine.id)
            self._released.pop(machine.id, None)
        elif why is not None:
            machine = msgspec.structs.replace(machine, state=ProvidedState.DRAINING, why=why)
        elif machine.state is ProvidedState.UP:
            self._start_trouble = ""
            if now - self._up_since.setdefault(machine.id, now) > _STEADY:
                self._back_offs.pop(_place(machine.id), None)
        if why is None:
            self._notice(machine)
        self._machines[machine.id] = machine

    def _notice(self, machine: Provided) -> None:
        left = NOTICE if machine.until is None else machine.until - time.time()
        going = machine.state is ProvidedState.DRAINING
        ending = machine.state is ProvidedState.UP and machine.until is not None and left <= NOTICE
        if machine.id not in self._noticed and (going or ending):
            self._noticed.add(machine.id)
            for queue in self._listeners:
                queue.put_nowait(Notice(machine.id, max(0.0, left), machine.why or "Its time is over."))

    def _failed(self, host_id: str, why: str) -> None:
        log.warning("provider %s: %s", self.name, why)
        self._start_trouble = why
        self._back_off(_place(host_id)).failed()

    def _back_off(self, place: str) -> BackOff:
        return self._back_offs.setdefault(place, BackOff())

    def _join(self, host_id: str, token_file: str = "-", python: str = "") -> list[str]:
        """Return the command of a machine's agent."""
        settings = self.settings
        return join_command(
            settings.command or python or self._admission.python, self.name, host_id, token_file=token_file,
            folder=settings.folder, slots=self._wish.slots or settings.slots,
        )  # fmt: skip


def _place(host_id: str) -> str:
    return host_id.rpartition("-")[0]


async def call(command: Sequence[str], stdin: bytes = b"", *, passing: str, environ: Mapping[str, str] = {}) -> str:
    """Return what a command of an engine has written. Raises EngineTrouble with its last line where it fails.

    It sees the variables that jobs may see, those with names like `passing`, and `environ`. Slurm would pass the
    others of the server on to its jobs.
    """
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True,
            env={**inherited(os.environ, [passing]), **environ},
        )  # fmt: skip
    except OSError as wrong:
        raise EngineTrouble(f"{command[0]} cannot be run: {wrong.strerror}.") from wrong
    try:
        async with asyncio.timeout(_PATIENCE):
            answer, words = await process.communicate(stdin)
    except TimeoutError:
        raise EngineTrouble(f"{command[0]} gave no answer in {_PATIENCE:g} s.") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise EngineTrouble(f"{command[0]} has failed: {last_line(words)}")
    return answer.decode(errors="replace")


def last_line(words: bytes) -> str:
    """Return the last line of a program's output that is not empty."""
    return words.decode(errors="replace").strip().rpartition("\n")[2] or "it wrote nothing."
