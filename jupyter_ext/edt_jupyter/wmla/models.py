"""The console's model templates and models: list, add, show, change, delete, and their files."""

from __future__ import annotations

import asyncio
from pathlib import Path

from edt_jupyter.http.receiving import ReceivingHandler
from edt_jupyter.wmla.console import ConsoleHandler
from edt_jupyter.wmla.parts import Parts
from edt_sdk.schemas.catalogue import Model
from edt_sdk.schemas.errors import InvalidRequest, NotFound
from edt_server.catalogue.records import MODEL, TEMPLATE
from edt_server.wmla.console import change, model_object, new_model, new_template, template_object, written


class _EntriesHandler(ConsoleHandler):
    """Base of the handlers for templates and models. `kind` selects one kind."""

    kind = MODEL

    async def changed(self, name: str) -> None:
        """Change settings and files as the body requests."""
        kind = self.kind
        models, body, user = self.service.catalogue.models, self.body, self.user
        row = (await models.get(user, name, kind)).model
        wanted, remarks = change(body, name)
        file = written(body, row.main)
        path = body.get("path") if body.get("path") != row.origin else None
        if wanted is None and file is None and not path:
            raise InvalidRequest("Nothing to change.", hint="See GET for the fields there are.")
        # The code first: it replaces every file, also the one that this request writes.
        if path:
            place = await asyncio.to_thread(models.place, str(path))
            await models.replace_code(user, name, place, "", kind=kind)
        if wanted is not None:
            await models.change(user, name, wanted, kind)
        if file is not None:
            await models.write_file(user, name, file[0], file[1].encode(), kind)
        self.done(f"{name} is changed.", remarks, name=name)


class _TemplatesHandler(_EntriesHandler, path="/modeltemplates", resource="edt:catalogue"):
    async def get(self) -> None:
        """Return the user's templates, for a single framework where the query names it."""
        found = [template_object(each) for each in await self.service.catalogue.models.list(self.user, TEMPLATE)]
        wanted = self.get_query_argument("framework", "").lower()
        self.reply([each for each in found if wanted in ("", each["framework"].lower())])

    async def post(self) -> None:
        """Add a template from a location in the data folder."""
        made = await self.service.catalogue.models.add(self.user, new_template(self.body))
        self.done(f"Model template {made.name} is created.", name=made.name)


class _TemplateHandler(_EntriesHandler, path="/modeltemplates/{name}", resource="edt:catalogue"):
    kind = TEMPLATE

    async def get(self, name: str) -> None:
        """Return the template."""
        self.reply(template_object((await self.service.catalogue.models.get(self.user, name, TEMPLATE)).model))

    async def put(self, name: str) -> None:
        """Change the template, for future models."""
        await self.changed(name)

    async def delete(self, name: str) -> None:
        """Remove the template. Models made from it stay."""
        await self.service.catalogue.models.delete(self.user, name, TEMPLATE)
        self.done(f"Model template {name} is deleted.")


class _WmlaModelsHandler(_EntriesHandler, path="/models", resource="edt:catalogue"):
    async def get(self) -> None:
        """Return the user's models."""
        found = await self.service.catalogue.models.list(self.user, MODEL)
        self.reply([model_object(each, self.first_group) for each in found])

    async def post(self) -> None:
        """Make a model of a template."""
        body, user, catalogue = self.body, self.user, self.service.catalogue
        self.group(body.get("sig"))
        new, remarks = new_model(body)
        weights: Path | None = None
        # Before the model is added, because unknown weights would otherwise leave a model without them.
        if body.get("wtfolder"):
            weights = await catalogue.weights.meant(user, str(body["wtfolder"]), {})
        made = await catalogue.models.add(user, new)
        made = await self._completed(made, body, weights)
        self.done(f"Model {made.name} is created.", remarks, name=made.name)

    async def _completed(self, made: Model, body: dict[str, object], weights: Path | None) -> Model:
        models = self.service.catalogue.models
        file = written(body, made.main)
        if file is not None:
            made = await models.write_file(self.user, made.name, file[0], file[1].encode())
        return made if weights is None else await models.set_weights(self.user, made.name, weights)


class _WmlaModelHandler(_EntriesHandler, path="/models/{name}", resource="edt:catalogue"):
    async def get(self, name: str) -> None:
        """Return the model."""
        self.reply(model_object((await self.service.catalogue.models.get(self.user, name)).model, self.first_group))

    async def put(self, name: str) -> None:
        """Change the model, for future trainings."""
        await self.changed(name)

    async def delete(self, name: str) -> None:
        """Remove the model. Its trainings stay."""
        await self.service.catalogue.models.delete(self.user, name)
        self.done(f"Model {name} is deleted.")


class _TemplateFilesHandler(_EntriesHandler, path="/modeltemplates/{name}/files", resource="edt:catalogue"):
    kind = TEMPLATE

    async def get(self, name: str) -> None:
        """Return the names of its files, as they are requested."""
        details = await self.service.catalogue.models.get(self.user, name, self.kind)
        # With the owner's name in front, because the request for a file has the file name as its only argument.
        self.reply([f"{name}/{file.name}" for file in details.files])


class _ModelFilesHandler(_TemplateFilesHandler, path="/models/{name}/files"):
    kind = MODEL

    async def put(self, name: str) -> None:
        """Write a file: tmpfilePath and tmpfileContent, or the main script's tfmainContent."""
        await self.changed(name)


class _TemplateFileHandler(_EntriesHandler, path="/modeltemplates/files/{file}", resource="edt:catalogue"):
    kind = TEMPLATE

    async def get(self, file: str) -> None:
        """Return a file's content as a JSON string."""
        # As the lists of files have it: the model, and a path in it.
        owner, _, name = file.partition("/")
        if not name:
            raise NotFound(
                f"There is no file {file}.", hint="Name it as the list of files does: the model, a slash, the file."
            )
        content = await self.service.catalogue.models.file(self.user, owner, name, self.kind)
        self.reply(content.decode("utf-8", "replace"))


class _ModelFileHandler(_TemplateFileHandler, path="/models/files/{file}"):
    kind = MODEL


class _WeightFileHandler(ReceivingHandler[Parts], ConsoleHandler, path="/models/weightfile", resource="edt:catalogue"):
    open_sink = Parts

    async def received(self, sink: Parts) -> None:
        """Keep the file. A training starts from it when it names the name in the answer as wfinit."""
        files, _ = await asyncio.to_thread(sink.finish)
        if len(files) != 1:
            raise InvalidRequest(f"The request brings {len(files)} files.", hint="Send one, in a part 'file'.")
        name = await self.service.catalogue.weights.add(self.user, files[0].path)
        self.done("The weight file is kept.", name=name)
