"""The algorithms of searches for hyper-parameters: the built-in ones, and those that users install."""

from __future__ import annotations

import asyncio
from typing import Any

from edt_jupyter.http.receiving import ReceivingHandler
from edt_jupyter.wmla.console import ConsoleHandler
from edt_jupyter.wmla.parts import Parts, form_data
from edt_sdk.schemas.errors import InvalidRequest, NotFound
from edt_server.catalogue.places import content_below_data_fs
from edt_server.wmla.console import required, text
from edt_server.wmla.hypersearch import built_in, installed

_HREF = "/platform/rest/deeplearning/v1/hypersearch/algorithm"


class _AlgorithmHandler(ConsoleHandler):
    async def own(self) -> list[dict[str, Any]]:
        """Return what the user has installed."""
        shelf = self.service.searches.plugins.shelf
        return [
            installed(
                name=row.name,
                folder=str(shelf.places(row).data),
                owner=row.owner,
                created=row.created,
                log_level=row.data["log_level"],
            )
            for row in await shelf.rows(self.user)
        ]


class _AlgorithmsHandler(_AlgorithmHandler, path="/hypersearch/algorithm", resource="edt:searches"):
    async def get(self) -> None:
        """List the algorithms, those of one type where the query names it."""
        wanted = self.get_query_argument("type", "")
        found = [*built_in(), *await self.own()]
        self.reply([each for each in found if wanted in ("", each["type"])])


class _InstallHandler(
    ReceivingHandler[Parts], ConsoleHandler, path="/hypersearch/algorithm/install", resource="edt:searches"
):
    open_sink = Parts

    async def received(self, sink: Parts) -> None:
        """Install an algorithm: an archive with its optimizer.py, or its folder in the server's data folder."""
        parts, fields = await asyncio.to_thread(sink.finish)
        form = form_data(fields)
        name = required(form, "name")
        if _built_in(name) is not None:
            raise InvalidRequest(f"{name} is built in.", hint="Choose another name.", field="name")
        if path := text(form, "path"):
            # With a path the notebook sends the definition as a file too, which is no archive.
            source = await asyncio.to_thread(content_below_data_fs, self.service.settings, path)
        elif len(parts) == 1:
            source = parts[0].path
        else:
            hint = "Send a tar with optimizer.py at its top, or name a folder in the server's data folder as path."
            raise InvalidRequest(f"The request brings {len(parts)} files.", hint=hint, field="file")
        plugins, level = self.service.searches.plugins, text(form, "logLevel")
        row = await plugins.install(self.user, name, source, log_level=level or "INFO")
        self.reply({"uid": row.name, "href": f"{_HREF}/{row.name}"})


class _OneAlgorithmHandler(_AlgorithmHandler, path="/hypersearch/algorithm/{algorithm}", resource="edt:searches"):
    async def get(self, name: str) -> None:
        """Return the algorithm."""
        found = _built_in(name) or next((each for each in await self.own() if each["name"] == name), None)
        if found is None:
            raise NotFound(f"There is no algorithm {name}.", hint="GET /hypersearch/algorithm lists those there are.")
        self.reply(found)

    async def delete(self, name: str) -> None:
        """Remove an installed algorithm."""
        if _built_in(name) is not None:
            raise InvalidRequest(f"{name} is built in, and stays.")
        await self.service.searches.plugins.delete(self.user, name)
        self.done(f"Algorithm {name} is deleted.")


def _built_in(name: str) -> dict[str, Any] | None:
    return next((each for each in built_in() if each["name"].lower() == name.lower()), None)
