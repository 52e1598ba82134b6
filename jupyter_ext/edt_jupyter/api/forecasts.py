"""When a job would start that is not submitted yet."""

from __future__ import annotations

from edt_jupyter.http.base import EdtHandler
from edt_sdk.schemas.job import parse_spec


class ForecastsHandler(EdtHandler):
    """`/forecasts`."""

    auth_resource = "edt:jobs"
    auth_actions = {"POST": "read"}

    async def post(self) -> None:
        """When it would start, and on how many slots; nothing is submitted."""
        self.reply(await self.service.forecast(self.user, parse_spec(self.request.body)))
