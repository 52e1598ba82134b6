"""The files of an exec: its training log, and its result as a zip."""

from __future__ import annotations

import asyncio

from edt_jupyter.api import send_archive
from edt_jupyter.wmla.base import WmlaHandler
from edt_sdk.schemas.frameworks import Framework
from edt_server.wmla.log_files import training_log


class _ExecLogHandler(WmlaHandler, path="/execs/{id}/log", resource="edt:logs"):
    async def get(self, job: str) -> None:
        """Return the log as a JSON string, or as plain text where the client accepts that."""
        found = await self.described(job)
        log = await asyncio.to_thread(
            training_log,
            found.paths,
            elastic_engine=found.view.framework == Framework.EDT,
            kind=self.get_query_argument("logType", ""),
            final=found.view.state.final,
        )
        # Only this type gives plain text. One notebook accepts octets and still parses the body as JSON.
        if "text/plain" in self.request.headers.get("Accept", ""):
            self.text(log)
        else:
            self.reply(log)


class _ExecResultHandler(WmlaHandler, path="/execs/{id}/result", resource="edt:artifacts"):
    async def get(self, job: str) -> None:
        """Send the whole result folder as a zip, with its size in the header where these clients read it."""
        found = await self.described(job)
        # Their result tree has the output of processes only in the logs.
        await send_archive(self, await self.service.result(self.user, found.view.id, "all", streams=False))
