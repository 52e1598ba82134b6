"""The workers of a job that run now."""

from __future__ import annotations

from edt_jupyter.http.base import EdtHandler


class WorkersHandler(EdtHandler):
    """`/jobs/{id}/workers`."""

    auth_resource = "edt:jobs"

    async def get(self, job: str) -> None:
        """Slot, host, pid, rank and generation of each."""
        self.reply({"workers": await self.service.workers(self.user, job)})
