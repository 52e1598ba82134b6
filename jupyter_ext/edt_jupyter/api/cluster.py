"""The machine: slots, queues, threads."""

from __future__ import annotations

from edt_jupyter.http.base import EdtHandler


class ClusterHandler(EdtHandler):
    """`/cluster`."""

    auth_resource = "edt:cluster"

    async def get(self) -> None:
        """Slots with the job in each, groups and how they stand to each other, jobs that live."""
        self.reply(await self.service.cluster(self.user))
