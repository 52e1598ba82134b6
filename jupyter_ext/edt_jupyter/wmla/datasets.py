"""The console's data sets: list, add, show, delete, and a page of rows or pictures."""

from __future__ import annotations

import asyncio
from pathlib import Path

from edt_jupyter.wmla.console import ConsoleHandler
from edt_sdk.schemas.errors import Conflict, Unprocessable
from edt_server.catalogue import places
from edt_server.catalogue.records import REFERENCE
from edt_server.wmla.console import data_pages, dataset_object, new_dataset


class _WmlaDatasetsHandler(ConsoleHandler, path="/datasets", resource="edt:catalogue"):
    async def get(self) -> None:
        """Return the user's data sets."""
        found = await self.service.catalogue.datasets.list(self.user)
        self.reply([dataset_object(each, self.first_group) for each in found])

    async def post(self) -> None:
        """Register folders of the data folder, which are used in place."""
        body = self.body
        # Checked and not kept: WMLA processes a data set in its group, and here the folders are used in place.
        self.group(body.get("sigid"))
        new, remarks = new_dataset(body)
        made = await self.service.catalogue.datasets.add(self.user, new)
        self.done(f"Data set {made.name} is created.", remarks, name=made.name)


class _WmlaDatasetHandler(ConsoleHandler, path="/datasets/{name}", resource="edt:catalogue"):
    async def get(self, name: str) -> None:
        """Return the data set."""
        found = await self.service.catalogue.datasets.get(self.user, name)
        self.reply(dataset_object(found.dataset, self.first_group))

    async def delete(self, name: str) -> None:
        """Remove the data set. Its folders stay."""
        await self.service.catalogue.datasets.delete(self.user, name)
        self.done(f"Data set {name} is deleted.")


class _DatasetStopHandler(ConsoleHandler, path="/datasets/{name}/stop", resource="edt:catalogue"):
    async def put(self, name: str) -> None:
        """Refuse to stop: a data set is complete as soon as it is registered."""
        await self.service.catalogue.datasets.get(self.user, name)
        raise Conflict(f"Data set {name} is created already.", hint="There is nothing to stop.")


class _PageHandler(ConsoleHandler):
    async def page(self, name: str) -> tuple[Path, int, int]:
        """Return the folder of the requested part, with the start and length of the page."""
        found = (await self.service.catalogue.datasets.get(self.user, name)).dataset
        if found.trouble:
            raise Unprocessable(found.trouble, field="name")
        if found.mode == REFERENCE:
            places.content_below_data_fs(self.service.settings, found.path)
        folder = data_pages.part_of(found, self.get_query_argument("type", "Train"))
        return (
            folder,
            self.number("start", 0, high=data_pages.FARTHEST),
            self.number("length", 20, low=1, high=data_pages.MOST),
        )


class _DatasetRowsHandler(_PageHandler, path="/datasets/{name}/csvs", resource="edt:catalogue"):
    async def get(self, name: str) -> None:
        """Return rows of the first CSV file."""
        self.reply(await asyncio.to_thread(data_pages.rows, *await self.page(name)))


class _DatasetPicturesHandler(_PageHandler, path="/datasets/{name}/objectimages", resource="edt:catalogue"):
    async def get(self, name: str) -> None:
        """Return pictures with their labels."""
        self.reply(await asyncio.to_thread(data_pages.pictures, *await self.page(name)))
