"""Uploaded files of weights, and the weights that a name refers to.

An uploaded file is stored like a model, and the server names it. A name of weights refers to an uploaded file, to a
training, or to a place in the server's data folder.
"""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path

import msgspec

from edt_sdk.schemas.errors import EdtError, NotFound, Unprocessable
from edt_server.catalogue.places import Places, content_below_data_fs
from edt_server.catalogue.records import WEIGHTS
from edt_server.catalogue.shelf import JobService, Shelf
from edt_server.files import newest_weights, weights_of


class WeightsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An uploaded file of weights in the store."""

    size: int = 0


class Weights:
    """The uploaded weights of a service."""

    def __init__(self, service: JobService) -> None:
        self._service = service
        self._shelf = Shelf(service, WEIGHTS)

    async def add(self, user: str, upload: Path) -> str:
        """Store a copy of that file and return its new name. Raises Unprocessable when it is empty."""
        name = f"weights-{secrets.token_hex(4)}"

        def fill(places: Places) -> WeightsRecord:
            size = upload.stat().st_size
            if not size:
                raise Unprocessable("The weight file is empty.", hint="Send a state dict (.pth).", field="file")
            places.weights.parent.mkdir()
            shutil.copyfile(upload, places.weights)
            return WeightsRecord(size=size)

        await self._shelf.add(user, name, fill)
        return name

    async def meant(self, user: str, name: str, trainings: dict[str, str]) -> Path:
        """Return the file of weights that a user's name refers to.

        The name is that of an uploaded file or of a training (`trainings` has the ids of their jobs), or a file or
        folder of the server's data folder.
        """
        # Uploads first: the server has named them with a random part, so none of them hides a training or a folder.
        for row in await self._shelf.rows(user):
            if row.name == name:
                return self._shelf.places(row).weights
        if name in trainings:
            return weights_of(self._service.paths(await self._service.mine(user, trainings[name])))
        try:
            place = content_below_data_fs(self._service.settings, name)
        except EdtError:
            raise NotFound(
                f"There are no weights {name!r}.",
                hint="Name an upload (POST /models/weightfile), a training of the model, or a folder of DLI_DATA_FS.",
                field="wfinit",
            ) from None
        return place if place.is_file() else _newest(place)


def _newest(folder: Path) -> Path:
    """Return the final weights of a folder, else its newest epoch's, else its only .pth file."""
    if newest := newest_weights(path for path in folder.glob("*.pth") if path.is_file()):
        return newest
    files = sorted(folder.glob("*.pth"))
    if len(files) != 1:
        raise Unprocessable(
            f"{folder} holds {len(files)} .pth files; which one is meant?" if files else f"{folder} has no .pth file.",
            hint="Name the file itself.",
            field="wtfolder",
        )
    return files[0]
