"""Data sets and models: list, add, show, change, delete, train."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edt_jupyter.api.entry import EntryHandler
from edt_jupyter.api.own_files import OwnFiles
from edt_jupyter.http.base import EdtHandler
from edt_sdk.packing.data_files import data_files
from edt_sdk.packing.sources import SourceFile, collect
from edt_sdk.schemas.catalogue import (
    HYPERPARAMETERS,
    Dataset,
    DatasetType,
    EntryKind,
    Model,
    ModelChange,
    ModelTraining,
    NewDataset,
    NewModel,
)
from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.job import parse_change


class _DatasetsHandler(EntryHandler[Dataset], path="/datasets", resource="edt:catalogue"):
    entry = Dataset

    async def get(self) -> None:
        """Return the user's data sets, the types there are, and the folder that a `path` is in."""
        found = await self.service.catalogue.datasets.list(self.user)
        self.reply({"datasets": found, "types": list(DatasetType), "data_folder": self.service.settings.data_fs})

    async def add(self, spec: bytes, package: Path | None, filename: str) -> Dataset:
        """Register a data set."""
        new = parse_change(spec, NewDataset)
        return await self.service.catalogue.datasets.add(self.user, new, package, filename)

    def files_of(self, own: OwnFiles, source: str, spec: bytes) -> Sequence[SourceFile]:
        """Return all files of a folder, or one file."""
        parse_change(spec, NewDataset).check()
        return data_files(own.find(source))


class _DatasetHandler(EdtHandler, path="/datasets/{name}", resource="edt:catalogue"):
    async def get(self, name: str) -> None:
        """Return the data set with its jobs and files."""
        self.reply(await self.service.catalogue.datasets.get(self.user, name))

    async def delete(self, name: str) -> None:
        """Remove the data set. Refused while a job needs its files."""
        await self.service.catalogue.datasets.delete(self.user, name)
        self.set_status(204)
        self.finish()


class _ModelsHandler(EntryHandler[Model], path="/models", resource="edt:catalogue"):
    entry = Model

    async def get(self) -> None:
        """Return the user's models, and the values that a model's fields may have."""
        found = await self.service.catalogue.models.list(self.user)
        self.reply({"models": found, "frameworks": list(Framework), "hyperparameters": HYPERPARAMETERS})

    async def add(self, spec: bytes, package: Path | None, filename: str) -> Model:
        """Add a model."""
        new = parse_change(spec, NewModel)
        return await self.service.catalogue.models.add(self.user, new, package, filename)

    def files_of(self, own: OwnFiles, source: str, spec: bytes) -> Sequence[SourceFile]:
        """Return the files that are packed of a folder, script or notebook."""
        new = parse_change(spec, NewModel).check()
        return collect(own.find(source), new.main, hidden=own.hidden, most=self.caps.max_package_files).files


class _ModelHandler(EdtHandler, path="/models/{name}", resource="edt:catalogue"):
    async def get(self, name: str) -> None:
        """Return the model with its trainings and files."""
        self.reply(await self.service.catalogue.models.get(self.user, name, self._kind))

    async def patch(self, name: str) -> None:
        """Change the fields in the body, for future trainings."""
        change = parse_change(self.request.body, ModelChange)
        self.reply(await self.service.catalogue.models.change(self.user, name, change, self._kind))

    async def delete(self, name: str) -> None:
        """Remove the model. Its trainings stay."""
        await self.service.catalogue.models.delete(self.user, name, self._kind)
        self.set_status(204)
        self.finish()

    @property
    def _kind(self) -> str:
        """Return which entry of that name is meant, the model or the template."""
        kind = self.get_query_argument("kind", EntryKind.MODEL.value)
        if kind not in list(EntryKind):
            raise InvalidRequest(f"kind is 'model' or 'template', not {kind!r}.", field="kind")
        return kind


class _ModelTrainHandler(EdtHandler, path="/models/{name}/train", resource="edt:jobs"):
    async def post(self, name: str) -> None:
        """Train the model. Returns the job."""
        wanted = parse_change(self.request.body, ModelTraining) if self.request.body else ModelTraining()
        view = await self.service.catalogue.models.train(self.user, name, wanted)
        self.set_header("Location", f"{self.base_url}edt/api/jobs/{view.id}")
        self.reply(view, 201)
