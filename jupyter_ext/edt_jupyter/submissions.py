"""A source among this server's files becomes a job."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from tempfile import _TemporaryFileWrapper

import msgspec
from jupyter_server.utils import url_path_join
from tornado.web import authenticated

from edt_jupyter.authorization import authorized
from edt_jupyter.forwarding import Peer
from edt_jupyter.peers import post_package
from edt_jupyter.picking import PickingHandler
from edt_sdk.packing import Collected, Multipart, write_archive
from edt_sdk.schemas.job import JobSpec, JobView


class SubmissionsHandler(PickingHandler):
    """`/submissions`."""

    @authenticated
    @authorized("write", resource="edt:jobs")
    async def post(self) -> None:
        """Pack and submit; the job."""
        collected, spec = await self.picked()
        with tempfile.NamedTemporaryFile(prefix="picked-", dir=self.package_folder) as package:
            view = await self._submitted(collected, spec, package)
        self.set_header("Location", url_path_join(self.base_url, "edt/api/jobs", view.id))
        self.reply(view, 201)

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
