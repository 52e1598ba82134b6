"""Models of Elastic Distributed Inference: upload, list, show, change, start, stop, delete; their profiles and readmes.

`edimodels.py` has the same under the paths of the SDK's first version.
"""

from __future__ import annotations

from typing import Any

from edt_jupyter.http.receiving import ReceivingHandler
from edt_jupyter.wmla.console import ConsoleHandler
from edt_sdk.schemas.errors import InvalidRequest
from edt_server.store import CatalogueRow
from edt_server.wmla.inference.archives import ModelArchive
from edt_server.wmla.inference.models import InferenceModels

_OURS = "edt:deployments"


class InferenceHandler(ConsoleHandler):
    """Base of the handlers for models."""

    @property
    def models(self) -> InferenceModels:
        """The verbs for models."""
        return InferenceModels(self.service)

    def shown(self, row: CatalogueRow) -> dict[str, Any]:
        """Return a model as these clients see it."""
        return self.models.shown(row, server=self.base_address)

    def status(self, text: str, **more: Any) -> None:
        """Answer that the request succeeded."""
        self.reply({"status": text, **more})


class ModelsHandler(InferenceHandler, resource=_OURS):
    """Base of what lists all models of a user."""

    async def get(self) -> None:
        """Return the models."""
        self.reply([self.shown(row) for row in await self.models.rows(self.user)])


class _ModelsHandler(ModelsHandler, path="/model"):
    async def post(self) -> None:
        """Add a model whose files lie in the data folder."""
        row = await self.models.add_folder(self.user, self.body)
        self.status(f"Model {row.name} is created.", name=row.name)


class _DeployHandler(ReceivingHandler[ModelArchive], InferenceHandler, path="/deployment/model", resource=_OURS):
    open_sink = ModelArchive

    async def received(self, sink: ModelArchive) -> None:
        """Add the model of an archive. It is stopped."""
        row = await self.models.add(self.user, sink)
        self.status(f"Model {row.name} is deployed.", name=row.name)


class _DeployAgainHandler(_DeployHandler, path="/deployment/model/{model}"):
    async def received(self, sink: ModelArchive) -> None:
        """Replace the package of a stopped model. The next start makes another version of it."""
        row = await self.models.add(self.user, sink, again=self.path_args[0])
        self.status(f"Model {row.name} is deployed again.", name=row.name)


class ModelHandler(InferenceHandler, path="/model/{model}", resource=_OURS):
    """One model."""

    async def get(self, name: str) -> None:
        """Return the model."""
        self.reply(self.shown(await self.models.row(self.user, name)))

    async def put(self, name: str) -> None:
        """Change its description. It is stopped."""
        await self.models.change(self.user, name, self.body)
        self.status(f"Model {name} is updated.")

    async def delete(self, name: str) -> None:
        """Remove it with its deployment. It is stopped."""
        await self.models.delete(self.user, name)
        self.status(f"Model {name} is deleted.")


class StartHandler(InferenceHandler, path="/model/{model}/operation/start", resource=_OURS):
    """The start of a model."""

    async def put(self, name: str) -> None:
        """Start it."""
        await self.models.start(self.user, name)
        self.status(f"Model {name} is started.")


class StopHandler(InferenceHandler, path="/model/{model}/operation/stop", resource=_OURS):
    """The end of a start."""

    async def put(self, name: str) -> None:
        """Stop it."""
        await self.models.stop(self.user, name)
        self.status(f"Model {name} is stopped.")


class InstanceHandler(InferenceHandler, path="/model/{model}/instance", resource=_OURS):
    """What runs of a model."""

    async def get(self, name: str) -> None:
        """Return its state and its counts."""
        self.reply(await self.models.instance(self.user, name))


class ProfileHandler(InferenceHandler, path="/model/{model}/appprofile", resource=_OURS):
    """The application profile of a model."""

    async def get(self, name: str) -> None:
        """Return the profile."""
        self.reply(await self.models.profile(self.user, name))

    async def put(self, name: str) -> None:
        """Change the profile. The model is stopped."""
        await self.models.change_profile(self.user, name, self.body)
        self.status(f"The profile of {name} is updated.")


class ReadmeHandler(InferenceHandler, resource=_OURS):
    """Base of what answers with a text for people about a model."""

    async def get(self, name: str) -> None:
        """Return the text."""
        self.reply({"readme": await self.models.readme(self.user, name)})


class _ReadmeHandler(ReadmeHandler, path="/model/{model}/readme"):
    async def put(self, name: str) -> None:
        """Change the text."""
        text = self.body.get("readme")
        if not isinstance(text, str):
            raise InvalidRequest("readme is a text.", field="readme")
        await self.models.change_readme(self.user, name, text)
        self.status(f"The readme of {name} is updated.")


class _ExtensionHandler(InferenceHandler, path="/modelextension", resource=_OURS):
    async def get(self) -> None:
        """Return the models, and the resource plan of each."""
        rows = await self.models.rows(self.user)
        profiles = [await self.models.profile(self.user, row.name) for row in rows]
        plans = [each["resource_allocation"]["kernel"]["consumer"] or self.first_group for each in profiles]
        extensions = [{"name": row.name, "resource_plan": plan} for row, plan in zip(rows, plans, strict=True)]
        self.reply({"model_list": [self.shown(row) for row in rows], "extension_list": extensions})
