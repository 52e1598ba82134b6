"""Provide machines of a Ray cluster: an actor on each node that holds all of it, and below the actor the agent.

Ray is never imported here, because its threads and its memory do not belong into the server. A child program,
`ray_child.py`, is the driver. It gets orders as JSON lines, so a token is in no process list. The actors are detached:
they outlive the child and the server. Ray takes long to notice that a node is lost, so its word never frees a slot.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edt_server.providers.level import EngineTrouble, LevelProvider, last_line
from edt_server.providers.provider import NOTICE, Admission, Provided, ProvidedState, ProviderSettings
from edt_server.system.detached import inherited

# Seconds for an answer of the driver. To connect takes some of them, on a machine with much else to do.
_PATIENCE = 120.0
_WORDS = 8192


class RaySettings(ProviderSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of the provider ray.

    Attributes:
        address: of the cluster, as `ray.init` takes it. "auto" is the one that the server's machine belongs to.
        cpus, gpus: what a node has to have. The actor holds all CPUs and GPUs of its node, so that Ray gives them to
            no other program. With 0 CPUs every node with one will do.
        driver: a Python with the cluster's version of Ray, "" for the server's own.
    """

    address: str = "auto"
    cpus: float = 0
    gpus: float = 0
    driver: str = ""


class RayProvider(LevelProvider[RaySettings]):
    """One detached actor for each machine."""

    poll = 2.0

    def __init__(self, name: str, settings: RaySettings, admission: Admission, mark: str) -> None:
        super().__init__(name, settings, admission, mark)
        self._lock = asyncio.Lock()
        self._child: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None
        self._words = b""

    async def _look(self) -> Mapping[str, Provided]:
        found = await self._order("look")
        return {
            host_id: Provided(host_id, ProvidedState(each["state"]), each["why"], each["until"])
            for host_id, each in found.items()
        }

    async def _start(self, host_id: str) -> None:
        await self._order("start", id=host_id)

    async def _admit(self, host_id: str, token: str) -> None:
        await self._order("admit", id=host_id, command=self._join(host_id), token=token)

    async def _stop(self, host_id: str) -> None:
        await self._order("stop", id=host_id)

    async def _disconnect(self) -> None:
        async with self._lock:
            child, listening, self._child = self._child, self._listening, None
        if child is None or listening is None:
            return
        assert child.stdin is not None
        child.stdin.close()  # it leaves the cluster in order
        try:
            async with asyncio.timeout(_PATIENCE):
                await child.wait()
        except TimeoutError:
            child.kill()
            await child.wait()
        listening.cancel()

    async def _order(self, name: str, **more: Any) -> Any:
        """Return the driver's answer. A driver that has ended is started again: it knows nothing by itself."""
        # Shielded: the answer to a cancelled order would be taken for that to the next one.
        return await asyncio.shield(asyncio.create_task(self._ordered({"do": name, **more})))

    async def _ordered(self, order: dict[str, Any]) -> Any:
        async with self._lock:
            return await self._answer(order)

    async def _answer(self, order: dict[str, Any]) -> Any:
        try:
            async with asyncio.timeout(_PATIENCE):
                child = self._child = self._child or await self._driver()
                assert child.stdin is not None
                assert child.stdout is not None
                child.stdin.write(json.dumps(order).encode() + b"\n")
                await child.stdin.drain()
                answer = json.loads(await child.stdout.readline())
        except (OSError, ValueError, TimeoutError) as wrong:
            await self._kill()
            why = "gave no answer" if isinstance(wrong, TimeoutError) else f"has ended: {last_line(self._words)}"
            raise EngineTrouble(f"The driver of Ray {why}") from None
        if "error" in answer:
            raise EngineTrouble(f"Ray: {answer['error']}")
        return answer["is"]

    async def _driver(self) -> asyncio.subprocess.Process:
        settings, pipe = self.settings, asyncio.subprocess.PIPE
        program = str(Path(__file__).with_name("ray_child.py"))
        how = json.dumps({
            "address": settings.address, "mark": self.mark, "cpus": settings.cpus, "gpus": settings.gpus,
            "grace": NOTICE,
        })  # fmt: skip
        # -P: `import ray` has to find Ray and not this module. Ray passes the working directory on to its workers.
        child = await asyncio.create_subprocess_exec(
            settings.driver or sys.executable, "-P", program, how, stdin=pipe, stdout=pipe, stderr=pipe, cwd="/",
            start_new_session=True, env=inherited(os.environ, ["RAY_*"]), limit=1 << 24,
        )  # fmt: skip
        self._words = b""
        self._listening = asyncio.create_task(self._listen(child), name="edt ray")
        return child

    async def _listen(self, child: asyncio.subprocess.Process) -> None:
        assert child.stderr is not None
        while words := await child.stderr.read(_WORDS):
            self._words = (self._words + words)[-_WORDS:]

    async def _kill(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()
