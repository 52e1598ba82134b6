"""Inference models under the paths of the SDK's first version: `/edimodels`, see `inference_models.py`."""

from __future__ import annotations

from typing import Any

# Modules and not classes: a class with a path belongs to the module that has it in its names.
from edt_jupyter.wmla import inference as calls
from edt_jupyter.wmla import inference_models as models
from edt_sdk.schemas.errors import InvalidRequest
from edt_server.wmla.inference.descriptions import pairs

# As the SDK's first version writes it.
_RIGHT, _WRONG = "schedule_interval", "schedule_intervel"


class _EdiModelsHandler(models.ModelsHandler, path="/edimodels"):
    pass


class _NewEdiModelHandler(models.InferenceHandler, path="/edimodels/new", resource="edt:deployments"):
    async def post(self) -> None:
        """Add a model: a kernel, with the files of a folder in the data folder."""
        row = await self.models.add_folder(self.user, _fields(self.body), _kernel(self.body))
        self.status(f"Model {row.name} is created.", name=row.name)


class _EdiModelHandler(models.ModelHandler, path="/edimodels/{modelname}"):
    async def post(self, name: str) -> None:
        """Add a model of the code of a model of the catalogue, with a kernel."""
        fields = _fields({"name": name, **self.body})
        row = await self.models.publish(self.user, name, fields, _kernel(self.body))
        self.status(f"Model {row.name} is published.", name=row.name)


class _EdiInferenceHandler(calls.InferenceCallHandler, path="/edimodels/{modelname}/inference"):
    pass


class _EdiInstanceHandler(models.InstanceHandler, path="/edimodels/{modelname}/instance"):
    pass


class _EdiReadmeHandler(models.ReadmeHandler, path="/edimodels/{modelname}/readme"):
    pass


class _EdiStartHandler(models.StartHandler, path="/edimodels/{modelname}/operation/start"):
    pass


class _EdiStopHandler(models.StopHandler, path="/edimodels/{modelname}/operation/stop"):
    pass


class _EdiProfileHandler(models.ProfileHandler, path="/edimodels/{modelname}/appprofile"):
    async def get(self, name: str) -> None:
        """Return the profile, with the interval under both names."""
        found = await self.models.profile(self.user, name)
        found["policy"][_WRONG] = found["policy"][_RIGHT]
        self.reply(found)

    @property
    def body(self) -> dict[str, Any]:
        """Return the profile as the second version writes it."""
        found = super().body
        policy = found.get("policy")
        if isinstance(policy, dict) and _WRONG in policy:
            policy[_RIGHT] = policy.pop(_WRONG)
        if "envs" in found:
            found["kernel"] = {**(found.get("kernel") or {}), "envs": found.pop("envs")}
        return found


def _kernel(body: dict[str, Any]) -> str:
    """Return the kernel of a body: a text, or the place of one. InvalidRequest for none."""
    if not (kernel := str(body.get("edi_py") or "")):
        raise InvalidRequest("edi_py names the kernel.", field="edi_py")
    return kernel


def _fields(body: dict[str, Any]) -> dict[str, Any]:
    """Return the description that a body of the first version means."""
    return {
        "name": body.get("name"),
        "model_path": body.get("modelPath"),
        "weight_path": body.get("weightPath"),
        "runtime": body.get("runtime"),
        "attributes": pairs(body.get("attribute"), "attribute", "key"),
        "mk_environments": pairs(body.get("mcenv"), "mcenv", "name"),
    }
