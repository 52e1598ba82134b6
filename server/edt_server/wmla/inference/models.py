"""The verbs of models for inference, and of their runtimes.

A model is a package. Each start makes a version of it, where it has changed, and lets a deployment of the same name
serve that. The first start makes the deployment.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from edt_sdk.schemas.catalogue import ModelTraining, check_inside
from edt_sdk.schemas.errors import Conflict, InvalidRequest, NotFound
from edt_sdk.schemas.registered import DESCRIPTION
from edt_sdk.schemas.serving.deployments import DeploymentPatch, DeploymentState, DeploymentView
from edt_sdk.schemas.serving.versions import NewFolderVersion
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.catalogue import intake
from edt_server.catalogue.places import content_below_data_fs
from edt_server.catalogue.records import INFERENCE, RUNTIME
from edt_server.catalogue.shelf import Shelf
from edt_server.files import job_files, unpack
from edt_server.ledger import Change
from edt_server.store import CatalogueRow
from edt_server.wmla.inference import descriptions
from edt_server.wmla.inference.archives import ModelArchive
from edt_server.wmla.inference.descriptions import InferenceRecord
from edt_server.wmla.inference.instances import instance_object
from edt_server.wmla.inference.profiles import changed_profile, deployment, profile_of
from edt_server.wmla.inference.runtimes import BUILT_IN, RuntimeRecord, runtime

if TYPE_CHECKING:
    from edt_server.service import Service

_README = "README.md"
_WEIGHTS = "model_epoch_final.pth"  # where the weights of a training are put
_KERNEL = "edi.py"  # what a kernel is called that comes as a text

More = Mapping[str, Path | bytes]  # further files of a package, by their names


class InferenceModels:
    """The verbs of a service for models of these clients. A model is named by its name, of its owner's."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._models = Shelf(service, INFERENCE)
        self._runtimes = Shelf(service, RUNTIME)

    # --- looking ------------------------------------------------------------------------------------------------------

    async def rows(self, user: str) -> list[CatalogueRow]:
        """Return the user's models, by name."""
        return await self._models.rows(user)

    async def row(self, user: str, name: str) -> CatalogueRow:
        """Return a model. NotFound when there is none."""
        return await self._models.row(user, name)

    def shown(self, row: CatalogueRow, *, server: str) -> dict[str, Any]:
        """Return a model as these clients see it. `server` is the address that they have reached."""
        return descriptions.model_object(row, _record(row), server=server)

    async def profile(self, user: str, name: str) -> dict[str, Any]:
        """Return the application profile of a model."""
        row = await self.row(user, name)
        return profile_of(row, _record(row))

    async def readme(self, user: str, name: str) -> str:
        """Return what people read about a model."""
        return _record(await self.row(user, name)).readme

    async def instance(self, user: str, name: str) -> dict[str, Any]:
        """Return the state of a model, and what it has answered since it was started."""
        await self.row(user, name)
        view = await self._view(user, name)
        return instance_object(name, view, now=self._service.now(), host=socket.gethostname())

    # --- adding -------------------------------------------------------------------------------------------------------

    async def add(self, user: str, archive: ModelArchive, again: str = "") -> CatalogueRow:
        """Add the model of an archive, or replace the package of the stopped model `again`."""
        row = await self._at_rest(user, again) if again else None
        await asyncio.to_thread(archive.finish)
        folder, model = await asyncio.to_thread(
            descriptions.unpacked, archive.path, archive.folder, self._service.settings
        )
        if again and model["name"] != again:
            raise InvalidRequest(f"The archive is of the model {model['name']}, not of {again}.", field="name")
        return await self._package(user, folder, model, {}, again=row)

    async def add_folder(self, user: str, fields: Mapping[str, Any], kernel: str = "") -> CatalogueRow:
        """Add a model whose files lie in the data folder, at `model_path`.

        `kernel`, where it is given, is a file there, a file of the data folder, or the text of one.
        """
        settings, place = self._service.settings, str(fields.get("model_path") or "")
        with self._scratch() as folder:
            if place:
                folder = await asyncio.to_thread(content_below_data_fs, settings, place)
            found, more = await asyncio.to_thread(self._kernel, folder, kernel) if kernel else ({}, {})
            model = descriptions.description({**fields, **found, "model_path": "./"})
            return await self._package(user, folder, model, more)

    def _kernel(self, folder: Path, given: str) -> tuple[dict[str, str], More]:
        """Return the place of a kernel as a description has it, and the file where it is to be added. Blocks."""
        if "\n" in given:
            return {"kernel_path": _KERNEL}, {_KERNEL: given.encode()}
        if (folder / given).is_file():
            return {"kernel_path": given}, {}
        file = content_below_data_fs(self._service.settings, given)
        if not file.is_file():
            raise InvalidRequest(f"{given} is no file.", field="edi_py")
        return {"kernel_path": _KERNEL}, {_KERNEL: file}

    async def publish(self, user: str, model: str, fields: Mapping[str, Any], kernel: str) -> CatalogueRow:
        """Add a model of the code of a model of the catalogue, with its weights and a kernel."""
        _, package, using = await self._service.catalogue.models.job(user, model, ModelTraining())
        more: dict[str, Path | bytes] = {}
        said = dict(fields)
        if using["weights"] is not None:
            more[_WEIGHTS] = using["weights"]
            said["weight_path"] = said.get("weight_path") or _WEIGHTS
        with self._scratch() as folder:
            code = await self._unpacked(package, folder)
            found, added = await asyncio.to_thread(self._kernel, code, kernel)
            described = descriptions.description({**said, **found, "model_path": "./"})
            return await self._package(user, code, described, {**more, **added})

    async def add_job(self, user: str, job: str, fields: Mapping[str, Any], weights: str) -> CatalogueRow:
        """Add a model of a job's code and of the weights that it has trained, or of those at `weights` in its result.

        The kernel is a file of the code. NotFound when the job has no such weights.
        """
        model = descriptions.description({**fields, "weight_path": _WEIGHTS})
        stored, paths = await self._service.stored(user, job), self._service.paths(await self._service.mine(user, job))
        with self._scratch() as folder:
            copy = folder / _WEIGHTS
            await asyncio.to_thread(self._copy_weights, paths, weights, copy)
            # The package as it was sent: the job may have changed what lies in its folder.
            code = await self._unpacked(stored.package, folder, stored.spec.code_dir)
            return await self._package(user, code, model, {_WEIGHTS: copy})

    def _copy_weights(self, paths: JobPaths, named: str, target: Path) -> None:
        """Blocks."""
        if named:
            check_inside(named, "weight")
        finals = job_files.final_weights(paths)
        source = paths.result_dir / named if named else finals[-1] if finals else paths.train_dir / _WEIGHTS
        try:
            with job_files.open_source(source, self._service.settings.data_dir) as file, target.open("xb") as copy:
                shutil.copyfileobj(file, copy)
        except OSError:
            raise NotFound(
                f"The exec has no weights {named or _WEIGHTS}.", hint="Wait for its end, or name a file: weight."
            ) from None

    @contextmanager
    def _scratch(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(dir=self._service.uploads) as folder:
            yield Path(folder)

    async def _unpacked(self, package: Path, folder: Path, code_dir: str = "") -> Path:
        settings = self._service.settings
        most = {"max_files": settings.max_package_files, "max_bytes": settings.max_package_bytes}
        await asyncio.to_thread(unpack, package, folder / "code", main="", code_dir=code_dir, **most)
        return folder / "code" / code_dir

    async def _package(
        self, user: str, folder: Path, model: dict[str, Any], more: More, *, again: CatalogueRow | None = None
    ) -> CatalogueRow:
        """Add a model, or replace the package of one. `folder` has its files."""
        settings = self._service.settings

        def fill(target: Path) -> InferenceRecord:
            size = descriptions.package(folder, model, target, settings, more)
            return InferenceRecord(model=model, readme=_text_of(folder / _README), size=size)

        if again is None:
            return await self._models.add(user, model["name"], lambda places: fill(places.code))
        code = self._models.places(again).code
        fresh = code.with_name("code-next.tar.gz")
        try:
            record = await asyncio.to_thread(fill, fresh)
            await asyncio.to_thread(fresh.replace, code)
        finally:
            await asyncio.to_thread(fresh.unlink, missing_ok=True)
        return await self._keep(again, model=record.model, readme=record.readme, size=record.size)

    # --- changing -----------------------------------------------------------------------------------------------------

    async def change(self, user: str, name: str, fields: Mapping[str, Any]) -> None:
        """Change the description of a stopped model. NotFound for a file that is not there."""
        row = await self._at_rest(user, name)
        if fields.get("name", name) != name:
            raise InvalidRequest("A model keeps its name.", hint="Deploy it under the other name.", field="name")
        model = descriptions.description({**_record(row).model, **fields})
        names = await self._names(row)
        if model["kernel_path"].removeprefix("./") not in names:
            raise InvalidRequest(f"There is no file {model['kernel_path']}.", field="kernel_path")
        await asyncio.to_thread(descriptions.weights_elsewhere, model, names, self._service.settings)
        await self._keep(row, model=model)

    async def change_profile(self, user: str, name: str, given: Mapping[str, Any]) -> None:
        """Change the profile of a stopped model."""
        row = await self._at_rest(user, name)
        await self._keep(row, profile=changed_profile(_record(row).profile, given))

    async def change_readme(self, user: str, name: str, text: str) -> None:
        """Change what people read about a model."""
        await self._keep(await self.row(user, name), readme=text)

    async def delete(self, user: str, name: str) -> None:
        """Remove a stopped model with its deployment. Its versions stay."""
        row = await self._at_rest(user, name)
        if await self._view(user, name) is not None:
            await self._service.deployments.delete(user, name)
        await self._models.remove(row)

    # --- starting and stopping ----------------------------------------------------------------------------------------

    async def start(self, user: str, name: str) -> None:
        """Let a stopped model answer requests, as its profile says."""
        service = self._service
        row = await self._at_rest(user, name)
        record, code = _record(row), self._models.places(row).code
        profile = profile_of(row, record)
        weights = descriptions.weights_elsewhere(record.model, await self._names(row), service.settings)
        content = descriptions.for_kernels(
            record.model, await self._runtime(user, record.model["runtime"]), profile, weights
        )
        await asyncio.to_thread(intake.with_file, code, DESCRIPTION, content)
        said = f"tag {record.model['tag']}" if record.model["tag"] else ""
        version, _ = await service.versions.register_folder(user, NewFolderVersion(name=name, description=said), code)
        groups = [group.name for group in service.sharing.plan.leaves()]
        wanted = deployment(version.id, profile, slots=service.capacity, groups=groups)
        view = await self._view(user, name)
        if view is None:
            await service.deployments.deploy(user, wanted)
        elif service.sharing.plan.group(wanted.instance_group).name != view.instance_group:
            raise Conflict(
                f"{name} was started in the instance group {view.instance_group}, and its profile names another one.",
                hint="Delete it, and deploy it again with that profile.",
            )
        else:
            changes = DeploymentPatch(replicas=wanted.replicas, release_after=wanted.release_after)
            await service.deployments.change(user, name, changes)
            await service.deployments.update(user, name, wanted.revision)
        await self._keep(row, started=service.now())

    async def stop(self, user: str, name: str) -> None:
        """Let a model refuse requests, and give up its slots. Conflict for a stopped one."""
        await self.row(user, name)
        if await self._view(user, name) is None:
            raise Conflict(f"Model {name} is stopped already.")
        await self._service.deployments.stop_deployment(user, name)

    async def _view(self, user: str, name: str) -> DeploymentView | None:
        try:
            return await self._service.deployments.deployment(user, name)
        except NotFound:
            return None

    async def _at_rest(self, user: str, name: str) -> CatalogueRow:
        row, view = await self.row(user, name), await self._view(user, name)
        if view is not None and view.state is not DeploymentState.STOPPED:
            raise Conflict(f"Model {name} is started.", hint="Stop it first.")
        return row

    async def _names(self, row: CatalogueRow) -> set[str]:
        return {file.name for file in await asyncio.to_thread(intake.listing, self._models.places(row).code)}

    async def _keep(self, row: CatalogueRow, **fields: Any) -> CatalogueRow:
        def work(change: Change) -> CatalogueRow:
            record = msgspec.structs.replace(_record(change.tx.entry(row.id) or row), **fields)
            return change.tx.update_entry(row.id, msgspec.to_builtins(record), change.now)

        return await self._service.change(work)

    # --- runtimes -----------------------------------------------------------------------------------------------------

    async def runtimes(self, user: str) -> list[CatalogueRow]:
        """Return the runtimes that the user has added, by name."""
        return await self._runtimes.rows(user)

    async def runtime(self, user: str, name: str) -> CatalogueRow:
        """Return such a runtime. NotFound when there is none."""
        return await self._runtimes.row(user, name)

    async def add_runtime(self, user: str, fields: Mapping[str, Any]) -> str:
        """Keep a runtime, and return its name. Conflict when that is taken."""
        made = runtime(fields)
        if made.type == BUILT_IN.type:
            raise Conflict(f"There is a runtime {made.type} already.", field="type")
        await self._runtimes.add(user, made.type, lambda _: made)
        return made.type

    async def change_runtime(self, user: str, name: str, fields: Mapping[str, Any]) -> None:
        """Change a runtime, for starts to come."""
        row, made = await self._own(user, name), runtime({"type": name, **fields})
        if made.type != name:
            raise InvalidRequest("A runtime keeps its type.", field="type")
        await self._service.change(lambda change: change.tx.update_entry(row.id, msgspec.to_builtins(made), change.now))

    async def delete_runtime(self, user: str, name: str) -> None:
        """Remove a runtime. A model that names it cannot be started any more."""
        await self._runtimes.remove(await self._own(user, name))

    async def _own(self, user: str, name: str) -> CatalogueRow:
        if name == BUILT_IN.type:
            raise InvalidRequest(f"The runtime {name} is built in.", field="runtime")
        return await self.runtime(user, name)

    async def _runtime(self, user: str, name: str) -> RuntimeRecord:
        if name == BUILT_IN.type:
            return BUILT_IN
        try:
            return msgspec.convert((await self.runtime(user, name)).data, RuntimeRecord)
        except NotFound as missing:
            hint = f"Add it (POST /dlim/v1/deployment/runtime), or use {BUILT_IN.type}."
            raise InvalidRequest(missing.message, hint=hint, field="runtime") from None


def _record(row: CatalogueRow) -> InferenceRecord:
    return msgspec.convert(row.data, InferenceRecord)


def _text_of(file: Path) -> str:
    return file.read_text("utf-8", "replace") if file.is_file() else ""
