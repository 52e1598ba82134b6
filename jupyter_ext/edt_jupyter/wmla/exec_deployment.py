"""The deployment of what an exec has trained, which dlicmd asks for."""

from __future__ import annotations

from edt_jupyter.wmla.inference_models import InferenceHandler
from edt_sdk.schemas.errors import InvalidRequest
from edt_server.wmla.inference.descriptions import pairs


class _ExecDeployHandler(InferenceHandler, path="/execs/{id}/deploy", resource="edt:deployments"):
    async def post(self, job: str) -> None:
        """Add and start a model: the exec's code with a kernel of it, and the weights that it has trained."""
        found, body = await self.described(job), self.body
        if not body.get("kernel"):
            hint = "Name it: kernel."
            raise InvalidRequest("Which file of the exec's code is the kernel?", hint=hint, field="kernel")
        fields = {
            "name": body.get("name") or found.view.name,
            "kernel_path": body["kernel"],
            "runtime": body.get("runtime"),
            "tag": body.get("tag"),
            "attributes": pairs(body.get("attributes"), "attributes", "key"),
            "mk_environments": pairs(body.get("environments"), "environments", "name"),
        }
        row = await self.models.add_job(self.user, found.view.id, fields, str(body.get("weight") or ""))
        await self.models.start(self.user, row.name)
        self.reply({"name": row.name, "service_uri": self.shown(row)["service_uri"]})
