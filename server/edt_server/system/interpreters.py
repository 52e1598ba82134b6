"""Choose which Python a job runs in, and check that it can.

An interpreter is asked once for its version and whether it has `edt_sdk`. The answer is kept in a cache until its file
changes. No code of the job runs for this, and a program that a user names sees no more of the server than a job does.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.job import JobSpec

_QUESTION = """
import importlib.util, sys
print("%d.%d" % sys.version_info[:2], importlib.util.find_spec("edt_sdk") is not None)
"""
_LIMIT = 30.0


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python: `version` is "major.minor", `ready` whether it can import `edt_sdk`."""

    path: str
    version: str
    ready: bool


class Interpreters:
    """The interpreters asked so far, which see `environ`. `default` is for jobs without one that exists here."""

    def __init__(self, default: str, environ: Mapping[str, str]) -> None:
        self._default = default
        self._environ = environ
        self._known: dict[tuple[str, float], Interpreter] = {}

    async def choose(self, spec: JobSpec) -> Interpreter:
        """Return the interpreter that `spec` will run in. Unprocessable when the job cannot run there."""
        named = await asyncio.to_thread(_usable, spec.python)
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

    async def those(self, paths: Iterable[str]) -> list[Interpreter]:
        """Return the default and the interpreters of these paths that exist and answer, each once, in their order."""
        there = [path for path in paths if await asyncio.to_thread(_usable, path)]
        asked = [self._ask(path) for path in dict.fromkeys([self._default, *there])]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        wrong = [each for each in answers if isinstance(each, BaseException) and not isinstance(each, Unprocessable)]
        if wrong:
            raise wrong[0]
        return [each for each in answers if isinstance(each, Interpreter)]

    async def _ask(self, path: str) -> Interpreter:
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


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
