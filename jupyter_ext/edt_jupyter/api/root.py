"""`/edt/api` itself: what answers here, and its OpenAPI description."""

from __future__ import annotations

import sys
from importlib.metadata import version
from importlib.resources import files

from tornado.web import authenticated

from edt_jupyter.http.authorization import authorized
from edt_jupyter.http.base import EdtHandler
from edt_sdk.schemas.errors import NotFound


class RootHandler(EdtHandler):
    """What this server is, for clients that look for one."""

    @authenticated
    @authorized("read", resource="edt:cluster")
    async def get(self) -> None:
        """Name, version and limits."""
        settings = self.service.settings
        self.reply(
            {
                "name": "jupyter-edt",
                "version": version("jupyter-edt"),
                "max_upload_bytes": settings.max_upload_bytes,
                "python": f"{sys.version_info.major}.{sys.version_info.minor}",
                "user": self.user,
                "instance_groups": [group.name for group in self.service.sharing.plan.leaves()],
            }
        )


class SpecHandler(EdtHandler):
    """The OpenAPI file."""

    @authenticated
    @authorized("read", resource="edt:cluster")
    async def get(self) -> None:
        """The file as it is in the package."""
        self.finish(files("edt_jupyter").joinpath("openapi.yaml").read_bytes(), set_content_type="application/yaml")


class UnknownHandler(EdtHandler):
    """Every path under `/edt/api` that is none of the others."""

    def _unknown(self) -> NotFound:
        return NotFound(f"There is no {self.request.path}.", hint="See /edt/api/spec.yaml.")

    @authenticated
    @authorized("read", resource="edt:cluster")
    async def get(self, _path: str) -> None:
        """NotFound."""
        raise self._unknown()

    @authenticated
    @authorized("read", resource="edt:cluster")
    async def head(self, _path: str) -> None:
        """NotFound."""
        raise self._unknown()

    @authenticated
    @authorized("write", resource="edt:cluster")
    async def post(self, _path: str) -> None:
        """NotFound."""
        raise self._unknown()

    @authenticated
    @authorized("write", resource="edt:cluster")
    async def put(self, _path: str) -> None:
        """NotFound."""
        raise self._unknown()

    @authenticated
    @authorized("write", resource="edt:cluster")
    async def patch(self, _path: str) -> None:
        """NotFound."""
        raise self._unknown()

    @authenticated
    @authorized("write", resource="edt:cluster")
    async def delete(self, _path: str) -> None:
        """NotFound."""
        raise self._unknown()
