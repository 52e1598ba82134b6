"""`/edt/api` itself: what this server is, and the OpenAPI description of its routes."""

from __future__ import annotations

import sys
from importlib.metadata import version

from edt_jupyter.api.openapi import document
from edt_jupyter.http.base import EdtHandler
from edt_sdk.schemas.errors import NotFound


class _RootHandler(EdtHandler, path="/", resource="edt:cluster"):
    async def get(self) -> None:
        """Return name, version and limits."""
        settings = self.service.settings
        self.reply(
            {
                "name": "jupyter-edt",
                "version": version("jupyter-edt"),
                # A client compares its package with this before it sends anything.
                "max_upload_bytes": settings.max_upload_bytes,
                "python": f"{sys.version_info.major}.{sys.version_info.minor}",
                "user": self.user,
                "instance_groups": [group.name for group in self.service.sharing.plan.leaves()],
                "slots": self.service.capacity,
            }
        )


class _SpecHandler(EdtHandler, path="/spec.yaml", resource="edt:cluster"):
    async def get(self) -> None:
        """Send the OpenAPI description."""
        self.finish(document(), set_content_type="application/yaml")


class UnknownHandler(EdtHandler, resource="edt:cluster"):
    """Every other path under `/edt/api`."""

    async def get(self, _path: str) -> None:
        """Refuse the request as NotFound."""
        raise NotFound(f"There is no {self.request.path}.", hint="See /edt/api/spec.yaml.")

    head = post = put = patch = delete = get
