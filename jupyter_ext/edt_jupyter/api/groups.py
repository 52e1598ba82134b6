"""Instance groups and resource groups, one at a time: each change is one of the whole plan."""

from __future__ import annotations

from typing import Any

from edt_jupyter.http.base import EdtHandler
from edt_sdk.schemas.job import parse_change
from edt_sdk.schemas.plan import InstanceGroup, ResourceGroup
from edt_server.service import instance_group, resource_group


class InstanceGroupsHandler(EdtHandler):
    """`/instance-groups`."""

    auth_resource = "edt:plan"

    async def get(self) -> None:
        """All of them."""
        self.reply({"instance_groups": self.service.sharing.plan.instance_groups})

    async def post(self) -> None:
        """Add one."""
        group = parse_change(self.request.body, InstanceGroup)
        self.reply(await self.service.sharing.add_instance_group(self.user, group), 201)


class InstanceGroupHandler(EdtHandler):
    """`/instance-groups/{name}`."""

    auth_resource = "edt:plan"

    async def get(self, name: str) -> None:
        """The group."""
        self.reply(instance_group(self.service.sharing.plan, name))

    async def patch(self, name: str) -> None:
        """Change what the body names."""
        changes = parse_change(self.request.body, dict[str, Any])
        self.reply(await self.service.sharing.change_instance_group(self.user, name, changes))

    async def delete(self, name: str) -> None:
        """Remove it."""
        await self.service.sharing.remove_instance_group(self.user, name)
        self.set_status(204)
        self.finish()


class ResourceGroupsHandler(EdtHandler):
    """`/resource-groups`."""

    auth_resource = "edt:plan"

    async def get(self) -> None:
        """All of them."""
        self.reply({"resource_groups": self.service.sharing.plan.resource_groups})

    async def post(self) -> None:
        """Add one."""
        group = parse_change(self.request.body, ResourceGroup)
        self.reply(await self.service.sharing.add_resource_group(self.user, group), 201)


class ResourceGroupHandler(EdtHandler):
    """`/resource-groups/{name}`."""

    auth_resource = "edt:plan"

    async def get(self, name: str) -> None:
        """The group."""
        self.reply(resource_group(self.service.sharing.plan, name))

    async def patch(self, name: str) -> None:
        """Change what the body names."""
        changes = parse_change(self.request.body, dict[str, Any])
        self.reply(await self.service.sharing.change_resource_group(self.user, name, changes))

    async def delete(self, name: str) -> None:
        """Remove it."""
        await self.service.sharing.remove_resource_group(self.user, name)
        self.set_status(204)
        self.finish()
