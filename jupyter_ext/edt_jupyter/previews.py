"""What would be packed of a source among this server's files, and when the job would start."""

from __future__ import annotations

import msgspec
from tornado.web import authenticated

from edt_jupyter.authorization import authorized
from edt_jupyter.forwarding import Peer
from edt_jupyter.peers import post_json
from edt_jupyter.picking import PickingHandler
from edt_sdk.schemas.forecast import Forecast, PackedFile, Preview


class PreviewsHandler(PickingHandler):
    """`/previews`."""

    @authenticated
    @authorized("read", resource="edt:jobs")
    async def post(self) -> None:
        """The files with their sizes, and the forecast; nothing is submitted."""
        collected, spec = await self.picked()

        async def here() -> Forecast:
            return await self.service.forecast(self.user, spec)

        async def there(peer: Peer) -> Forecast:
            said = await post_json(peer, "forecasts", msgspec.json.encode(spec))
            return msgspec.json.decode(said, type=Forecast)

        forecast = await self.where_jobs_run(here, there)
        self.reply(
            Preview(
                name=spec.name,
                main=collected.main,
                files=tuple(PackedFile(name=file.name, size=file.size) for file in collected.files),
                size=collected.size,
                notes=collected.notes,
                forecast=forecast,
            )
        )
