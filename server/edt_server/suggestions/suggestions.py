"""Ask the processes that suggest values: two with Optuna for all searches, and one for each search with a plug-in.

A process is started for the first question. It ends with the server, however the server ends, and is only a cache: one
that dies or is silent is started again with the same question. What it answers is checked here, because a plug-in is
code of a user, and runs where the jobs of users do (decisions 040, 042 and 048).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from edt_sdk.schemas.errors import EdtError, Unprocessable
from edt_sdk.schemas.search.spec import BLIND
from edt_sdk.schemas.wire.control import SAME, Isolation
from edt_server.searching import PastTrial
from edt_server.suggestions.questions import LENGTH, Answer, Ask, NoSuggestion, Plugin, Suggested, Suggestion
from edt_server.system.bubblewrap import Mounts, bounded
from edt_server.system.detached import command_of

log = logging.getLogger(__name__)
# Returns the entries of a search's history from a number up to the `upto` of its question.
History = Callable[[int], Sequence[PastTrial]]

# Seconds without an answer after which a process counts as hung, and how often a question is asked.
PATIENCE = 60.0
ATTEMPTS = 3
# Entries of histories that a process keeps, of ended searches too. 10,000 trials have some 20 MB. With more it is
# started again, and asked with the whole history of the search that asks.
MOST_KEPT = 200_000
# Bytes of an answer. A plug-in may send anything.
LARGEST_ANSWER = 64 << 20
_WORDS = 8192
# A sum has the same bits on every machine only with one thread, and a set of texts the same order with a hash seed.
_EXACT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
# The folders of an interpreter and of what it can import, without one that shows the home folder.
_PLACES = """
import os, sys
real = lambda path: os.path.join(os.path.realpath(path), "")
home = real(os.environ.get("HOME", "/dev/null"))
places = [sys.prefix, sys.base_prefix, os.path.dirname(sys.executable), os.path.realpath(sys.executable), *sys.path]
shown = [each for each in places if os.path.exists(each) and not home.startswith(real(each))]
print(*dict.fromkeys(map(os.path.abspath, shown)), sep="\\n")
"""
_SAME = Isolation()
_decoder: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


class Suggestions:
    """Where the searches of a server get values from. For the event loop.

    `environ` is what the processes see. Plug-ins run in the `isolation` of jobs, which hides the `private` folders.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        isolation: Isolation = _SAME,
        private: Sequence[Path] = (),
        *,
        patience: float = PATIENCE,
    ) -> None:
        self._isolation = isolation
        self._private = private
        self._patience = patience
        self._environ = {**environ, **_EXACT}
        optuna = [*command_of("edt_server.suggestions.suggester"), str(os.getpid())]
        self._samplers = Responder(optuna, self._environ, Path("/"), patience)
        # A suggestion of gp takes 40 s of a core at 2,000 trials, and its process has torch.
        self._gp = Responder(optuna, self._environ, Path("/"), 10 * patience)
        self._plugins: dict[str, Responder] = {}

    async def ask(self, ask: Ask, history: History, plugin: Plugin | None = None) -> Suggested:
        """Return the values of these trials, exact as `fitted` returns them.

        Args:
            ask: the question, without `history`.
            history: of the search. A process is told what is new to it.
            plugin: what `ask.algorithm` names, None for a sampler.

        Raises:
            Unprocessable: the same question will never have an answer.
            EdtError: no process has answered.
        """
        if plugin is None:
            samplers = self._gp if ask.algorithm == "gp" else self._samplers
            upto = 0 if ask.algorithm in BLIND else ask.upto
            said = await samplers.ask(msgspec.structs.replace(ask, upto=upto), history)
        else:
            if ask.search not in self._plugins:
                try:
                    command = await self._command(ask.algorithm, plugin)
                except OSError as wrong:
                    raise EdtError(f"The plug-in {ask.algorithm} cannot be started: {wrong}") from wrong
                host = Responder(command, self._environ, plugin.folder, self._patience)
                self._plugins.setdefault(ask.search, host)  # another question may have come first
            told = msgspec.structs.replace(ask, history=tuple(history(ask.since)))
            said = await self._plugins[ask.search].ask(told)
        return _checked(ask, said)

    async def forget(self, search: str) -> None:
        """End the process of a search that has ended, and whose questions are answered or cancelled."""
        if (host := self._plugins.pop(search, None)) is not None:
            await host.end()

    async def close(self) -> None:
        """End all processes. A question that still waits is to be cancelled before."""
        there = self._samplers, self._gp, *self._plugins.values()
        await asyncio.gather(*(each.end() for each in there))

    @property
    def pids(self) -> dict[str, int]:
        """The pids of the processes that run, by search. Those of samplers have the names "" and "gp"."""
        known = {"": self._samplers, "gp": self._gp, **self._plugins}
        return {search: each.process.pid for search, each in known.items() if each.process is not None}

    async def _command(self, name: str, plugin: Plugin) -> list[str]:
        isolation, account = self._isolation, plugin.account
        python = [plugin.interpreter, *command_of("edt_server.suggestions.plugin_host")[1:]]
        if isolation.kind == SAME:
            return [*python, str(os.getpid()), name, plugin.log_level]
        home = self._environ.get("HOME", "")
        mounts = Mounts(
            readable=(*await self._places(plugin.interpreter), *isolation.readable),
            empty=tuple(map(str, self._private)),
            fixed=(str(plugin.folder),),
            home="" if home in ("", "/") or account is not None else home,
        )
        # In the sandbox this process has no pid. The sandbox ends with it.
        return bounded(
            mounts,
            [*python, "0", name, plugin.log_level],
            str(plugin.folder),
            network=isolation.network,
            account=account,
        )

    async def _places(self, interpreter: str) -> list[str]:
        process = await asyncio.create_subprocess_exec(
            interpreter, "-P", "-c", _PLACES, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL, cwd="/", env=self._environ,
        )  # fmt: skip
        said, _ = await process.communicate()
        return said.decode().splitlines()


class Responder:
    """A process that answers one question after the other, started when there is one.

    Attributes:
        process: the running one, None where there is none.
    """

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], folder: Path, patience: float) -> None:
        self.process: asyncio.subprocess.Process | None = None
        self._command = command
        self._environ = environ
        self._folder = folder
        self._patience = patience
        self._lock = asyncio.Lock()
        self._listening: asyncio.Task[None] | None = None
        self._words = b""
        # How many entries of each search's history the process has.
        self._sent: dict[str, int] = {}

    async def ask(self, ask: Ask, history: History | None = None) -> Suggested:
        """Return the answer to a question, which goes with what is new in the history. Raises as `Suggestions.ask`."""
        async with self._lock:
            idle = self.process is not None and self.process.returncode is not None
            if idle or sum(self._sent.values()) > MOST_KEPT:
                await self._stop()
            for _ in range(ATTEMPTS):
                why = "has ended"
                try:
                    async with asyncio.timeout(self._patience):
                        return await self._answer(ask, history)
                except TimeoutError:
                    why = f"gave no answer in {self._patience:g} s"
                except (OSError, EOFError, msgspec.MsgspecError) as wrong:
                    log.info("no answer: %r", wrong)
                except asyncio.CancelledError:
                    # The answer would be taken for that to the next question.
                    await self._stop()
                    raise
                await self._stop()
                words = self._words.decode("utf-8", errors="replace").strip()
                log.warning("the process that suggests for %s %s\n%s", ask.algorithm, why, words)
        raise EdtError(
            f"The process that suggests values for {ask.algorithm} {why}, {ATTEMPTS} times with the same question. "
            f"Its last words: {words.rpartition(chr(10))[2] or 'none'}",
            hint="The server's log has the rest of its output. The search can be resumed.",
        )

    async def end(self) -> None:
        """End the process when it has answered."""
        async with self._lock:
            await self._stop()

    async def _answer(self, ask: Ask, history: History | None) -> Suggested:
        process = self.process = self.process or await self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        # Nothing is known to be there until it has answered.
        since = self._sent.pop(ask.search, 0)
        if history is not None:
            # What it has of later entries it has to forget.
            since = since if since <= ask.upto else 0
            ask = msgspec.structs.replace(ask, since=since, history=tuple(history(since)) if ask.upto else ())
        # Some MB of a whole history take a while to encode.
        encoded = await asyncio.to_thread(msgspec.msgpack.encode, ask)
        process.stdin.write(LENGTH.pack(len(encoded)) + encoded)
        await process.stdin.drain()
        (size,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
        if size > LARGEST_ANSWER:
            raise EOFError(f"an answer with {size:,} bytes")
        answer = _decoder.decode(await process.stdout.readexactly(size))
        if isinstance(answer, NoSuggestion):
            raise Unprocessable(answer.message)
        self._sent[ask.search] = ask.upto
        return answer

    async def _start(self) -> asyncio.subprocess.Process:
        self._words = b""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *self._command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=self._folder, env=self._environ,
            start_new_session=True,
        )  # fmt: skip
        self._listening = asyncio.create_task(self._listen(process), name="edt suggestions")
        return process

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while said := await process.stderr.read(_WORDS):
            self._words = (self._words + said)[-_WORDS:]

    async def _stop(self) -> None:
        process, listening = self.process, self._listening
        if process is None or listening is None:
            return
        self.process = self._listening = None
        self._sent.clear()
        # What a plug-in has started is in the same session.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        # A process of another session may hold its stderr open.
        await asyncio.wait([listening], timeout=1.0)
        listening.cancel()


def _checked(ask: Ask, said: Suggested) -> Suggested:
    """Return the answer with exact values. Unprocessable where it has others."""
    if tuple(each.number for each in said.suggestions) != ask.numbers[: len(said.suggestions)]:
        raise Unprocessable(f"{ask.algorithm} suggested other trials than those it was asked for.")
    found = []
    for each in said.suggestions:
        values = {}
        for name, parameter in ask.space.items():
            try:
                values[name] = parameter.fitted(each.values.get(name))
            except Unprocessable as why:
                message = f"{ask.algorithm} suggested for {name!r} what it cannot be: {why.message}"
                raise Unprocessable(message, hint=why.hint) from None
        found.append(Suggestion(each.number, values, each.sampler_state))
    return msgspec.structs.replace(said, suggestions=tuple(found))
