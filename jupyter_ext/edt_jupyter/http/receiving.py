"""Handlers that write a request's body to the disk as it arrives, after the user was authorized.

A refused upload is answered at once, before it is read. A handler makes its own sink for the bytes, and `received` gets
it when the body is complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from tornado.web import stream_request_body

from edt_jupyter.http.base import EdtHandler, shown
from edt_jupyter.http.upload import check_length
from edt_sdk.schemas.errors import EdtError

# A refused upload is answered at once, and its body is read for a while longer: closing a socket with unread bytes
# resets the connection, and the client might never see the answer.
_LINGER_BYTES = 64 << 20
# Without another byte.
_LINGER_SECONDS = 5.0


class Sink(Protocol):
    """A consumer of a body, piece by piece."""

    def write(self, data: bytes) -> None:
        """Take the next bytes. InvalidRequest or TooLarge when they cannot be used. Blocks."""

    def close(self) -> None:
        """Remove the files. May be called twice."""


Kept = TypeVar("Kept", bound=Sink)


@stream_request_body
class ReceivingHandler(EdtHandler, Generic[Kept]):
    """Base of a handler with an upload as its POST."""

    open_sink: Callable[[Path, str, int], Kept]  # given a folder, the content type, and the most bytes of files
    sink: Kept | None = None  # None after a refusal
    _lingering: asyncio.TimerHandle | None = None
    _discarded = -1  # bytes discarded since the refusal, -1 before one

    async def post(self, *_path: str) -> None:
        """Answer a complete body."""
        if self.sink is None:  # refused and answered
            self.hang_up()
        else:
            await self.received(self.sink)

    async def received(self, sink: Kept) -> None:
        """Answer a complete body that `sink` has taken."""
        raise NotImplementedError

    async def prepare(self) -> None:  # type: ignore[override]  # as APIHandler itself does
        """Admit or refuse an upload before its body is read."""
        await super().prepare()
        if self.request.method == "POST" and not self._finished:
            await self._admit()

    async def _admit(self) -> None:
        if await self.begin_forwarding():
            self.request.connection.set_max_body_size(1 << 62)  # type: ignore[union-attr]  # the leader's cap holds
            return
        service, cap = self.service, self.service.settings.max_upload_bytes
        self.request.connection.set_max_body_size(1 << 62)  # type: ignore[union-attr]  # the cap is ours, with its own answer
        try:
            check_length(self.request.headers.get("Content-Length"), cap)
            self.sink = self.open_sink(service.uploads, self.request.headers.get("Content-Type", ""), cap)
        except EdtError as error:
            await self._refuse(error)

    async def data_received(self, chunk: bytes) -> None:
        """Take the next bytes of the body."""
        if self._discarded >= 0:
            self._discarded += len(chunk)
            if self._discarded > _LINGER_BYTES:
                self.hang_up()
            else:
                self._linger()
        elif self._way is not None:
            await self._way[0].write(chunk)
        elif self.sink is not None:
            try:
                await asyncio.to_thread(self.sink.write, chunk)
            except (EdtError, OSError) as error:
                refused = shown(error)
                if not isinstance(refused, EdtError):
                    raise
                if isinstance(error, OSError):
                    self.log.error("edt | an upload could not be written: %s", error)
                await self._refuse(refused)

    async def _refuse(self, error: EdtError) -> None:
        """Answer now and discard the rest of the body."""
        self._discarded = 0
        self._drop()
        self.log.info("upload refused: %s", error)
        self.set_header("Connection", "close")
        self.write_refusal(error)
        self.set_header("Content-Length", sum(map(len, self._write_buffer)))
        await self.flush()
        self._linger()

    def _linger(self) -> None:
        if self._lingering is not None:
            self._lingering.cancel()
        self._lingering = asyncio.get_running_loop().call_later(_LINGER_SECONDS, self.hang_up)

    def hang_up(self) -> None:
        """Finish an answer that was given early."""
        if not self._finished:
            self.finish()

    def _drop(self) -> None:
        if self.sink is not None:
            self.sink.close()
            self.sink = None

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Announce that the connection closes with the answer, because the body may be unread."""
        if self.request.method == "POST":
            self.set_header("Connection", "close")
        super().write_error(status_code, **kwargs)

    def on_finish(self) -> None:
        """Remove the files of the upload. A job made from it has its own."""
        self._drop()
        super().on_finish()

    def on_connection_close(self) -> None:
        """Remove the files of an upload that its client aborted."""
        self._drop()
        super().on_connection_close()
