"""Jobs: submit, list, get, update, stop, suspend, resume, delete."""

from __future__ import annotations

import asyncio

from jupyter_core.utils import ensure_async
from tornado.web import HTTPError, authenticated, stream_request_body

from edt_jupyter.authorization import authorized
from edt_jupyter.base import EdtHandler, error_body
from edt_jupyter.upload import Upload, check_length
from edt_sdk.schemas.errors import EdtError, InvalidRequest
from edt_sdk.schemas.job import JobState, parse_patch, parse_resume, parse_spec

# A refused upload is answered at once and read on for a while: closing a socket with unread bytes in it would reset the
# connection, and the client might never see why.
_LINGER_BYTES = 16 << 20
_LINGER_SECONDS = 5.0
_PAGE = 1000
_MOST = 10_000


@stream_request_body
class JobsHandler(EdtHandler):
    """`/jobs`. A submission's body goes to the disk as it arrives, once it is known that its sender may submit."""

    _upload: Upload | None = None
    _discarded = -1  # bytes thrown away since the request was refused, -1 while it is not

    async def prepare(self) -> None:  # type: ignore[override]  # as APIHandler itself does
        """Admit or refuse an upload before its body is read."""
        await super().prepare()
        if self.request.method == "POST" and not self._finished:
            await self._admit()

    async def _admit(self) -> None:
        # The decorators of `post` run when the body is there; an upload has to be stopped before.
        if not self.current_user:
            raise HTTPError(403)
        allowed = await ensure_async(self.authorizer.is_authorized(self, self.current_user, "write", "edt:jobs"))
        if not allowed:
            raise HTTPError(403, "You are not authorized to submit jobs.")
        if await self.begin_forwarding():
            self.request.connection.set_max_body_size(1 << 62)  # type: ignore[union-attr]  # the leader's cap holds
            return
        settings = self.service.settings
        self.request.connection.set_max_body_size(1 << 62)  # type: ignore[union-attr]  # the cap is ours, with its own answer
        try:
            check_length(self.request.headers.get("Content-Length"), settings.max_upload_bytes)
            content_type = self.request.headers.get("Content-Type", "")
            self._upload = Upload(self.service.uploads, content_type, settings.max_upload_bytes)
        except EdtError as error:
            await self._refuse(error)

    async def data_received(self, chunk: bytes) -> None:
        """Take the next bytes of the body."""
        if self._discarded >= 0:
            self._discarded += len(chunk)
            if self._discarded > _LINGER_BYTES:
                self._hang_up()
        elif self._way is not None:
            await self._way[0].write(chunk)
        elif self._upload is not None:
            try:
                await asyncio.to_thread(self._upload.write, chunk)
            except EdtError as error:
                await self._refuse(error)

    async def _refuse(self, error: EdtError) -> None:
        """Answer now; the rest of the body is thrown away."""
        self._discarded = 0
        self._drop()
        body = error_body(error.status, error)
        self.log.info("upload refused: %s", error)
        self.set_status(error.status)
        self.set_header("Connection", "close")
        self.set_header("Content-Type", "application/json")
        self.write(body)
        self.set_header("Content-Length", sum(map(len, self._write_buffer)))
        await self.flush()
        asyncio.get_running_loop().call_later(_LINGER_SECONDS, self._hang_up)

    def _hang_up(self) -> None:
        if not self._finished:
            self.finish()

    def _drop(self) -> None:
        if self._upload is not None:
            self._upload.close()
            self._upload = None

    def on_finish(self) -> None:
        """Nothing of an upload stays but the job made of it."""
        self._drop()
        super().on_finish()

    def on_connection_close(self) -> None:
        """The sender gave up."""
        self._drop()
        super().on_connection_close()

    @authenticated
    @authorized("write", resource="edt:jobs")
    async def post(self) -> None:
        """Submit."""
        if self._upload is None:  # refused and answered
            self._hang_up()
            return
        spec, package = await asyncio.to_thread(self._upload.finish)
        view = await self.service.submit(self.user, parse_spec(spec), package)
        self.set_header("Location", f"{self.request.path.rstrip('/')}/{view.id}")
        self.reply(view, 201)

    @authenticated
    @authorized("read", resource="edt:jobs")
    async def get(self) -> None:
        """List: mine, or with `all=1` everybody's; the newest `limit`, or those after the `next` of an answer."""
        state = self.get_query_argument("state", "").upper()
        if state and state not in JobState.__members__:
            raise InvalidRequest(f"{state} is no state.", hint=f"The states are {', '.join(JobState)}.", field="state")
        chosen = JobState(state) if state else None
        limit = self.number("limit", _PAGE, low=1, high=_MOST)
        jobs = await self.service.jobs(
            self.user, everybody=self.flag("all"), state=chosen, before=self._before(), limit=limit + 1
        )
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


class StopAllHandler(EdtHandler):
    """`/jobs/stop`."""

    @authenticated
    @authorized("write", resource="edt:jobs")
    async def post(self) -> None:
        """Stop all my jobs."""
        self.reply({"jobs": await self.service.stop_all(self.user)}, 202)


class JobHandler(EdtHandler):
    """`/jobs/{id}`."""

    @authenticated
    @authorized("read", resource="edt:jobs")
    async def get(self, job: str) -> None:
        """The job now."""
        self.reply(await self.service.job(self.user, job))

    @authenticated
    @authorized("write", resource="edt:jobs")
    async def patch(self, job: str) -> None:
        """Update."""
        self.reply(await self.service.update(self.user, job, parse_patch(self.request.body)))

    @authenticated
    @authorized("write", resource="edt:jobs")
    async def delete(self, job: str) -> None:
        """Delete an ended job."""
        await self.service.delete(self.user, job)
        self.set_status(204)
        self.finish()


class StopHandler(EdtHandler):
    """`/jobs/{id}/stop`."""

    @authenticated
    @authorized("write", resource="edt:jobs")
    async def post(self, job: str) -> None:
        """Stop: accepted now, done when the job's processes have ended."""
        self.reply(await self.service.stop_job(self.user, job), 202)


class SuspendHandler(EdtHandler):
    """`/jobs/{id}/suspend`."""

    @authenticated
    @authorized("write", resource="edt:jobs")
    async def post(self, job: str) -> None:
        """Suspend: accepted now, done when the job's last worker has left."""
        self.reply(await self.service.suspend(self.user, job), 202)


class ResumeHandler(EdtHandler):
    """`/jobs/{id}/resume`."""

    @authenticated
    @authorized("write", resource="edt:jobs")
    async def post(self, job: str) -> None:
        """Resume, with `{"checkpoint": …}` from that one: accepted now, done when there is a slot."""
        chosen = parse_resume(self.request.body)
        self.reply(await self.service.resume(self.user, job, chosen.checkpoint or ""), 202)
