"""Execs: submit, list, show, stop, remove."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

from edt_jupyter.http.receiving import ReceivingHandler
from edt_jupyter.wmla.base import WmlaHandler
from edt_jupyter.wmla.parts import Parts, form_data
from edt_sdk.schemas.errors import Conflict, NotFound
from edt_sdk.schemas.job import JobView
from edt_server.jobs import main_file
from edt_server.settings import Settings
from edt_server.wmla import frameworks
from edt_server.wmla.archive import pack
from edt_server.wmla.execs import choice, chosen, exec_object
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
    def open_sink(self, content_type: str, settings: Settings) -> Parts:
        """Return a sink that writes a model's files to the disk as they arrive."""
        return Parts(self.service.uploads, content_type, settings.max_upload_bytes)

    async def post(self) -> None:
        """Start an exec."""
        if self.sink is None:  # refused and answered
            self.hang_up()
            return
        parts, fields = await asyncio.to_thread(self.sink.finish)
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
            self.sink.folder,
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
        self.reply(chosen(found, wanted, lambda each, key: each.get(key)))

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
