"""Provide machines that the server reaches by the system's ssh, with its configuration, keys and jump hosts.

A session runs a small script on the machine. The script starts the agent in a session of its own, or finds the one that
runs there, and then watches it. So an agent survives the loss of the network and the end of the server, and a server
that comes back watches it again. The token goes over stdin. To end an agent another session sends it SIGTERM by the pid
in its file. A machine that cannot be reached is not given up: only the server's lease decides that its agent is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from edt_server.providers.level import BackOff, EngineTrouble, LevelProvider, call, last_line
from edt_server.providers.provider import Admission, Provided, ProvidedState, ProviderSettings

log = logging.getLogger(__name__)
# A csh on the other side takes a quoted text only without line ends, so each is one line.
_HEAD = (
    'd="${1:-.edt-hosts}" f=$2 n=$3 p= i=; shift 3; umask 077; mkdir -p "$d" && cd "$d" || exit 1; '
    # The pid may belong to another program after a restart of the machine.
    'alive() { [ -n "$i" ] && grep -qa -e "$i" "/proc/$p/cmdline" 2>/dev/null; }; '
    'if [ -f "$f.pid" ]; then read -r p i < "$f.pid"; fi; '
)
_WATCH = _HEAD + (
    "if ! alive; then echo ready; read -r token || exit 1; i=$n; "
    'printf "%s\\n" "$token" | setsid "$@" >>"$f.log" 2>&1 & p=$!; token=; printf "%s %s\\n" "$p" "$i" >"$f.pid"; fi; '
    # The dots end a session that has lost its server: the write fails.
    'echo "up $i"; while kill -0 "$p" 2>/dev/null; do echo . || exit 1; sleep 1; done; '
    'echo "ended $(tail -n 1 "$f.log" | cut -c 1-400)"'
)
_STOP = _HEAD + 'if alive && [ "$i" = "$n" ]; then kill "$p"; fi'
_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=15")
# Seconds that `close` gives the sessions that end agents.
_CLOSING = 20.0


class SshSettings(ProviderSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of the provider ssh.

    Attributes:
        hosts: the machines, as ssh names them. The first ones are used first.
        options: more options of ssh, such as `["-F", "/etc/edt/ssh_config"]`.
        max_hosts: all of `hosts` unless it is given.
    """

    hosts: tuple[str, ...]
    options: tuple[str, ...] = ()
    max_hosts: int = -1

    def __post_init__(self) -> None:
        if not self.hosts or any(not each or each.startswith("-") for each in self.hosts):
            raise ValueError("hosts needs the names of machines")
        if len({_tidy(each) for each in self.hosts}) < len(self.hosts):
            raise ValueError("hosts has a machine twice")
        if self.max_hosts == -1:
            msgspec.structs.force_setattr(self, "max_hosts", len(self.hosts))
        super().__post_init__()


@dataclass
class _Session:
    """A machine with the session that watches its agent. `admitted` from when an agent may run there."""

    id: str
    host: str
    state: ProvidedState = ProvidedState.ASKED
    why: str = ""
    admitted: bool = False
    ssh: asyncio.subprocess.Process | None = None
    task: asyncio.Task[None] | None = None


class SshProvider(LevelProvider[SshSettings]):
    """One agent on each machine of a list."""

    # The sessions report what happens at once. The look only serves retries.
    poll = 10.0

    def __init__(self, name: str, settings: SshSettings, admission: Admission, mark: str) -> None:
        super().__init__(name, settings, admission, mark)
        self._sessions: dict[str, _Session] = {}
        self._stops: set[asyncio.Task[None]] = set()

    async def _look(self) -> Mapping[str, Provided]:
        seen = {each.id: Provided(each.id, each.state, each.why) for each in self._sessions.values()}
        for machine in seen.values():
            if machine.state is ProvidedState.GONE:
                del self._sessions[machine.id]
        return seen

    async def _start(self, host_id: str) -> None:
        session = self._sessions[host_id] = _Session(host_id, self._host_of(host_id) or "")
        session.task = asyncio.create_task(self._attend(session), name=f"edt ssh {session.host}")

    async def _admit(self, host_id: str, token: str) -> None:
        session = self._sessions.get(host_id)
        if session is not None and session.ssh is not None and session.ssh.stdin is not None:
            session.admitted = True
            session.ssh.stdin.write(f"{token}\n".encode())

    async def _stop(self, host_id: str) -> None:
        session = self._sessions.get(host_id)
        if session is not None and session.task is not None and not session.admitted:
            session.task.cancel()
            self._end(session, "It was not started.")
        elif (host := self._host_of(host_id)) is not None:
            # Not awaited: a machine that cannot be reached must not hold up the others.
            stop = asyncio.create_task(self._end_agent(host, host_id), name=f"edt ssh stop {host}")
            self._stops.add(stop)
            stop.add_done_callback(self._stops.discard)

    async def _disconnect(self) -> None:
        if self._stops:
            await asyncio.wait(self._stops, timeout=_CLOSING)
        tasks = {*self._stops, *(each.task for each in self._sessions.values() if each.task is not None)}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _free_places(self) -> Sequence[str]:
        busy = {each.host for each in self._sessions.values()}
        return [self._place_of(host) for host in self.settings.hosts if host not in busy]

    def _place_of(self, host: str) -> str:
        return f"{self.mark}-{_tidy(host)}"

    def _host_of(self, host_id: str) -> str | None:
        place = host_id.rpartition("-")[0]
        return next((host for host in self.settings.hosts if self._place_of(host) == place), None)

    async def _attend(self, session: _Session) -> None:
        """Watch an agent until it has ended. A session that is lost is replaced by another one."""
        back_off = BackOff()
        while True:
            why = await self._converse(session)
            if not session.admitted:
                self._end(session, why)
            if session.state is ProvidedState.GONE:
                return
            session.why = f"ssh to {session.host} has ended: {why}"
            back_off.failed()
            await asyncio.sleep(back_off.left)

    async def _converse(self, session: _Session) -> str:
        """Follow what the script on the machine reports. Return ssh's last words when it has ended."""
        pipe = asyncio.subprocess.PIPE
        try:
            process = session.ssh = await asyncio.create_subprocess_exec(
                *self._command(session.host, _WATCH, session.id, self._join(session.id)),
                stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True,
            )  # fmt: skip
        except OSError as wrong:
            return f"ssh cannot be run: {wrong.strerror}."
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            async for line in process.stdout:
                word, _, rest = line.decode(errors="replace").strip().partition(" ")
                if word == "ready" and session.admitted:
                    self._end(session, "Its agent has ended.")
                    process.terminate()
                elif word == "ready":
                    session.state = ProvidedState.STARTING
                elif word == "up":
                    self._found(session, rest)
                elif word == "ended":
                    self._end(session, rest or "Its agent has ended.")
                if word != ".":
                    self._wake.set()
            return last_line(await process.stderr.read())
        finally:
            session.ssh = None
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
            await process.wait()

    def _found(self, session: _Session, host_id: str) -> None:
        """Take over an agent, which an earlier server may have started under another id."""
        if host_id != session.id:
            self._machines.pop(session.id, None)
            del self._sessions[session.id]
            session.id = host_id
            self._sessions[host_id] = session
        session.state, session.why, session.admitted = ProvidedState.UP, "", True

    def _end(self, session: _Session, why: str) -> None:
        session.state, session.why = ProvidedState.GONE, why
        self._wake.set()

    async def _end_agent(self, host: str, host_id: str) -> None:
        back_off = BackOff()
        while True:
            try:
                await call(self._command(host, _STOP, host_id), passing="SSH_*")
            except EngineTrouble as why:
                log.warning("provider %s: %s cannot be ended yet: %s", self.name, host_id, why)
                back_off.failed()
                await asyncio.sleep(back_off.left)
            else:
                return

    def _command(self, host: str, script: str, host_id: str, arguments: Sequence[str] = ()) -> list[str]:
        # The file has the name of the machine, because several of them may share a home folder.
        words = [script, "sh", self.settings.folder, self._place_of(host), host_id, *arguments]
        return ["ssh", *_OPTIONS, *self.settings.options, host, "sh -c " + " ".join(map(shlex.quote, words))]


def _tidy(host: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", host.lower()).strip("-")
