"""What the tests of providers share: a program that plays the agent, and an engine as a test sees it.

The program notes its arguments, its environment and its token in a file, and waits for SIGTERM. So a test sees what was
started, by whatever engine.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path

from edt_server.providers import ProvidedState, Wish, make_provider
from tests.waiting import until, until_async

_AGENT = """\
#!{python} -SE
import json, os, signal, sys
folder = {folder!r}
signals = {{signal.SIGTERM, signal.SIGUSR1}}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
arguments = sys.argv[1:]
value = lambda name: arguments[arguments.index(name) + 1]
own = value("--provider-id")
file = value("--token-file")
token = (sys.stdin if file == "-" else open(file)).readline()
if os.path.exists(folder + "/fail"):
    sys.exit("this machine has no disk")
def note(kind, what):
    path = f"{{folder}}/{{own}}.{{os.getpid()}}.{{kind}}"
    with open(path + ".new", "w") as file:
        json.dump(what, file)
    os.rename(path + ".new", path)
with open("/proc/self/cmdline") as file:
    line = file.read()
note("started", dict(id=own, pid=os.getpid(), arguments=arguments, token=token, line=line, environ=dict(os.environ)))
while (got := signal.sigwait(signals)) is signal.SIGUSR1:
    note("asked", [each.name for each in signal.sigpending()])
note("ended", got.name)
"""


@dataclass
class Tokens:
    """Gives a token to each machine, and remembers which."""

    python: str
    given: dict[str, str] = field(default_factory=dict)

    async def token(self, provider_id: str) -> str:
        self.given[provider_id] = f"edt1:{secrets.token_hex(16)}"
        return self.given[provider_id]


class Engine:
    """An engine that can run agents of a test. Subclasses start the real one."""

    kind = ""
    # Whether a test can take the engine away, and whether it can let it give a notice.
    breakable = noticing = True
    _marks = itertools.count()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes = folder / "notes"
        self.notes.mkdir(parents=True)
        agent = folder / "agent"
        agent.write_text(_AGENT.format(python=sys.executable, folder=str(self.notes)))
        agent.chmod(0o755)
        self.tokens = Tokens(str(agent))
        self.mark = ""

    def settings(self):
        """Return the provider's settings for this engine."""
        raise NotImplementedError

    def renew(self):
        """Begin another test: it has machines of its own."""
        self.mark = f"t{next(self._marks)}"
        (self.notes / "fail").unlink(missing_ok=True)

    def provider(self, mark="", **more):
        """Return a provider, which looks often."""
        settings = {"kind": self.kind, "poll": 0.3, "max_hosts": 2} | self.settings() | more
        return make_provider(self.kind, settings, self.tokens, mark=mark or self.mark)

    def agents(self, mark=""):
        """Return what the running agents of this test have noted, by id."""
        notes = map(json.loads, (path.read_text() for path in self.notes.glob(f"{mark or self.mark}-*.started")))
        return {note["id"]: note for note in notes if _runs(note["pid"])}

    def ended(self, host_id):
        """Return the signal that has ended an agent, None while there was none."""
        paths = list(self.notes.glob(f"{host_id}.*.ended"))
        return json.loads(paths[0].read_text()) if paths else None

    async def undisturbed(self, host_id):
        """Return whether an agent got no SIGTERM so far. It answers a signal of ours after those that came before."""
        os.kill(self.agents()[host_id]["pid"], signal.SIGUSR1)
        answers = lambda: [*self.notes.glob(f"{host_id}.*.asked"), *self.notes.glob(f"{host_id}.*.ended")]  # noqa: E731
        await until_async(answers, "the agent's answer")
        return [json.loads(path.read_text()) for path in answers()] == [[]]

    def fail(self, *, fails):
        """Let agents end at once from now on."""
        (self.notes / "fail").touch() if fails else (self.notes / "fail").unlink(missing_ok=True)

    def break_(self):
        """Take the engine away."""

    def heal(self):
        """Bring it back."""

    async def notice(self, host_id):
        """Let the engine announce that it takes a machine away."""

    def clean(self):
        """End what a test has left."""
        for note in map(json.loads, (path.read_text() for path in self.notes.glob("*.started"))):
            if _runs(note["pid"]):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(note["pid"], signal.SIGKILL)
                until(lambda pid=note["pid"]: not _runs(pid), "the agent to be gone")

    def close(self):
        """End the engine."""


async def states(provider):
    """Return how the machines stand, without those that are gone."""
    return {each.id: each.state for each in await provider.hosts() if each.state is not ProvidedState.GONE}


async def up(provider, engine, number, mark=""):
    """Wish for machines, and return their ids when all are up and have an agent."""
    await provider.want(Wish(hosts=number))
    return await all_up(provider, engine, number, mark)


async def all_up(provider, engine, number, mark=""):
    """Return the ids of machines when this many are up, each with an agent, and there are no others."""

    async def there():
        found = await states(provider)
        good = len(found) == number and set(found.values()) <= {ProvidedState.UP}
        return set(found) if good and set(engine.agents(mark)) == set(found) else None

    if number == 0:
        await until_async(lambda: not engine.agents(mark), "all agents to end")
        return set()
    return await until_async(there, f"{number} machines to be up")


async def reported(provider, host_id):
    """Return a machine as the provider reports it, None where it does not."""
    return next((each for each in await provider.hosts() if each.id == host_id), None)


async def gone(provider, host_id):
    """Return a machine when it is gone."""

    async def ended():
        found = await reported(provider, host_id)
        return found if found is not None and found.state is ProvidedState.GONE else None

    return await until_async(ended, f"{host_id} to be gone")


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
