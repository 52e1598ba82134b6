"""The algorithms that users install for their searches: a folder each, with the `optimizer.py` of a WMLA plug-in."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from edt_sdk.schemas.errors import Conflict, NotFound, Unprocessable
from edt_sdk.schemas.fields import near
from edt_sdk.schemas.search.spec import ALGORITHMS
from edt_sdk.schemas.search.views import SearchState
from edt_server.files import new_id, unpack
from edt_server.store.search_rows import AlgorithmRow
from edt_server.suggestions import Ask, Plugin, Suggestions
from edt_server.system.private_files import make_private_dir

if TYPE_CHECKING:
    from edt_server.service.service import Service

_NAME = re.compile(r"[A-Za-z_][\w.-]{0,99}\Z")
_MAIN = "optimizer.py"


class Plugins:
    """The installed algorithms of a server. A user sees, and searches by, the own ones."""

    def __init__(self, service: Service, suggestions: Suggestions) -> None:
        self._service = service
        self._suggestions = suggestions

    async def installed(self, user: str) -> list[AlgorithmRow]:
        """Return the user's algorithms, by name."""
        rows = await asyncio.to_thread(self._service.store.searches.algorithms)
        return [row for row in rows if row.owner == user]

    async def find(self, user: str, name: str) -> AlgorithmRow:
        """Return the user's algorithm with this name. NotFound."""
        for row in await self.installed(user):
            if row.name == name:
                return row
        raise NotFound(f"There is no algorithm {name!r}.", hint="The name of an installed one is exact.")

    async def plugin(self, user: str, name: str) -> Plugin:
        """Return what answers the questions of a search by this algorithm. NotFound."""
        return await self._plugin(await self.find(user, name))

    async def install(self, user: str, name: str, package: Path, *, log_level: str = "INFO") -> AlgorithmRow:
        """Install an algorithm from an archive (a file, left where it is).

        Raises:
            Unprocessable: its name is none, or it cannot be imported; the message has the last line of the traceback.
            PackageError: the archive is refused, or has no optimizer.py.
            Conflict: there is one of that name, perhaps of another user.
        """
        if not _NAME.match(name) or near(name, ALGORITHMS) is not None:
            hint = "It has 1 to 100 letters, digits, dots, dashes and underscores, and is not near a built-in one."
            raise Unprocessable(f"An algorithm cannot be called {name!r:.110}.", hint=hint, field="name")
        if log_level.upper() not in logging.getLevelNamesMapping():
            raise Unprocessable(f"{log_level!r:.60} is no level of a log.", hint="Such as INFO.", field="logLevel")
        settings = self._service.settings
        folder = settings.data_dir / "algorithms" / new_id(name)
        limits = {"max_files": settings.max_package_files, "max_bytes": settings.max_package_bytes}
        row = AlgorithmRow(name, user, str(folder), "", log_level.upper(), self._service.now())
        make_private_dir(folder.parent)
        await asyncio.to_thread(lambda: unpack(package, folder, main=_MAIN, code_dir="", **limits))
        try:
            # A question without trials: its process imports the algorithm, with the rights that a search gives it.
            question = Ask(search=folder.name, algorithm=name, seed=0, space={}, numbers=())
            await self._suggestions.ask(question, lambda since: (), await self._plugin(row))
            await self._service.change(lambda change: change.tx.searches.add_algorithm(row))
        except BaseException:
            await asyncio.to_thread(shutil.rmtree, folder)
            raise
        finally:
            await self._suggestions.forget(folder.name)
        return row

    async def delete(self, user: str, name: str) -> None:
        """Remove an algorithm. Conflict while a search needs it."""
        row = await self.find(user, name)
        living = [state for state in SearchState if not state.final]
        rows = await asyncio.to_thread(lambda: self._service.store.searches.searches(owner=user, states=living))
        for search in rows:
            if search.spec.algorithm == name:
                raise Conflict(f"The search {search.name} needs {name}.", hint="Stop it first.", search=search.id)
        await self._service.change(lambda change: change.tx.searches.delete_algorithm(name))
        await asyncio.to_thread(shutil.rmtree, row.folder, ignore_errors=True)

    async def _plugin(self, row: AlgorithmRow) -> Plugin:
        settings = self._service.settings
        isolation = await asyncio.to_thread(settings.isolation_of, row.owner)
        return Plugin(Path(row.folder), row.python or settings.interpreter, row.log_level, isolation.account)
