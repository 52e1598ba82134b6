"""Conductor of 1.2.x: the applications of an instance group, and the output of their processes."""

from __future__ import annotations

import asyncio
import time

from edt_jupyter.wmla.base import WmlaHandler
from edt_sdk.schemas.errors import NotFound
from edt_server.wmla import ids, log_files
from edt_server.wmla.applications import conductor_application
from edt_server.wmla.execs import ExecQuery, choice, chosen
from edt_server.wmla.states import CONDUCTOR

# 1.2.x's notebooks ask for this type, and use the body as text.
_OCTETS = "application/octet-stream"


class _InstanceApplicationsHandler(WmlaHandler, path="/instances/{sigId}/applications", resource="edt:jobs"):
    async def get(self, sig: str) -> None:
        """Return the user's applications in the group, newest first. `state=` filters by state."""
        wanted = choice(self.query, CONDUCTOR)
        group = ids.group_with(sig, [each.name for each in self.service.sharing.plan.instance_groups])
        if group is None:
            raise NotFound(
                f"There is no instance group {sig}.", hint="An exec's sigId, or GET /scheduler/instances, has the id."
            )
        user, now = self.user, time.time()
        # Without the client's limit: the group is compared here and not in the store, so a limit there would cut too
        # early.
        found = [
            conductor_application(job, await self.service.workers(user, job.view.id), now)
            for job in await self.all_described(ExecQuery(wanted.states))
            if job.view.instance_group == group
        ]
        self.reply(chosen(found, wanted))


class _DriverLogHandler(
    WmlaHandler, path="/instances/{sigId}/applications/{driverId}/logs/{kind}/download", resource="edt:logs"
):
    async def get(self, sig: str, driver: str, kind: str) -> None:
        """Return the driver's output."""
        found = await self.described(driver)
        log = await asyncio.to_thread(log_files.driver_log, found.paths, kind)
        self.finish(log, set_content_type=_OCTETS)


class _ExecutorLogHandler(
    WmlaHandler,
    path="/instances/{sigId}/applications/{driverId}/{executorId}/logs/{kind}/download",
    resource="edt:logs",
):
    async def get(self, sig: str, driver: str, executor: str, kind: str) -> None:
        """Return one worker's output."""
        found, worker = await self.described(driver), ids.worker_meant(executor)
        if worker is None or worker not in await asyncio.to_thread(log_files.workers_seen, found.paths):
            raise NotFound(f"{driver} has no executor {executor}.", hint="The application's executors have their ids.")
        log = await asyncio.to_thread(log_files.worker_log, found.paths, worker, kind)
        self.finish(log, set_content_type=_OCTETS)
