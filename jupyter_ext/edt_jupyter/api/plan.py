"""The plan: how the slots are shared, read and replaced as one value."""

from __future__ import annotations

from edt_jupyter.http.base import EdtHandler
from edt_sdk.schemas.plan import Plan, parse_plan
from edt_server.service import version


class PlanHandler(EdtHandler):
    """`/plan`."""

    auth_resource = "edt:plan"

    _version = ""

    async def get(self) -> None:
        """All groups, and in ETag the version to name in If-Match."""
        self._reply(self.service.sharing.plan)

    async def put(self) -> None:
        """Replace it, whole or not at all; with If-Match only where nobody else did since it was read."""
        plan = parse_plan(self.request.body)
        self._reply(await self.service.sharing.set_plan(self.user, plan, made_from=self._made_from()))

    def _made_from(self) -> str | None:
        named = self.request.headers.get("If-Match", "*").strip()
        # A proxy that compresses makes it a weak one; the plan is the same.
        return None if named == "*" else named.removeprefix("W/").strip('"')

    def _reply(self, plan: Plan) -> None:
        self._version = version(plan)
        self.set_header("ETag", f'"{self._version}"')
        self.reply(plan)

    def compute_etag(self) -> str | None:
        """The version of the plan that is answered, None for an error."""
        return f'"{self._version}"' if self._version else None
