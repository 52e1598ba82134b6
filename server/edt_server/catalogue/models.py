"""The verbs of models and of templates: list, add, show, change, delete, train."""

from __future__ import annotations

import asyncio
import builtins
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TypedDict

import msgspec

from edt_sdk.schemas.catalogue import (
    DEFAULT_FRAMEWORK,
    Model,
    ModelChange,
    ModelDetails,
    ModelTraining,
    NewModel,
    check_inside,
)
from edt_sdk.schemas.errors import InvalidRequest, NotFound
from edt_sdk.schemas.job import JobSpec, JobView
from edt_sdk.schemas.registered import Registered, WmlaRequest
from edt_server.catalogue import intake
from edt_server.catalogue.places import Places, content_below_data_fs
from edt_server.catalogue.records import DATASET, MODEL, TEMPLATE, ModelRecord, model_record, model_shown
from edt_server.catalogue.shelf import JobService, Shelf
from edt_server.catalogue.training import job_of
from edt_server.files import job_files
from edt_server.ledger import Change
from edt_server.store import CatalogueRow

_SETTINGS = ("description", "framework", "args", "hyperparameters", "dataset", "max_workers")


class Using(TypedDict):
    """The arguments of a submission that trains a model."""

    training: Registered
    weights: Path | None


class Models:
    """The models and templates of a service."""

    def __init__(self, service: JobService) -> None:
        self._service = service
        self._settings = service.settings
        self._shelves = {kind: Shelf(service, kind) for kind in (MODEL, TEMPLATE)}
        self._datasets = Shelf(service, DATASET)

    async def list(self, user: str, kind: str | None = None) -> builtins.list[Model]:
        """Return the user's models and templates by name, with `kind` only that kind."""
        uses = await self._shelves[MODEL].uses(user)
        kinds = self._shelves if kind is None else (kind,)
        rows = [row for each in kinds for row in await self._shelves[each].rows(user)]
        return [model_shown(row, uses) for row in sorted(rows, key=lambda row: (row.name, row.kind))]

    async def get(self, user: str, name: str, kind: str = MODEL) -> ModelDetails:
        """Return a model with its trainings and the files of its code. Raises NotFound."""
        shelf = self._shelves[kind]
        row = await shelf.row(user, name)
        uses = await shelf.uses(user)
        trainings = await shelf.jobs(user, lambda use: use.model == row.id and not use.validates)
        files = await asyncio.to_thread(intake.listing, shelf.places(row).code)
        return ModelDetails(model=model_shown(row, uses), trainings=trainings, files=files)

    async def validations(self, user: str, name: str) -> tuple[JobView, ...]:
        """Return the validations of a model's trainings, the newest first. Raises NotFound."""
        shelf = self._shelves[MODEL]
        row = await shelf.row(user, name)
        return await shelf.jobs(user, lambda use: use.model == row.id and use.validates)

    async def file(self, user: str, name: str, file: str, kind: str = MODEL) -> bytes:
        """Return the content of a file of the model's code. Raises NotFound."""
        shelf = self._shelves[kind]
        content = await asyncio.to_thread(intake.member, shelf.places(await shelf.row(user, name)).code, file)
        if content is None:
            raise NotFound(f"{name} has no file {file!r}.", field="file")
        return content

    async def add(
        self, user: str, new: NewModel, upload: Path | None = None, filename: str = "", *, of_kind: str = ""
    ) -> Model:
        """Add a model or template: the file `upload` (left where it is), called `filename`, or what `new` names.

        `of_kind` is the kind of its `template`, "" for either.
        """
        new.check()
        said = [name for name, value in (("path", new.path), ("template", new.template)) if value is not None]
        if len(said) + (upload is not None) != 1:
            raise InvalidRequest(
                "The code of a model comes from an upload, a path of the server's data folder, or a template.",
                hint="Say exactly one of these.",
                field=said[0] if said else "path",
            )
        # Before any file is copied, because a wrong name is cheap to find.
        if new.dataset:
            await self._datasets.row(user, new.dataset)
        origin = None
        if new.template is not None:
            find = self._shelves[of_kind].row if of_kind else self._origin
            origin = await find(user, new.template)

        def fill(places: Places) -> ModelRecord:
            if origin is None:
                return self._fill(places, new, upload, filename)
            return _made_of(places, new, origin, self._shelves[origin.kind].places(origin))

        return model_shown(await self._shelves[new.kind].add(user, new.name, fill), [])

    async def _origin(self, user: str, name: str) -> CatalogueRow:
        """Return the template with that name, else the model."""
        try:
            # A template and a model may have the same name, as IBM's clients give it. A template is meant first
            # (docs/decisions/026).
            return await self._shelves[TEMPLATE].row(user, name)
        except NotFound as wrong:
            try:
                return await self._shelves[MODEL].row(user, name)
            except NotFound:
                # The first error, because its hint lists the templates.
                raise wrong from None

    def _fill(self, places: Places, new: NewModel, upload: Path | None, filename: str) -> ModelRecord:
        settings = self._settings
        source = upload if upload is not None else content_below_data_fs(settings, new.path or "")
        code = intake.pack_code(source, filename, new.main, places.code, settings)
        return ModelRecord(
            description=new.description or "",
            framework=new.framework or DEFAULT_FRAMEWORK,
            args=new.args or (),
            hyperparameters=new.hyperparameters or {},
            dataset=new.dataset or "",
            max_workers=new.max_workers or 1,
            origin=f"upload {filename}".rstrip() if upload is not None else str(source),
            **asdict(code),
        )

    def place(self, path: str) -> Path:
        """Return the place in the server's data folder that `path` names. Raises like `add`. Blocks."""
        return content_below_data_fs(self._settings, path)

    async def change(self, user: str, name: str, changes: ModelChange, kind: str = MODEL) -> Model:
        """Change settings of a model. Its trainings stay as they are."""
        changes.check()
        shelf = self._shelves[kind]
        row = await shelf.row(user, name)
        # Checked now, so that a wrong name is an error of this change and not of the next training.
        if changes.dataset:
            await self._datasets.row(user, changes.dataset)
        said = {key: getattr(changes, key) for key in _SETTINGS if getattr(changes, key) is not None}
        if changes.main is not None:
            said |= await asyncio.to_thread(_main_in, shelf.places(row).code, name, changes.main)
        return model_shown(await self._update(row, said), await shelf.uses(user))

    async def replace_code(self, user: str, name: str, upload: Path, filename: str, kind: str = MODEL) -> Model:
        """Replace the code of a model. Its trainings keep their own copy. Raises like `add`."""
        shelf = self._shelves[kind]
        row = await shelf.row(user, name)
        places = shelf.places(row)
        fresh = places.code.with_name("code-new.tar.gz")
        try:
            code = await asyncio.to_thread(intake.pack_code, upload, filename, None, fresh, self._settings)
            # Atomic: a training that is submitted at this moment gets the old code or the new code.
            await asyncio.to_thread(fresh.replace, places.code)
        finally:
            await asyncio.to_thread(fresh.unlink, missing_ok=True)
        return model_shown(await self._update(row, asdict(code)), await shelf.uses(user))

    async def write_file(self, user: str, name: str, file: str, content: bytes, kind: str = MODEL) -> Model:
        """Add a file to a model's code, or replace the file with that name. Its trainings keep their own copy."""
        check_inside(file, "file")
        shelf = self._shelves[kind]
        row = await shelf.row(user, name)
        package = shelf.places(row).code
        files, size = await asyncio.to_thread(intake.with_file, package, file, content)
        said: dict[str, object] = {"files": files, "size": size}
        if file == model_record(row).main:
            said["console"] = intake.takes_train_dir(content)
        return model_shown(await self._update(row, said), await shelf.uses(user))

    async def set_weights(self, user: str, name: str, weights: Path | None) -> Model:
        """Set the weights that trainings of a model start with from now on: a copy of that file, or none."""
        row = await self._shelves[MODEL].row(user, name)
        kept = self._shelves[MODEL].places(row).weights

        def put() -> None:
            if weights is None:
                kept.unlink(missing_ok=True)
                return
            kept.parent.mkdir(exist_ok=True)
            fresh = kept.with_suffix(".new")
            with job_files.open_source(weights, self._settings.data_dir) as source, fresh.open("wb") as target:
                shutil.copyfileobj(source, target)
            # Atomic too, so that no training starts with half of a file.
            fresh.replace(kept)

        await asyncio.to_thread(put)
        row = await self._update(row, {"weights": weights is not None})
        return model_shown(row, await self._shelves[MODEL].uses(user))

    async def delete(self, user: str, name: str, kind: str = MODEL) -> None:
        """Remove a model or template. Its trainings, and models made from it, have their own copy."""
        shelf = self._shelves[kind]
        await shelf.remove(await shelf.row(user, name))

    async def train(
        self, user: str, name: str, wanted: ModelTraining, *, weights: Path | None = None, remarks: tuple[str, ...] = ()
    ) -> JobView:
        """Train a model as an ordinary job, with `weights` in place of the model's own, and `remarks` for its story."""
        spec, package, using = await self.job(user, name, wanted, weights=weights)
        if remarks:
            spec = msgspec.structs.replace(spec, wmla=WmlaRequest(remarks=remarks))
        return await self._service.submit(user, spec, package, **using)

    async def job(
        self, user: str, name: str, wanted: ModelTraining, *, weights: Path | None = None
    ) -> tuple[JobSpec, Path, Using]:
        """Return the job that trains a model, its package, and what more a submission of it is told."""
        wanted.check()
        row = await self._shelves[MODEL].row(user, name)
        # No table of trainings: a model's trainings are the jobs with its id (docs/decisions/026).
        spec, training = job_of(row, wanted)
        places = self._shelves[MODEL].places(row)
        if weights is not None:
            training = msgspec.structs.replace(training, weights=True)
        elif training.weights:
            weights = places.weights
        return spec, places.code, Using(training=training, weights=weights)

    async def _update(self, row: CatalogueRow, said: dict[str, object]) -> CatalogueRow:
        def work(change: Change) -> CatalogueRow:
            # Read again in the transaction: another request may have changed other settings since `row` was read.
            there = change.tx.entry(row.id) or row
            record = msgspec.structs.replace(model_record(there), **said)
            return change.tx.update_entry(row.id, msgspec.to_builtins(record), change.now)

        return await self._service.change(work)


def _made_of(places: Places, new: NewModel, origin: CatalogueRow, source: Places) -> ModelRecord:
    """Copy the origin's code and return its record with the settings of `new`. Blocks."""
    # A copy, so that a template can be deleted although models were made from it (docs/decisions/026).
    shutil.copyfile(source.code, places.code)
    record = model_record(origin)
    said = {key: getattr(new, key) for key in _SETTINGS if getattr(new, key) is not None}
    if new.main is not None:
        said |= _main_in(places.code, origin.name, new.main)
    # The file of weights is not copied, so the new record must not claim one.
    return msgspec.structs.replace(record, **{**said, "template": origin.name, "weights": False})


def _main_in(package: Path, of: str, main: str) -> dict[str, object]:
    """Return what a record has of its main script. InvalidRequest when the code of `of` lacks that file. Blocks."""
    content = intake.member(package, main)
    if content is None:
        raise InvalidRequest(f"{of} has no file {main!r}.", field="main")
    return {"main": main, "console": intake.takes_train_dir(content)}
