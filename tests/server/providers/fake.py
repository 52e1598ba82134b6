"""An engine in this process, and its provider: it starts slowly, fails, gives notices and loses machines on demand."""

from __future__ import annotations

import subprocess
import time

from edt_server.providers.level import EngineTrouble, LevelProvider
from edt_server.providers.provider import Provided, ProvidedState, ProviderSettings
from tests.server.providers.engines import Engine


class FakeEngine(Engine):
    """Machines are entries of a dictionary, and their agents are processes.

    Attributes:
        queue: whether new machines wait in the state ASKED until it is false.
        joins: whether agents are started. Otherwise a machine is up without one, like a host that never joins.
        refuses: why no machine can be asked for, "" where it can.
    """

    kind = "fake"

    def __init__(self, folder):
        super().__init__(folder)
        self.machines: dict[str, Provided] = {}
        self.processes: list[tuple[str, subprocess.Popen[bytes]]] = []
        self.asked: list[str] = []

    def renew(self):
        super().renew()
        for each in (self.machines, self.processes, self.asked):
            each.clear()
        self.queue, self.joins, self.refuses, self.down = False, True, "", False

    def settings(self):
        return {}

    def provider(self, mark="", **more):
        settings = {"poll": 0.02, "max_hosts": 2} | more
        return FakeProvider(self, ProviderSettings(**settings), mark or self.mark)

    def break_(self):
        self.down = True

    def heal(self):
        self.down = False

    async def notice(self, host_id):
        self.machines[host_id] = Provided(host_id, ProvidedState.UP, "spot market", time.time() + 60)

    def vanish(self, host_id):
        """Lose a machine with everything on it."""
        del self.machines[host_id]
        self._each(host_id, subprocess.Popen.kill)

    def run(self, host_id, command, token):
        """Start an agent, also a second one of a machine."""
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        process.stdin.write(f"{token}\n".encode())
        process.stdin.close()
        self.processes.append((host_id, process))

    def look(self):
        for host_id, process in self.processes:
            if process.poll() is not None and host_id in self.machines:
                self.machines[host_id] = Provided(host_id, ProvidedState.GONE, f"exit code {process.returncode}")
        for machine in list(self.machines.values()):
            if machine.state is ProvidedState.ASKED and not self.queue:
                self.machines[machine.id] = Provided(machine.id, ProvidedState.STARTING)
        return dict(self.machines)

    def stop(self, host_id):
        self._each(host_id, subprocess.Popen.terminate)
        if not any(each == host_id for each, _ in self.processes):
            self.machines.pop(host_id, None)

    def clean(self):
        super().clean()
        for _, process in self.processes:
            process.kill()
            process.wait()

    def _each(self, host_id, end):
        for each, process in self.processes:
            if each == host_id:
                end(process)


class FakeProvider(LevelProvider[ProviderSettings]):
    """The provider of a FakeEngine."""

    poll = 0.02

    def __init__(self, engine, settings, mark):
        super().__init__("fake", settings, engine.tokens, mark)
        self.engine = engine

    async def _look(self):
        self._check()
        return {name: each for name, each in self.engine.look().items() if name.rpartition("-")[0] == self.mark}

    async def _start(self, host_id):
        self._check()
        if self.engine.refuses:
            raise EngineTrouble(self.engine.refuses)
        self.engine.asked.append(host_id)
        self.engine.machines[host_id] = Provided(host_id, ProvidedState.ASKED)

    async def _admit(self, host_id, token):
        self._check()
        self.engine.machines[host_id] = Provided(host_id, ProvidedState.UP)
        if self.engine.joins:
            self.engine.run(host_id, self._join(host_id), token)

    async def _stop(self, host_id):
        self._check()
        self.engine.stop(host_id)

    def _check(self):
        if self.engine.down:
            raise EngineTrouble("The engine is down.")
