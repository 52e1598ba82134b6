"""Execs: submit, list, show, stop, remove, their training log, and their result as a zip."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

from edt_jupyter.api import send_archive
from edt_jupyter.http.receiving import ReceivingHandler
from edt_jupyter.wmla.base import WmlaHandler
from edt_jupyter.wmla.parts import Parts, form_data
from edt_sdk.schemas.errors import Conflict, NotFound
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.job import JobView
from edt_server.jobs import main_file
from edt_server.wmla import frameworks
from edt_server.wmla.archive import pack
from edt_server.wmla.execs import choice, chosen, exec_object
from edt_server.wmla.log_files import training_log
from edt_server.wmla.request import arguments_of, job_spec

_PATIENCE = 30.0
_LOOK_AGAIN = 1.0


class RemovingHandler(WmlaHandler):
    """Base of a handler that removes jobs."""

    async def removed(self, job: str) -> bool:
        """Remove a stopped job once its processes have ended. Returns False when that takes too long."""
        try:
            async with asyncio.timeout(_PATIENCE):
                # Subscribed before the look, so that an end in between is not missed.
                with self.service.hub.watch(job) as watch:
                    while not self.service.ended(job):
                        await watch.wait(_LOOK_AGAIN)
        except TimeoutError:
            return False
        with contextlib.suppress(NotFound):
            await self.service.delete(self.user, job)
        return True

    async def stopped_and_removed(self, view: JobView, what: str) -> None:
        """Stop the job if it runs, and remove it. Conflict when its processes take too long to end."""
        if not view.state.final:
            await self.service.stop_job(self.user, view.id)
        if not await self.removed(view.id):
            raise Conflict(f"{what} is still ending.", hint="Delete it again in a moment.")


class _ExecsHandler(ReceivingHandler[Parts], RemovingHandler, path="/execs", resource="edt:jobs"):
    open_sink = Parts

    async def received(self, sink: Parts) -> None:
        """Start an exec."""
        parts, fields = await asyncio.to_thread(sink.finish)
        form = form_data(fields)
        # Notebooks send a blank as %20 and the SDK as +. Tornado decodes both.
        arguments = arguments_of(self.get_query_argument("args", fields.get("args", "")), form)
        settings, service = self.service.settings, self.service
        sig_name = self.get_query_argument("sigName", fields.get("sigName", ""))
        make_spec = partial(job_spec, arguments, sig_name=sig_name, form=form, slots=service.capacity)
        spec = make_spec()  # an error in the options is reported before any error in the files
        packed = await asyncio.to_thread(
            pack,
            parts,
            sink.folder,
            main=main_file(spec),
            model_dir=arguments.model_dir,
            max_files=settings.max_package_files,
            max_bytes=settings.max_package_bytes,
        )
        # A second time, because only the packed archive shows where the code folder is.
        view = await service.submit(self.user, make_spec(code_dir=packed.code_dir), packed.path)
        self.reply(exec_object(await self.described(view.id), server=self.base_address))

    async def get(self) -> None:
        """List the user's execs, newest first, or in the requested order and number."""
        wanted = choice(self.query)
        found = [exec_object(job, server=self.base_address) for job in await self.all_described(wanted)]
        self.reply(chosen(found, wanted))

    async def delete(self) -> None:
        """Remove all execs of the user. Running ones are stopped first."""
        user, found = self.user, await self.all_described()
        # All are stopped first, so that their processes end at the same time and not one after the other.
        await self.service.stop_all(user)
        left = [job.view.id for job in found if not await self.removed(job.view.id)]
        self.reply({"message": f"Still ending: {', '.join(left)}. Delete them later." if left else "Deleted."})


class _ExecHandler(RemovingHandler, path="/execs/{id}", resource="edt:jobs"):
    async def get(self, job: str) -> None:
        """Return the exec as it is now."""
        self.reply(exec_object(await self.described(job), server=self.base_address))

    async def delete(self, job: str) -> None:
        """Remove the exec. A running one is stopped first."""
        found = await self.described(job)
        await self.stopped_and_removed(found.view, f"Exec {job}")
        self.reply({"message": f"Exec {found.view.id} is deleted."})


class _ExecStopHandler(WmlaHandler, path="/execs/{id}/stop", resource="edt:jobs"):
    async def post(self, job: str) -> None:
        """Stop the exec: accepted now, done when its processes have ended."""
        found = await self.described(job)
        await self.service.stop_job(self.user, found.view.id)
        self.reply({"message": f"Exec {found.view.id} is being stopped."})


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


class _FrameworksHandler(WmlaHandler, path="/execs/frameworks", resource="edt:cluster"):
    async def get(self) -> None:
        """Return the frameworks that `--exec-start` may name."""
        self.reply(frameworks.listing(self.service.capacity))


class _FrameworkDetailsHandler(WmlaHandler, path="/frameworks", resource="edt:cluster"):
    async def get(self) -> None:
        """Return the frameworks with their engines."""
        self.reply(frameworks.details(self.get_query_argument("backend", "")))


class _FrameworkNamesHandler(WmlaHandler, path="/frameworks/all", resource="edt:cluster"):
    async def get(self) -> None:
        """Return the names of the frameworks."""
        self.reply([each["name"] for each in frameworks.details()])
