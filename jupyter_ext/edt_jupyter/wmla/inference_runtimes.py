"""Runtimes of Elastic Distributed Inference: one is built in, others are kept, and give kernels their variables."""

from __future__ import annotations

from edt_jupyter.wmla.inference_models import InferenceHandler
from edt_server.wmla.inference.runtimes import BUILT_IN, SCHEMA, runtime_object


class _RuntimesHandler(InferenceHandler, path="/deployment/runtime", resource="edt:deployments"):
    async def get(self) -> None:
        """Return all runtimes."""
        kept = [runtime_object(row) for row in await self.models.runtimes(self.user)]
        self.reply({"schema_version": SCHEMA, "runtimes": [BUILT_IN, *kept]})

    async def post(self) -> None:
        """Keep a runtime."""
        self.status(f"Runtime {await self.models.add_runtime(self.user, self.body)} is created.")


class _RuntimeHandler(InferenceHandler, path="/deployment/runtime/{runtime}", resource="edt:deployments"):
    async def get(self, name: str) -> None:
        """Return the runtime."""
        own = name != BUILT_IN.type
        self.reply(runtime_object(await self.models.runtime(self.user, name)) if own else BUILT_IN)

    async def put(self, name: str) -> None:
        """Change the runtime, for starts to come."""
        await self.models.change_runtime(self.user, name, self.body)
        self.status(f"Runtime {name} is updated.")

    async def delete(self, name: str) -> None:
        """Remove the runtime."""
        await self.models.delete_runtime(self.user, name)
        self.status(f"Runtime {name} is deleted.")
