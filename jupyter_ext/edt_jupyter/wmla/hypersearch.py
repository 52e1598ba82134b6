"""Searches for hyper-parameters: start, list, show, stop, restart and delete. Each is a native search."""

from __future__ import annotations

import asyncio
import re
import secrets
from dataclasses import replace
from functools import partial
from typing import Any

from edt_jupyter.http.receiving import ReceivingHandler
from edt_jupyter.wmla.console import ConsoleHandler
from edt_jupyter.wmla.parts import Parts, form_data
from edt_sdk.schemas.errors import Conflict, InvalidRequest, NotFound
from edt_sdk.schemas.search.spec import MOST_TRIALS
from edt_sdk.schemas.search.views import SearchState, SearchView
from edt_server.jobs import main_file
from edt_server.wmla.archive import pack
from edt_server.wmla.execs import choice, chosen
from edt_server.wmla.hypersearch import part, search_spec, task_object
from edt_server.wmla.request import arguments_of, job_spec

_DIGITS = 10**16


class TaskHandler(ConsoleHandler):
    """Base of the handlers for tasks, as WMLA calls searches."""

    async def task(self, name: str) -> SearchView:
        """Return the user's search with this name or id. NotFound, or NotAllowed for another user's."""
        searches, user = self.service.searches, self.user
        if found := await searches.searches(user, name=name):
            return found[0]
        try:
            return await searches.search(user, name)
        except NotFound:
            raise NotFound(f"There is no task {name}.", hint="GET /hypersearch lists those there are.") from None

    async def shown(self, view: SearchView) -> dict[str, Any]:
        """Return a search as its state object."""
        searches, user = self.service.searches, self.user
        trials = await searches.trials(user, view.id, limit=MOST_TRIALS)
        reports, submitted = await searches.reports(user, view.id), await searches.submitted(user, view.id)
        return task_object(view, trials, reports, submitted, self.service.now())

    def new_name(self, name: str = "") -> str:
        """Return the name of a task that is given none."""
        return name or f"{re.sub(r'[^a-zA-Z0-9_.-]', '-', self.user)[:80]}-hpo-{secrets.randbelow(_DIGITS):016}"

    async def stop(self, view: SearchView) -> None:
        """Stop a task: accepted now, done when its trainings have ended."""
        if view.state.final:
            # Word for word as recorded.
            raise Conflict(f"Model tuning {view.spec.job.name} is already stopped.")
        await self.service.searches.stop_search(self.user, view.id)
        self.done(f"Model tuning {view.spec.job.name} is being stopped.")

    async def restart(self, view: SearchView) -> None:
        """Go on with a task that was stopped."""
        name, state = view.spec.job.name, view.state
        if state not in (SearchState.STOPPED, SearchState.PAUSED):
            raise Conflict(f"Model tuning {name} is {state.lower()}.", hint="A stopped one can be restarted.")
        await self.service.searches.resume(self.user, view.id)
        self.done(f"Model tuning {name} goes on.")

    async def remove(self, view: SearchView) -> None:
        """Remove a task, a running one after it was stopped. Its trainings stay."""
        if not view.state.final:
            await self.service.searches.stop_search(self.user, view.id)
        await self.service.searches.delete(self.user, view.id)


class _TasksHandler(ReceivingHandler[Parts], TaskHandler, path="/hypersearch", resource="edt:searches"):
    open_sink = Parts

    async def received(self, sink: Parts) -> None:
        """Start a task."""
        parts, fields = await asyncio.to_thread(sink.finish)
        form, service = form_data(fields), self.service
        if not form:
            raise InvalidRequest("The request has no data.", hint="data is a form field with JSON.", field="data")
        model = part(form, "modelSpec")
        sig_name = model.get("sigName") or ""
        if not isinstance(sig_name, str):
            raise InvalidRequest("sigName is the name of an instance group.", field="modelSpec.sigName")
        arguments = arguments_of(None, model)
        job = partial(job_spec, arguments, sig_name=sig_name, slots=service.capacity)
        # An error in the definition is reported before any error in the files.
        wanted = partial(search_spec, form, name=self.new_name(), seed=secrets.randbelow(1 << 31))
        wanted(job()).check()
        if len(parts) != 1:
            hint = "Send the model's tar, or its script, as the one file."
            raise InvalidRequest(f"The request brings {len(parts)} files.", hint=hint, field="file")
        packed = await asyncio.to_thread(
            pack,
            parts,
            sink.folder,
            main=main_file(job()),
            model_dir=arguments.model_dir,
            max_files=service.settings.max_package_files,
            max_bytes=service.settings.max_package_bytes,
        )
        view = await service.searches.start(self.user, wanted(job(code_dir=packed.code_dir)), packed.path)
        name = view.spec.job.name
        # 1.2.x's notebooks name the instance group, log on by Basic or its cookie, and read a text.
        by_token = self._shown is not None and self._shown.kind == "token"
        href = f"/platform/rest/deeplearning/v1/hypersearch/{name}"
        self.reply(name if sig_name and not by_token else {"uid": name, "href": href})

    async def get(self) -> None:
        """List the user's tasks, oldest first as recorded, or those that the query selects."""
        query = self.query
        states = {word.strip().upper() for word in query.pop("state", "").replace("|", ",").split(",") if word.strip()}
        wanted = choice(query)
        wanted = wanted if wanted.key else replace(wanted, key="createtime")
        found = [await self.shown(view) for view in await self.service.searches.searches(self.user)]
        self.reply(chosen([each for each in found if not states or each["state"] in states], wanted))

    async def delete(self) -> None:
        """Remove all tasks of the user."""
        for view in await self.service.searches.searches(self.user):
            await self.remove(view)
        self.done("Deleted.")


class _TaskHandler(TaskHandler, path="/hypersearch/{name}", resource="edt:searches"):
    async def get(self, name: str) -> None:
        """Return the task as it is now."""
        self.reply(await self.shown(await self.task(name)))

    async def put(self, name: str) -> None:
        """Stop the task."""
        await self.stop(await self.task(name))

    async def delete(self, name: str) -> None:
        """Remove the task."""
        await self.remove(await self.task(name))
        self.done(f"Model tuning {name} is deleted.")


class _TaskForceHandler(TaskHandler, path="/hypersearch/{name}/force", resource="edt:searches"):
    async def put(self, name: str) -> None:
        """Stop the task."""
        await self.stop(await self.task(name))


class _TaskRestartHandler(TaskHandler, path="/hypersearch/{name}/restart", resource="edt:searches"):
    async def put(self, name: str) -> None:
        """Go on with the task."""
        await self.restart(await self.task(name))
