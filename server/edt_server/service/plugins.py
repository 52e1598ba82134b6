"""The algorithms that users install for their searches: a folder each, with the `optimizer.py` of a WMLA plug-in."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edt_sdk.schemas.errors import Conflict, Unprocessable
from edt_sdk.schemas.search.spec import misspells
from edt_sdk.schemas.search.views import SearchState
from edt_server.catalogue.intake import pack_code
from edt_server.catalogue.places import Places
from edt_server.catalogue.records import ALGORITHM
from edt_server.catalogue.shelf import Shelf
from edt_server.files import unpack
from edt_server.store import CatalogueRow
from edt_server.suggestions import Ask, Plugin, Suggestions

if TYPE_CHECKING:
    from edt_server.service.service import Service

_NAME = re.compile(r"[A-Za-z_][\w.-]{0,99}\Z")
_MAIN = "optimizer.py"


class AlgorithmRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An installed algorithm in the store."""

    log_level: str = "INFO"


class Plugins:
    """The installed algorithms of a server. A user sees, and searches by, the own ones.

    Attributes:
        shelf: their entries in the catalogue.
    """

    def __init__(self, service: Service, suggestions: Suggestions) -> None:
        self._service = service
        self._suggestions = suggestions
        self.shelf = Shelf(service, ALGORITHM)

    async def plugin(self, user: str, name: str) -> Plugin:
        """Return what answers the questions of a search by this algorithm. NotFound."""
        row = await self.shelf.row(user, name)
        return await self._plugin(self.shelf.places(row), msgspec.convert(row.data, AlgorithmRecord))

    async def install(self, user: str, name: str, source: Path, *, log_level: str = "INFO") -> CatalogueRow:
        """Install an algorithm from an archive or a folder, which is left where it is.

        Raises:
            Unprocessable: its name is none, or it cannot be imported; the message has the last line of the traceback.
            PackageError: the archive or the folder is refused, or has no optimizer.py.
            Conflict: the user has one of that name.
        """
        if not _NAME.match(name) or misspells(name):
            hint = "It has 1 to 100 letters, digits, dots, dashes and underscores, and is not near a built-in one."
            raise Unprocessable(f"An algorithm cannot be called {name!r:.110}.", hint=hint, field="name")
        if log_level.upper() not in logging.getLevelNamesMapping():
            raise Unprocessable(f"{log_level!r:.60} is no level of a log.", hint="Such as INFO.", field="logLevel")
        settings, record = self._service.settings, AlgorithmRecord(log_level=log_level.upper())
        limits = {"max_files": settings.max_package_files, "max_bytes": settings.max_package_bytes}

        def fill(places: Places) -> AlgorithmRecord:
            package = source
            if source.is_dir():
                package = places.code
                pack_code(source, "", _MAIN, package, settings)
            unpack(package, places.data, main=_MAIN, code_dir="", **limits)
            places.code.unlink(missing_ok=True)
            return record

        async def check(places: Places) -> None:
            # A question without trials: its process imports the algorithm, with the rights that a search gives it.
            question = Ask(search=places.id, algorithm=name, seed=0, space={}, numbers=())
            try:
                await self._suggestions.ask(question, lambda since: (), await self._plugin(places, record))
            finally:
                await self._suggestions.forget(places.id)

        return await self.shelf.add(user, name, fill, check)

    async def delete(self, user: str, name: str) -> None:
        """Remove an algorithm. Conflict while a search needs it."""
        row = await self.shelf.row(user, name)
        living = [state for state in SearchState if not state.final]
        rows = await asyncio.to_thread(lambda: self._service.store.searches.searches(owner=user, states=living))
        for search in rows:
            if search.spec.algorithm == name:
                raise Conflict(f"The search {search.name} needs {name}.", hint="Stop it first.", search=search.id)
        await self.shelf.remove(row)

    async def _plugin(self, places: Places, record: AlgorithmRecord) -> Plugin:
        settings = self._service.settings
        isolation = await asyncio.to_thread(settings.isolation_of, places.owner)
        return Plugin(places.data, settings.interpreter, record.log_level, isolation.account)
