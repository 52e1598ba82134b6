"""What a job has written: its checkpoints, and its result as a zip made while it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from tornado.iostream import StreamClosedError

from edt_jupyter.http.base import EdtHandler
from edt_server.outputs.results import ResultZip

_PIECE = 1 << 20


class CheckpointsHandler(EdtHandler):
    """`/jobs/{id}/checkpoints`."""

    auth_resource = "edt:artifacts"

    async def get(self, job: str) -> None:
        """Name, epoch, size and time of each."""
        self.reply({"checkpoints": await self.service.checkpoints(self.user, job)})


class ResultHandler(EdtHandler):
    """`/jobs/{id}/result`."""

    auth_resource = "edt:artifacts"

    async def get(self, job: str) -> None:
        """A part of the result as a zip."""
        await send_archive(self, await self.service.result(self.user, job, self.get_query_argument("part", "all")))


async def send_archive(handler: EdtHandler, archive: ResultZip) -> None:
    """Answer with a zip that is made while it is sent."""
    handler.set_header("Content-Type", "application/zip")
    handler.set_header("Content-Length", archive.size)
    handler.set_header("Content-Disposition", archive.disposition)
    try:
        while piece := await asyncio.to_thread(_piece, archive.chunks):
            handler.write(piece)
            await handler.flush()
    except StreamClosedError:
        return
    handler.finish(set_content_type="application/zip")


def _piece(chunks: Iterator[bytes]) -> bytes:
    """About a mebibyte of the stream, b"" at its end: small pieces are not worth a thread each."""
    piece = bytearray()
    for chunk in chunks:
        piece += chunk
        if len(piece) >= _PIECE:
            break
    return bytes(piece)
