"""Show the machine: its slots and queues, which job held them when, and the Pythons that a job may run in.

`?start=` and `?end=` of a timeline are seconds since the epoch, exact to the event. `?points=` limits its rows.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jupyter_core.utils import ensure_async

from edt_jupyter.http.base import EdtHandler
from edt_server.history import MOST_POINTS

# Options of a Python, all in one word. `ipykernel install` itself writes one of them.
_OPTION = re.compile(r"-[BEIOPRSbdqsuv]+|-[XW].+")
_KERNELS = (["ipykernel_launcher"], ["ipykernel"])
_OWN = ("python", "python3", f"python{sys.version_info.major}.{sys.version_info.minor}")


class _ClusterHandler(EdtHandler, path="/cluster", resource="edt:cluster"):
    async def get(self) -> None:
        """Return the slots with the job in each, the groups with their shares, and the jobs that have not ended."""
        self.reply(await self.service.cluster(self.user))


class _QuotaHandler(EdtHandler, path="/quota", resource="edt:cluster"):
    async def get(self) -> None:
        """Return how much of each quota the user, and all users together, have used."""
        self.reply({"quotas": await self.service.quotas.uses(self.user)})


class _Windowed(EdtHandler):
    def window(self) -> dict[str, Any]:
        """Return the window of the query. InvalidRequest for text that is no time or no number."""
        points = self.number("points", 0, low=2, high=MOST_POINTS)
        return {"start": self.real("start"), "end": self.real("end"), "points": points or None}


class _TimelineHandler(_Windowed, path="/timeline", resource="edt:cluster"):
    async def get(self) -> None:
        """Return which jobs held how many slots when, and why."""
        self.reply(await self.service.timeline(self.user, **self.window()))


class _JobTimelineHandler(_Windowed, path="/jobs/{id}/timeline", resource="edt:jobs"):
    async def get(self, job: str) -> None:
        """Return the same for one job's life."""
        self.reply(await self.service.timeline(self.user, job, **self.window()))


class _InterpretersHandler(EdtHandler, path="/interpreters", resource="edt:jobs"):
    async def get(self) -> None:
        """Return each interpreter once, with the kernels that run in it, the default for jobs first."""
        kernels = kernels_of(await ensure_async(self.kernel_spec_manager.get_all_specs()))
        found = await self.service.interpreters(kernels)
        answer = [
            {
                "python": each.path,
                "version": each.version,
                "ready": each.ready,
                "kernels": [{"name": name, "display_name": shown} for name, shown in kernels.get(each.path, ())],
            }
            for each in found
        ]
        self.reply({"interpreters": answer})


def kernels_of(specs: Mapping[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """Return for each interpreter the (name, display name) of its Python kernels, sorted by name. Pure."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name, shown, argv in sorted(_python_kernels(specs.items())):
        # As Jupyter's kernel manager does: a bare `python` in a kernel's specification is the server's own.
        path = sys.executable if argv[0] in _OWN else argv[0]
        if os.path.isabs(path):
            found.setdefault(path, []).append((name, shown))
    return found


def _python_kernels(specs: Iterable[tuple[str, Any]]) -> Iterable[tuple[str, str, list[str]]]:
    for name, told in specs:
        spec = told.get("spec", {})
        argv = spec.get("argv") or []
        if str(spec.get("language", "")).lower() == "python" and _runs_ipykernel([str(word) for word in argv]):
            yield name, str(spec.get("display_name") or name), [str(word) for word in argv]


def _runs_ipykernel(argv: Sequence[str]) -> bool:
    """Return whether the first word is a Python that, after nothing but options of its own, runs ipykernel.

    A program that another program starts, in a container for example, is no interpreter of this machine.
    """
    program = next((at for at, word in enumerate(argv) if at and not _OPTION.fullmatch(word)), 0)
    return bool(program) and argv[program] == "-m" and argv[program + 1 : program + 2] in _KERNELS
