"""Choose which Python a job runs in, and check that it can.

An interpreter is asked once for its version and whether it has `edt_sdk`. The answer is kept in a cache until its file
changes. No code of the job runs for this, and a program that a user names sees no more of the server than a job does.

The server runs the program that it asks. So where it serves several people they choose among interpreters that the
administrator has installed, and no other program is run.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.job import JobSpec

_QUESTION = """
import importlib.util, sys
print("%d.%d" % sys.version_info[:2], importlib.util.find_spec("edt_sdk") is not None)
"""
_LIMIT = 30.0
_NAMED = 6
_PYTHON = re.compile(r"python[\d.]*")

Listed = Callable[[], Awaitable[Iterable[str]]]


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python: `version` is "major.minor", `ready` whether it can import `edt_sdk`."""

    path: str
    version: str
    ready: bool


class Interpreters:
    """The interpreters asked so far, which see `environ`. `default` is for jobs without one that exists here.

    Users choose among `default` and what `listed` returns: interpreters, and folders of environments. Without `listed`
    they may name any program. With `ours` only an interpreter of this server's account, or of root, is run.
    """

    def __init__(
        self, default: str, environ: Mapping[str, str], listed: Listed | None = None, *, ours: bool = False
    ) -> None:
        self._default = default
        self._environ = environ
        self._listed = listed
        self._ours = ours
        self._known: dict[tuple[str, float], Interpreter] = {}

    async def choose(self, spec: JobSpec) -> Interpreter:
        """Return the interpreter that `spec` will run in. Unprocessable when the job cannot run there."""
        named = await asyncio.to_thread(_usable, spec.python)
        await self._check_listed(named)
        chosen = await self._ask(named or self._default)
        if spec.python_version and _minor(spec.python_version) != chosen.version:
            raise Unprocessable(
                f"The job was written for Python {spec.python_version}, but it would run in {chosen.path}, "
                f"which is Python {chosen.version}.",
                hint=f"Submit from a kernel with Python {chosen.version}, or install jupyter-edt in a Python "
                f"{_minor(spec.python_version)} on the server and set c.EdtApp.python to it.",
                field="python_version",
            )
        if not chosen.ready:
            raise Unprocessable(
                f"{chosen.path} has no jupyter-edt, so no job can run in it.",
                hint=f"Install it there: {chosen.path} -m pip install jupyter-edt",
                field="python",
            )
        return chosen

    async def _check_listed(self, named: str | None) -> None:
        """Raise Unprocessable for an interpreter that this server does not offer."""
        if named is None or named == self._default or self._listed is None:
            return
        listed = list(await self._listed())
        if not await asyncio.to_thread(lambda: any(_belongs(named, each) for each in listed)):
            there = list(dict.fromkeys([self._default, *listed]))
            more = f" and {len(there) - _NAMED} more" if len(there) > _NAMED else ""
            raise Unprocessable(
                f"Jobs of this server do not run in {named}. They may run in {', '.join(there[:_NAMED])}{more}.",
                hint="Choose one of these (`edt interpreters` lists them), or ask the administrator of the server to "
                "add it to c.EdtApp.interpreters.",
                field="python",
            )

    async def those(self, paths: Iterable[str]) -> list[Interpreter]:
        """Return the default, these and the listed interpreters that exist and answer, each once, in their order."""
        listed = [] if self._listed is None else list(await self._listed())
        named = [*paths, *await asyncio.to_thread(lambda: [path for each in listed for path in _pythons(each)])]
        there = [path for path in named if await asyncio.to_thread(_usable, path)]
        asked = [self._ask(path) for path in dict.fromkeys([self._default, *there])]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        wrong = [each for each in answers if isinstance(each, BaseException) and not isinstance(each, Unprocessable)]
        if wrong:
            raise wrong[0]
        return [each for each in answers if isinstance(each, Interpreter)]

    async def _ask(self, path: str) -> Interpreter:
        if self._ours and (owner := await asyncio.to_thread(_stranger, path)) is not None:
            raise Unprocessable(
                f"{path} belongs to the account {owner}, and this server, which is root, runs no program of others.",
                hint="Choose another interpreter, or ask the administrator for one that root has installed.",
                field="python",
            )
        if path == sys.executable:
            return Interpreter(path, f"{sys.version_info.major}.{sys.version_info.minor}", True)
        try:
            # The file's time is part of the cache's key, so that a replaced interpreter is asked again.
            key = path, await asyncio.to_thread(os.path.getmtime, path)
            if key not in self._known:
                self._known[key] = await _question(path, self._environ)
        except (OSError, TimeoutError, ValueError) as error:
            raise Unprocessable(
                f"The interpreter {path} does not work: {str(error) or 'it does not answer'}.",
                hint="Check c.EdtApp.python, or the kernel the job was submitted from.",
                field="python",
            ) from None
        return self._known[key]


async def _question(path: str, environ: Mapping[str, str]) -> Interpreter:
    process = await asyncio.create_subprocess_exec(
        path, "-c", _QUESTION, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL, cwd="/", env=environ,
    )  # fmt: skip
    try:
        async with asyncio.timeout(_LIMIT):
            answer, _ = await process.communicate()
    # Also after a cancellation: a child without `wait` would stay as a zombie.
    except BaseException:
        process.kill()
        await process.wait()
        raise
    words = answer.decode("ascii", "replace").split()
    if process.returncode != 0 or len(words) != 2:
        raise ValueError(f"it ended with code {process.returncode}")
    return Interpreter(path, words[0], words[1] == "True")


def _usable(path: str | None) -> str | None:
    """Return `path` when it is a program on this host: the submitter's kernel may run elsewhere."""
    return path if path and os.path.isabs(path) and Path(path).is_file() and os.access(path, os.X_OK) else None


def _stranger(path: str) -> int | None:
    """Return the uid that a program, or the folder of one of its names, belongs to, if it is not this one's or root."""
    places = [each for name in (path, os.path.realpath(path)) for each in (name, os.path.dirname(name))]
    there = (os.stat(each).st_uid for each in places if os.path.exists(each))
    return next((uid for uid in there if uid not in (0, os.geteuid())), None)


def _belongs(path: str, listed: str) -> bool:
    """Return whether `path` is the listed interpreter under one of its names, or in the listed folder."""
    place = _placed(path)
    if os.path.isdir(listed):
        return place.is_relative_to(os.path.realpath(listed))
    other = _placed(listed)
    same = place.name == other.name or (_PYTHON.fullmatch(place.name) and _PYTHON.fullmatch(other.name))
    return bool(same) and place.parent == other.parent


def _placed(path: str) -> Path:
    """Return the path with the real path of its folder."""
    # The last part stays: in a virtual environment it is a link to a Python with which any user can make another one.
    folder, name = os.path.split(path)
    return Path(os.path.realpath(folder), name)


def _pythons(listed: str) -> list[str]:
    """Return the interpreter itself, or those of the environments in the folder. Blocks."""
    if not os.path.isdir(listed):
        return [listed]
    found = [Path(listed, "bin", "python"), *sorted(Path(listed).glob("*/bin/python"))]
    return [str(each) for each in found]


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
