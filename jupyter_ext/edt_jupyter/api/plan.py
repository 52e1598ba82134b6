"""The plan, which divides the slots: as one value, or one group at a time.

A change of a single group is a change of the whole plan.
"""

from __future__ import annotations

from typing import Any

from edt_jupyter.http.base import EdtHandler
from edt_sdk.schemas.job import parse_change
from edt_sdk.schemas.plan import InstanceGroup, Plan, ResourceGroup, parse_plan
from edt_server.service import find_group, version


class _PlanHandler(EdtHandler, path="/plan", resource="edt:plan"):
    _version = ""

    async def get(self) -> None:
        """Return all groups, with the version for If-Match as the ETag."""
        self._reply(self.service.sharing.plan)

    async def put(self) -> None:
        """Replace the whole plan or nothing. With If-Match only if it has not changed since it was read."""
        plan = parse_plan(self.request.body)
        # The version is compared inside the transaction that replaces the plan, so in a race of two administrators the
        # second one is refused (docs/decisions/019).
        self._reply(await self.service.sharing.set_plan(self.user, plan, made_from=self._made_from()))

    def _made_from(self) -> str | None:
        # Optional, so that a script need not read the plan first (docs/decisions/019).
        named = self.request.headers.get("If-Match", "*").strip()
        # A proxy that compresses turns it into a weak ETag. The plan is the same.
        return None if named == "*" else named.removeprefix("W/").strip('"')

    def _reply(self, plan: Plan) -> None:
        self._version = version(plan)
        self.set_header("ETag", f'"{self._version}"')
        self.reply(plan)

    def compute_etag(self) -> str | None:
        """Return the version of the plan in the answer, None for an error."""
        # Tornado would hash the body, which is not the version that If-Match compares.
        return f'"{self._version}"' if self._version else None


class _InstanceGroupsHandler(EdtHandler, path="/instance-groups", resource="edt:plan"):
    async def get(self) -> None:
        """Return all instance groups."""
        self.reply({"instance_groups": self.service.sharing.plan.instance_groups})

    async def post(self) -> None:
        """Add an instance group."""
        group = parse_change(self.request.body, InstanceGroup)
        self.reply(await self.service.sharing.add(self.user, group), 201)


class _InstanceGroupHandler(EdtHandler, path="/instance-groups/{name}", resource="edt:plan"):
    async def get(self, name: str) -> None:
        """Return the group."""
        self.reply(find_group(self.service.sharing.plan, InstanceGroup, name))

    async def patch(self, name: str) -> None:
        """Change the fields in the body."""
        changes = parse_change(self.request.body, dict[str, Any])
        self.reply(await self.service.sharing.change(self.user, InstanceGroup, name, changes))

    async def delete(self, name: str) -> None:
        """Remove the group."""
        await self.service.sharing.remove(self.user, InstanceGroup, name)
        self.set_status(204)
        self.finish()


class _ResourceGroupsHandler(EdtHandler, path="/resource-groups", resource="edt:plan"):
    async def get(self) -> None:
        """Return all resource groups."""
        self.reply({"resource_groups": self.service.sharing.plan.resource_groups})

    async def post(self) -> None:
        """Add a resource group."""
        group = parse_change(self.request.body, ResourceGroup)
        self.reply(await self.service.sharing.add(self.user, group), 201)


class _ResourceGroupHandler(EdtHandler, path="/resource-groups/{name}", resource="edt:plan"):
    async def get(self, name: str) -> None:
        """Return the group."""
        self.reply(find_group(self.service.sharing.plan, ResourceGroup, name))

    async def patch(self, name: str) -> None:
        """Change the fields in the body."""
        changes = parse_change(self.request.body, dict[str, Any])
        self.reply(await self.service.sharing.change(self.user, ResourceGroup, name, changes))

    async def delete(self, name: str) -> None:
        """Remove the group."""
        await self.service.sharing.remove(self.user, ResourceGroup, name)
        self.set_status(204)
        self.finish()
