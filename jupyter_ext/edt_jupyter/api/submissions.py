"""Submit, or preview, a source that the user picks: files of this Jupyter server, or the package of another job.

Files are packed here, also where another server runs the jobs. That server is then asked only for its own knowledge.
Only the server that runs the jobs has the package of a job, so it gets the whole request.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar, cast

import msgspec
from jupyter_server.utils import url_path_join

from edt_jupyter.api.own_files import OwnFiles
from edt_jupyter.http.authorization import denied
from edt_jupyter.http.base import EdtHandler, ask_again
from edt_jupyter.http.forwarding import NotReached, Peer
from edt_jupyter.http.peers import post_json, post_package
from edt_sdk.packing.archive import write_archive
from edt_sdk.packing.preflight import PYTHON, check_syntax, check_trains
from edt_sdk.packing.sources import Collected, SourceFile, collect, helper_notes
from edt_sdk.packing.table import human_bytes
from edt_sdk.packing.upload import Multipart
from edt_sdk.schemas.errors import InvalidRequest, TooLarge
from edt_sdk.schemas.forecast import Forecast, OfJob, PackedFile, Picked, Preview
from edt_sdk.schemas.job import JobSpec, JobView, parse_spec
from edt_sdk.schemas.search.spec import SearchSpec, search_of
from edt_sdk.schemas.search.views import SearchPreview, SearchView
from edt_server.jobs import Stored, gone

T = TypeVar("T")
_PACKED = ("main", "code_dir")


class Caps(Protocol):
    """The limits and the Python of jobs that the administrator sets: traits of `app.EdtApp`."""

    max_upload_bytes: int
    max_package_files: int
    max_package_bytes: int
    python: str


class PickingHandler(EdtHandler):
    """Base of the handlers with a POST that names a source."""

    async def forwarded(self) -> bool:
        """Answer here for files of this server, and where the jobs run for a job."""
        return isinstance(self.request_made().source, OfJob) and await super().forwarded()

    @property
    def caps(self) -> Caps:
        """Return the limits of a package."""
        return cast(Caps, self.extensionapp)

    def request_made(self) -> Picked:
        """Return the request. InvalidRequest names the field that is wrong."""
        try:
            request = msgspec.json.decode(self.request.body, type=Picked)
        except (msgspec.DecodeError, RecursionError) as wrong:
            raise InvalidRequest(f"The body cannot be used: {wrong}.", field="source") from None
        if given := [field for field in _PACKED if field in request.spec]:
            raise InvalidRequest(
                f"spec has {given[0]}, which packing decides.", hint="Name the script as main beside it.", field="spec"
            )
        return request

    async def again(self, job: str, request: Picked) -> tuple[Stored, JobSpec]:
        """Return the package of that job, and the specification of a new job made from it."""
        if request.tag is not None:
            raise InvalidRequest("A job has no cells with tags.", hint="Leave tag out.", field="tag")
        found = await self.service.stored(self.user, job)
        main = {} if request.main is None else {"main": request.main}
        return found, found.changed({**request.spec, **main})

    async def own_files(self) -> OwnFiles:
        """Return this server's files. NotAllowed when the user may not read them."""
        # The permission to submit jobs, or to add to the catalogue, does not include this one.
        if not await self.allowed("read", "contents"):
            raise denied("read", "contents")
        return await asyncio.to_thread(OwnFiles, self.contents_manager)

    async def packed(
        self, files: Sequence[SourceFile], path: str, spec: bytes, cls: type[T], here: Callable[[Path], Awaitable[T]]
    ) -> T:
        """Pack the files of this server, and return the answer of `here`, or of a POST to `path` where jobs run."""
        # On the leader next to its target, which makes the package a link instead of a copy. Other servers send it.
        folder = self.service.uploads if self.extension.leads else None
        with tempfile.NamedTemporaryFile(prefix="picked-", dir=folder) as package:
            size = await asyncio.to_thread(write_archive, files, package, cap=self.caps.max_upload_bytes)
            # The service opens the file by its name, so nothing may be left in this process's buffer.
            package.flush()

            async def there(peer: Peer) -> T:
                # A retry after a change of the leader sends the whole package again.
                package.seek(0)
                said = await post_package(peer, path, Multipart(spec, package, size))
                return msgspec.json.decode(said, type=cls)

            return await self.where_jobs_run(lambda: here(Path(package.name)), there)

    async def picked(self, path: str, request: Picked) -> tuple[Collected, JobSpec]:
        """Return the files at that path, and the specification of the job made of them."""
        collected = await asyncio.to_thread(self._collect, await self.own_files(), path, request)
        # The user's name wins over the collected one, and the packed main script over everything.
        fields = {"name": collected.name, **request.spec, "main": collected.main}
        spec = parse_spec(msgspec.json.encode(fields))
        # Here and not where the jobs run: a preview has to say it, and only this server has the files then.
        here = (spec.python or self.caps.python or sys.executable) == sys.executable
        await asyncio.to_thread(check_syntax, spec, collected.files, PYTHON if here else None)
        await asyncio.to_thread(check_trains, spec, collected.files)
        return collected, spec

    def _collect(self, files: OwnFiles, path: str, request: Picked) -> Collected:
        source, caps = files.find(path), self.caps
        # A notebook is read whole to take its cells, so a huge one is refused before it is in memory.
        if source.suffix == ".ipynb" and source.is_file() and source.stat().st_size > caps.max_upload_bytes:
            raise _too_large(source.stat().st_size, caps.max_upload_bytes)
        collected = collect(
            source,
            request.main or None,
            script=not request.spec.get("command"),
            tag=request.tag,
            hidden=files.hidden,
            most=caps.max_package_files,
        )
        if collected.size > caps.max_package_bytes:
            raise _too_large(collected.size, caps.max_package_bytes)
        return collected

    async def where_jobs_run(self, here: Callable[[], Awaitable[T]], there: Callable[[Peer], Awaitable[T]]) -> T:
        """Return the answer of the server that runs the jobs, this one or another, asking again while that changes."""
        while True:
            # Looked up for each try, because the leader may have changed in the meantime.
            peer = await self.extension.elsewhere(self._name())
            if peer is None:
                return await here()
            try:
                return await there(peer)
            except NotReached:
                await ask_again(peer)


def _too_large(size: int, cap: int) -> TooLarge:
    return TooLarge(
        f"That is {human_bytes(size)}; this server accepts {human_bytes(cap)}.",
        hint="Leave data out of it with an .edtignore file; large data is better read by path than packed.",
        field="source",
        limit=cap,
    )


class _PreviewsHandler(PickingHandler, path="/previews", resource="edt:jobs"):
    # A preview changes nothing, so the right to read is enough for this POST.
    auth_actions = {"POST": "read"}

    async def post(self) -> None:
        """Return the files with their sizes, and the forecast. Nothing is submitted."""
        request = self.request_made()
        notes: tuple[str, ...] = ()
        if isinstance(request.source, OfJob):
            found, spec = await self.again(request.source.job, request)
            files = await asyncio.to_thread(found.files)
        else:
            collected, spec = await self.picked(request.source, request)
            files = tuple(PackedFile(name=file.name, size=file.size) for file in collected.listed)
            notes = collected.notes
        if request.search is None:
            # Not looked up before it is needed: a server in client mode has no service.
            forecast = await self._asked("forecasts", spec, Forecast, lambda: self.service.forecast(self.user, spec))
        else:
            search = search_of(spec, request.search)
            outlook = await self._asked(
                "searches/preview", search, SearchPreview, lambda: self.service.searches.preview(self.user, search)
            )
            forecast = msgspec.structs.replace(outlook.forecast, text=f"{outlook.text} {outlook.forecast.text}")
            notes = (*notes, *outlook.notes)
        self.reply(_preview(spec, files, notes, forecast))

    async def _asked(self, path: str, spec: JobSpec | SearchSpec, cls: type[T], here: Callable[[], Awaitable[T]]) -> T:
        async def there(peer: Peer) -> T:
            return msgspec.json.decode(await post_json(peer, path, msgspec.json.encode(spec)), type=cls)

        return await self.where_jobs_run(here, there)


def _preview(spec: JobSpec, files: tuple[PackedFile, ...], notes: tuple[str, ...], forecast: Forecast) -> Preview:
    size = sum(file.size for file in files)
    notes = (*notes, *helper_notes(file.name for file in files))
    return Preview(name=spec.name, main=spec.main, files=files, size=size, notes=notes, forecast=forecast)


class _SubmissionsHandler(PickingHandler, path="/submissions", resource="edt:jobs"):
    async def post(self) -> None:
        """Pack and submit. Returns the job."""
        request = self.request_made()
        if request.search is not None:
            raise InvalidRequest("A job is no search.", hint="Post it to searches/submissions.", field="search")
        if isinstance(request.source, OfJob):
            view = await self._again(request.source.job, request)
        else:
            view = await self._of_files(request.source, request)
        self.set_header("Location", url_path_join(self.base_url, "edt/api/jobs", view.id))
        self.reply(view, 201)

    async def _again(self, job: str, request: Picked) -> JobView:
        found, spec = await self.again(job, request)
        try:
            return await self.service.submit(
                self.user,
                spec,
                found.package,
                training=found.training,
                weights=found.weights(spec),
                config=found.config,
            )
        except FileNotFoundError:
            raise gone(job) from None

    async def _of_files(self, path: str, request: Picked) -> JobView:
        collected, spec = await self.picked(path, request)

        async def submitted(package: Path) -> JobView:
            return await self.service.submit(self.user, spec, package)

        return await self.packed(collected.files, "jobs", msgspec.json.encode(spec), JobView, submitted)


class _SearchSubmissionsHandler(PickingHandler, path="/searches/submissions", resource="edt:searches"):
    async def post(self) -> None:
        """Pack, and start a search whose trials are made of it. Returns the search."""
        request = self.request_made()
        if request.search is None:
            raise InvalidRequest("A search needs its settings.", hint="Give space, metric and trials.", field="search")
        if isinstance(request.source, OfJob):
            found, spec = await self.again(request.source.job, request)
            search, weights = search_of(spec, request.search), found.weights(spec)
            try:
                view = await self.service.searches.start(
                    self.user, search, found.package, training=found.training, weights=weights
                )
            except FileNotFoundError:
                raise gone(request.source.job) from None
        else:
            collected, spec = await self.picked(request.source, request)
            search = search_of(spec, request.search)
            sent = msgspec.json.encode(search)

            async def started(package: Path) -> SearchView:
                return await self.service.searches.start(self.user, search, package)

            view = await self.packed(collected.files, "searches", sent, SearchView, started)
        self.set_header("Location", url_path_join(self.base_url, "edt/api/searches", view.id))
        self.reply(view, 201)
