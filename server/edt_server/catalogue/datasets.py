"""The verbs of data sets: list, add, show, delete, and their use in a job's specification."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec

from edt_sdk.schemas.catalogue import Dataset, DatasetDetails, NewDataset
from edt_sdk.schemas.errors import Conflict, EdtError, InvalidRequest, Unprocessable
from edt_sdk.schemas.job import JobSpec
from edt_sdk.schemas.registered import Registered
from edt_sdk.schemas.wire.control import ACCOUNT
from edt_server.catalogue import intake
from edt_server.catalogue.places import Places, below_data_fs, content_below_data_fs, relative
from edt_server.catalogue.records import COPY, DATASET, REFERENCE, DatasetRecord, dataset_record, dataset_shown
from edt_server.catalogue.shelf import JobService, Shelf
from edt_server.ledger import Change
from edt_server.store import CatalogueRow

_FILES_SHOWN = 200


class Datasets:
    """The data sets of a service."""

    def __init__(self, service: JobService) -> None:
        self._shelf = Shelf(service, DATASET)
        self._settings = service.settings
        # What the server finds in its data folder is not shown to users, see `content_below_data_fs`.
        self._blind = service.settings.isolation.kind == ACCOUNT

    async def list(self, user: str) -> list[Dataset]:
        """Return the user's data sets, by name."""
        uses = await self._shelf.uses(user)
        rows = await self._shelf.rows(user)
        # In a thread, because each data set's folder is looked at, and it may be on a slow disk.
        return await asyncio.to_thread(
            lambda: [dataset_shown(row, str(self._place(row)), self._trouble(row), uses) for row in rows]
        )

    async def get(self, user: str, name: str) -> DatasetDetails:
        """Return a data set with its jobs and the first of its files. Raises NotFound."""
        row = await self._shelf.row(user, name)
        uses = await self._shelf.uses(user)
        jobs = await self._shelf.jobs(user, lambda use: use.dataset == row.id)

        def read() -> DatasetDetails:
            place, trouble = self._place(row), self._trouble(row)
            unseen = trouble or (self._blind and dataset_record(row).mode == REFERENCE)
            files = () if unseen else intake.first_files(place, _FILES_SHOWN)
            return DatasetDetails(dataset=dataset_shown(row, str(place), trouble, uses), jobs=jobs, files=files)

        return await asyncio.to_thread(read)

    async def add(self, user: str, new: NewDataset, upload: Path | None = None, filename: str = "") -> Dataset:
        """Register a data set: the file `upload` (left where it is), called `filename`, or what is at `new.path`."""
        new.check()
        if (upload is None) == (new.path is None):
            raise InvalidRequest(
                "A data set comes from an upload or from a path of the server's data folder.",
                hint="Send a part 'package', or give path.",
                field="path" if upload is None else "package",
            )
        row = await self._shelf.add(user, new.name, lambda places: self._fill(places, new, upload, filename))
        return dataset_shown(row, str(self._place(row)), "", [])

    def _fill(self, places: Places, new: NewDataset, upload: Path | None, filename: str) -> DatasetRecord:
        settings = self._settings
        mode, path = COPY, ""
        if upload is not None:
            intake.unpack_data(upload, filename, places.data, settings.max_package_bytes)
            folder = places.data
        else:
            look = content_below_data_fs if new.copy else below_data_fs
            found = look(settings, new.path or "")
            if new.copy:
                intake.copy_data(found, places.data)
                folder = places.data
            elif found.is_dir():
                mode, path, folder = REFERENCE, relative(settings.data_fs, found), found
            else:
                raise Unprocessable(
                    f"{new.path} is a file, and a data set is a folder.",
                    hint="Register the folder it lies in, or keep a copy of the file (copy).",
                    field="path",
                )
        for part in ("train", "test", "val"):
            if not (folder / getattr(new, part)).exists():
                raise InvalidRequest(f"There is no {getattr(new, part)} in the data set.", field=part)
        files, size = (None, None) if mode == REFERENCE and self._blind else intake.counted(folder) or (None, None)
        return DatasetRecord(
            type=new.type,
            description=new.description,
            mode=mode,
            path=path,
            train=new.train,
            test=new.test,
            val=new.val,
            files=files,
            size=size,
        )

    async def delete(self, user: str, name: str) -> None:
        """Remove a data set, except for a folder of the server's data folder.

        Raises Conflict when its files are a copy that a job which has not ended needs.
        """
        row = await self._shelf.row(user, name)

        def check(change: Change) -> None:
            # A reference can always be deleted, because its folder stays (docs/decisions/026).
            if dataset_record(row).mode != COPY:
                return
            # Decided in the transaction that removes the row: a job submitted at the same time is refused in its own
            # transaction (`places.check_there`), so the race has a winner (docs/decisions/026).
            using = [u.job for u in change.ledger.store.uses(user) if u.dataset == row.id and not u.ended]
            if using:
                raise Conflict(
                    f"The data set {name} is used by {', '.join(using[:5])}{' and others' if len(using) > 5 else ''}.",
                    hint="Wait until these jobs have ended, or stop them first.",
                    jobs=using,
                )

        await self._shelf.remove(row, check)

    async def registered(self, user: str, spec: JobSpec, training: Registered | None) -> JobSpec:
        """Return the specification with the catalogue entries it uses resolved. The client cannot set these."""
        if not spec.dataset:
            return msgspec.structs.replace(spec, registered=training)
        row = await self._shelf.row(user, spec.dataset)
        trouble = await asyncio.to_thread(self._trouble, row)
        if trouble:
            raise Unprocessable(trouble, hint="Bring the folder back, or register the data set again.", field="dataset")
        record = dataset_record(row)
        used = msgspec.structs.replace(
            training or Registered(),
            dataset=row.id,
            copied=record.mode == COPY,
            train=record.train,
            test=record.test,
            val=record.val,
        )
        # The ids are pinned at submission. Resolving the name at each start would let a suspended job go on with other
        # data.
        return msgspec.structs.replace(spec, registered=used, data_path=record.path)

    def _place(self, row: CatalogueRow) -> Path:
        record = dataset_record(row)
        if record.mode == COPY:
            return self._shelf.places(row).data
        return Path(os.path.normpath(os.path.join(self._settings.data_fs or "/", record.path)))

    def _trouble(self, row: CatalogueRow) -> str:
        record = dataset_record(row)
        try:
            place = self._place(row) if record.mode == COPY else below_data_fs(self._settings, record.path)
        except EdtError as wrong:
            return f"The data set {row.name} cannot be used now: {wrong.message}"
        return "" if place.is_dir() else f"The folder {place} of the data set {row.name} is gone."
