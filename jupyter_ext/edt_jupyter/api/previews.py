"""What would be submitted of a source, and when the job would start."""

from __future__ import annotations

import asyncio

import msgspec

from edt_jupyter.api.picking import PickingHandler
from edt_jupyter.http.forwarding import Peer
from edt_jupyter.http.peers import post_json
from edt_sdk.schemas.forecast import Forecast, OfJob, PackedFile, Preview
from edt_sdk.schemas.job import JobSpec


class PreviewsHandler(PickingHandler):
    """`/previews`."""

    auth_resource = "edt:jobs"
    auth_actions = {"POST": "read"}

    async def post(self) -> None:
        """The files with their sizes, and the forecast; nothing is submitted."""
        request = self.request_made()
        if isinstance(request.source, OfJob):
            found, spec = await self.again(request.source.job, request)
            files = await asyncio.to_thread(found.files)
            self.reply(_preview(spec, files, (), await self.service.forecast(self.user, spec)))
            return
        collected, spec = await self.picked(request.source, request)
        files = tuple(PackedFile(name=file.name, size=file.size) for file in collected.files)
        self.reply(_preview(spec, files, collected.notes, await self._forecast(spec)))

    async def _forecast(self, spec: JobSpec) -> Forecast:
        async def here() -> Forecast:
            return await self.service.forecast(self.user, spec)

        async def there(peer: Peer) -> Forecast:
            said = await post_json(peer, "forecasts", msgspec.json.encode(spec))
            return msgspec.json.decode(said, type=Forecast)

        return await self.where_jobs_run(here, there)


def _preview(spec: JobSpec, files: tuple[PackedFile, ...], notes: tuple[str, ...], forecast: Forecast) -> Preview:
    size = sum(file.size for file in files)
    return Preview(name=spec.name, main=spec.main, files=files, size=size, notes=notes, forecast=forecast)
