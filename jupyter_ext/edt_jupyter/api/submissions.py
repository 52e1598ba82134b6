"""A source becomes a job: files of this server, or what another job was made of."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from tempfile import _TemporaryFileWrapper

import msgspec
from jupyter_server.utils import url_path_join

from edt_jupyter.api.picking import PickingHandler
from edt_jupyter.http.forwarding import Peer
from edt_jupyter.http.peers import post_package
from edt_sdk.packing.archive import write_archive
from edt_sdk.packing.sources import Collected
from edt_sdk.packing.upload import Multipart
from edt_sdk.schemas.forecast import OfJob, Picked
from edt_sdk.schemas.job import JobSpec, JobView
from edt_server.jobs import gone


class SubmissionsHandler(PickingHandler):
    """`/submissions`."""

    auth_resource = "edt:jobs"

    async def post(self) -> None:
        """Pack and submit; the job."""
        request = self.request_made()
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
                self.user, spec, found.package, training=found.training, weights=found.weights(spec)
            )
        except FileNotFoundError:
            raise gone(job) from None

    async def _of_files(self, path: str, request: Picked) -> JobView:
        collected, spec = await self.picked(path, request)
        with tempfile.NamedTemporaryFile(prefix="picked-", dir=self.package_folder) as package:
            return await self._submitted(collected, spec, package)

    async def _submitted(self, collected: Collected, spec: JobSpec, package: _TemporaryFileWrapper[bytes]) -> JobView:
        size = await asyncio.to_thread(write_archive, collected.files, package, cap=self.caps.max_upload_bytes)
        package.flush()

        async def here() -> JobView:
            return await self.service.submit(self.user, spec, Path(package.name))

        async def there(peer: Peer) -> JobView:
            package.seek(0)
            said = await post_package(peer, "jobs", Multipart(msgspec.json.encode(spec), package, size))
            return msgspec.json.decode(said, type=JobView)

        return await self.where_jobs_run(here, there)
