"""The plan: how the slots are shared, read and replaced as one value."""

from __future__ import annotations

from tornado.web import authenticated

from edt_jupyter.authorization import authorized
from edt_jupyter.base import EdtHandler
from edt_sdk.schemas.plan import parse_plan


class PlanHandler(EdtHandler):
    """`/plan`."""

    @authenticated
    @authorized("read", resource="edt:plan")
    async def get(self) -> None:
        """All groups."""
        self.reply(self.service.sharing.plan)

    @authenticated
    @authorized("write", resource="edt:plan")
    async def put(self) -> None:
        """Replace it, whole or not at all."""
        self.reply(await self.service.sharing.set_plan(self.user, parse_plan(self.request.body)))
