"""Jobs: submit, list, show, update, stop, suspend, resume, delete, validate, forecast, and the workers that run now."""

from __future__ import annotations

import asyncio

from jupyter_server.utils import url_path_join

from edt_jupyter.http.base import EdtHandler
from edt_jupyter.http.receiving import ReceivingHandler
from edt_jupyter.http.upload import Upload
from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.job import JobPatch, JobState, parse_change, parse_patch, parse_resume, parse_spec
from edt_sdk.schemas.validation import NewValidation

_PAGE = 1000
_MOST = 10_000


class _JobsHandler(ReceivingHandler[Upload], path="/jobs", resource="edt:jobs"):
    open_sink = Upload

    async def received(self, sink: Upload) -> None:
        """Submit a job."""
        spec, package = await asyncio.to_thread(sink.finish)
        view = await self.service.submit(self.user, parse_spec(spec), package)
        self.set_header("Location", f"{self.request.path.rstrip('/')}/{view.id}")
        self.reply(view, 201)

    async def get(self) -> None:
        """List the user's jobs, or with `all=1` every user's: the newest `limit`, or the page after `next`.

        Trials of searches are left out, except with `trials=1`. With `search` only the trials of that search.
        """
        state = self.get_query_argument("state", "").upper()
        if state and state not in JobState.__members__:
            raise InvalidRequest(f"{state} is no state.", hint=f"The states are {', '.join(JobState)}.", field="state")
        chosen = JobState(state) if state else None
        limit = self.number("limit", _PAGE, low=1, high=_MOST)
        search = self.get_query_argument("search", "")
        if search:
            await self.service.searches.search(self.user, search)  # NotFound where there is none
        jobs = await self.service.jobs(
            self.user,
            everybody=self.flag("all"),
            state=chosen,
            **{name: self.get_query_argument(name, "") or None for name in ("tag", "project", "experiment")},
            search=search or (None if self.flag("trials") else ""),
            before=self._before(),
            # One more than the page, which shows whether there is a next page.
            limit=limit + 1,
        )
        # By key and not by offset, so that a job submitted in the meantime moves no page. `repr` keeps every bit of the
        # time.
        more = {"next": f"{jobs[limit - 1].created!r},{jobs[limit - 1].id}"} if len(jobs) > limit else {}
        self.reply({"jobs": jobs[:limit], **more})

    def _before(self) -> tuple[float, str] | None:
        text = self.get_query_argument("before", "")
        if not text:
            return None
        created, _, job = text.partition(",")
        try:
            return float(created), job
        except ValueError:
            raise InvalidRequest(
                f"{text!r} is no place in a list.",
                hint="Give the `next` of an earlier answer unchanged.",
                field="before",
            ) from None


class _StopAllHandler(EdtHandler, path="/jobs/stop", resource="edt:jobs"):
    async def post(self) -> None:
        """Stop all searches and jobs of the user."""
        self.reply({"jobs": await self.service.stop_all(self.user)}, 202)


class _JobHandler(EdtHandler, path="/jobs/{id}", resource="edt:jobs"):
    async def get(self, job: str) -> None:
        """Return the job as it is now."""
        self.reply(await self.service.job(self.user, job))

    async def patch(self, job: str) -> None:
        """Change settings of the job."""
        self.reply(await self.service.change_settings(self.user, job, parse_patch(self.request.body)))

    async def delete(self, job: str) -> None:
        """Delete an ended job."""
        await self.service.delete(self.user, job)
        self.set_status(204)
        self.finish()


class _StopHandler(EdtHandler, path="/jobs/{id}/stop", resource="edt:jobs"):
    async def post(self, job: str) -> None:
        """Stop the job: accepted now, done when its processes have ended."""
        self.reply(await self.service.stop_job(self.user, job), 202)


class _SuspendHandler(EdtHandler, path="/jobs/{id}/suspend", resource="edt:jobs"):
    async def post(self, job: str) -> None:
        """Suspend the job: accepted now, done when its last worker has left."""
        self.reply(await self.service.suspend(self.user, job), 202)


class _ResumeHandler(EdtHandler, path="/jobs/{id}/resume", resource="edt:jobs"):
    async def post(self, job: str) -> None:
        """Resume the job, from a `checkpoint`, in an `instance_group`: accepted now, done when a slot is free."""
        chosen = parse_resume(self.request.body)
        view = await self.service.resume(self.user, job, chosen.checkpoint or "", chosen.instance_group)
        self.reply(view, 202)


class _WorkersHandler(EdtHandler, path="/jobs/{id}/workers", resource="edt:jobs"):
    async def get(self, job: str) -> None:
        """Return slot, host, pid, rank and generation of each running worker."""
        self.reply({"workers": await self.service.workers(self.user, job)})


class _ValidationsHandler(EdtHandler, path="/jobs/{id}/validations", resource="edt:jobs"):
    async def post(self, job: str) -> None:
        """Validate the trained model. Returns the job that does it."""
        new = parse_change(self.request.body or b"{}", NewValidation)
        view = await self.service.validations.start(self.user, job, new)
        self.set_header("Location", url_path_join(self.base_url, "edt/api/jobs", view.id))
        self.reply(view, 201)


class _ValidationHandler(EdtHandler, path="/jobs/{id}/validation", resource="edt:artifacts"):
    async def get(self, job: str) -> None:
        """Return the result of the validation with this id."""
        self.reply(await self.service.validations.result(self.user, job))


class _ForecastsHandler(EdtHandler, path="/forecasts", resource="edt:jobs"):
    # A forecast changes nothing, so the right to read is enough for this POST.
    auth_actions = {"POST": "read"}

    async def post(self) -> None:
        """Return when the job would start, and on how many slots. Nothing is submitted."""
        self.reply(await self.service.forecast(self.user, parse_spec(self.request.body)))


class AskingHandler(EdtHandler):
    """Answers what a change would do."""

    def asked(self) -> JobPatch:
        """Return the change that the query describes. InvalidRequest for what is no number."""
        return JobPatch(
            priority=self._given("priority"),
            max_workers=self._given("max_workers"),
            instance_group=self.get_query_argument("instance_group", None),
        )

    def _given(self, name: str) -> int | None:
        text = self.get_query_argument(name, "")
        try:
            return int(text) if text else None
        except ValueError:
            raise InvalidRequest(f"{name} is a whole number, not {text!r}.", field=name) from None


class _WhatIfHandler(AskingHandler, path="/jobs/{id}/what-if", resource="edt:jobs"):
    async def get(self, job: str) -> None:
        """Return the slots that each job would hold, and when the job would end. Nothing is changed."""
        self.reply(await self.service.what_if(self.user, job, self.asked()))
