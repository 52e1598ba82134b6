"""Forecasts: when a job that is not submitted yet would start, and what other settings of a job would change."""

from __future__ import annotations

from edt_jupyter.http.base import EdtHandler
from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.job import JobPatch, parse_spec


class _ForecastsHandler(EdtHandler, path="/forecasts", resource="edt:jobs"):
    # A forecast changes nothing, so the right to read is enough for this POST.
    auth_actions = {"POST": "read"}

    async def post(self) -> None:
        """Return when the job would start, and on how many slots. Nothing is submitted."""
        self.reply(await self.service.forecast(self.user, parse_spec(self.request.body)))


class _WhatIfHandler(EdtHandler, path="/jobs/{id}/what-if", resource="edt:jobs"):
    async def get(self, job: str) -> None:
        """Return the slots that each job would hold, and when the job would end. Nothing is changed."""
        patch = JobPatch(
            priority=self._given("priority"),
            max_workers=self._given("max_workers"),
            instance_group=self.get_query_argument("instance_group", None),
        )
        self.reply(await self.service.what_if(self.user, job, patch))

    def _given(self, name: str) -> int | None:
        text = self.get_query_argument(name, "")
        try:
            return int(text) if text else None
        except ValueError:
            raise InvalidRequest(f"{name} is a whole number, not {text!r}.", field=name) from None
