"""The tree of instance groups, shown as dlicmd's resource plans."""

from __future__ import annotations

from edt_jupyter.wmla.base import WmlaHandler
from edt_sdk.schemas.plan import InstanceGroup
from edt_server.wmla.plan_tree import node, tree


class PlanTreeHandler(WmlaHandler):
    """`/resplans/resplantree`."""

    auth_resource = "edt:plan"

    async def get(self) -> None:
        """Return the whole tree."""
        self.reply(tree(self.service.sharing.plan))


class ResourcePlanHandler(WmlaHandler):
    """`/resplans/resplan/{name}`."""

    auth_resource = "edt:plan"

    async def get(self, name: str) -> None:
        """Return one group with its settings."""
        self.reply(node(self.service.sharing.plan, name))

    async def delete(self, name: str) -> None:
        """Remove the group. Refused while jobs are in it."""
        group = str(node(self.service.sharing.plan, name)["id"])
        await self.service.sharing.remove(self.user, InstanceGroup, group)
        self.reply({"message": f"Resource plan {group} is deleted."})
