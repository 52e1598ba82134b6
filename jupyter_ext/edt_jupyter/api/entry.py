"""Receive a new entry of the catalogue: JSON that names it, or an upload with JSON and a file.

JSON is held in memory and bounded, an upload goes to the disk (`upload.py`). JSON may name a `source` among this
server's own files. That is packed here, also where another server keeps the catalogue.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from edt_jupyter.api.own_files import OwnFiles
from edt_jupyter.api.submissions import PickingHandler
from edt_jupyter.http.authorization import denied
from edt_jupyter.http.forwarding import Peer
from edt_jupyter.http.peers import post_package
from edt_jupyter.http.receiving import ReceivingHandler
from edt_jupyter.http.upload import Upload
from edt_sdk.packing.archive import write_archive
from edt_sdk.packing.sources import SourceFile
from edt_sdk.packing.upload import Multipart
from edt_sdk.schemas.errors import InvalidRequest, TooLarge
from edt_sdk.schemas.job import parse_change
from edt_server.settings import Settings

T = TypeVar("T")
_MAX_JSON = 1 << 20
_PACKAGE = "package.tar.gz"
Add = Callable[[Path | None, str], Awaitable[T]]


class UploadedEntry:
    """One body that is being received. `upload` is None for JSON."""

    def __init__(self, upload: Upload | None) -> None:
        self._upload = upload
        self._json = bytearray()

    def write(self, data: bytes) -> None:
        """Take the next bytes. InvalidRequest or TooLarge when they cannot be used. Blocks."""
        if self._upload is not None:
            self._upload.write(data)
            return
        self._json += data
        if len(self._json) > _MAX_JSON:
            raise TooLarge(f"The JSON is larger than {_MAX_JSON} bytes.", limit=_MAX_JSON)

    def finish(self) -> tuple[bytes, Path | None, str]:
        """Return the JSON, and the file of the upload with its name, or None and "" without one."""
        if self._upload is None:
            return bytes(self._json), None, ""
        spec, package = self._upload.finish()
        return spec, package, self._upload.filename

    @property
    def json(self) -> bytes | None:
        """Return the body when it is JSON."""
        return bytes(self._json) if self._upload is None else None

    def close(self) -> None:
        """Remove the file. May be called twice."""
        if self._upload is not None:
            self._upload.close()


class EntryHandler(ReceivingHandler[UploadedEntry], PickingHandler):
    """Base of a handler with a POST that adds to the catalogue."""

    def open_sink(self, content_type: str, settings: Settings) -> UploadedEntry:
        """Return a sink that writes an upload to the disk."""
        return UploadedEntry(Upload(self.service.uploads, content_type, settings.max_upload_bytes))

    async def _admit(self) -> None:
        if not self._is_json:
            await super()._admit()
            return
        self.sink = UploadedEntry(None)

    @property
    def _is_json(self) -> bool:
        # As on every other route, a body is JSON whatever its content type, unless it is an upload.
        return not self.request.headers.get("Content-Type", "").strip().lower().startswith("multipart/")

    async def forwarded(self) -> bool:
        """Answer here when JSON names this server's files, else where the catalogue is."""
        if self.request.method == "POST" and self.sink is not None and self.sink.json is not None:
            self.request.body = self.sink.json
            if _source(self.request.body) is not None:
                return False
        # Past PickingHandler's own rule, which reads the body as a `Picked`. An entry is another struct.
        return await super(PickingHandler, self).forwarded()

    async def added(self, path: str, cls: type[T], add: Callable[[bytes, Path | None, str], Awaitable[T]]) -> T | None:
        """Return the new entry, from `add(JSON, file, its name)` here or from a POST to `path` elsewhere.

        None when the request was refused and answered.
        """
        if self.sink is None:
            self.hang_up()
            return None
        spec, package, filename = await asyncio.to_thread(self.sink.finish)
        source = _source(spec) if package is None else None
        if source is None:
            return await add(spec, package, filename)
        # The permission to add to the catalogue does not include the permission to read this server's files.
        if not await self.allowed("read", "contents"):
            raise denied("read", "contents")
        spec = _without_source(spec)
        # Packed here, because the server that runs the jobs does not have these files.
        files = await asyncio.to_thread(self._files, source, spec)
        with tempfile.NamedTemporaryFile(prefix="picked-", dir=self.package_folder) as made:
            size = await asyncio.to_thread(write_archive, files, made, cap=self.caps.max_upload_bytes)
            made.flush()

            async def here() -> T:
                return await add(spec, Path(made.name), _PACKAGE)

            async def there(peer: Peer) -> T:
                # A retry after a change of the leader sends the whole file again.
                made.seek(0)
                said = await post_package(peer, path, Multipart(spec, made, size))
                return msgspec.json.decode(said, type=cls)

            return await self.where_jobs_run(here, there)

    def _files(self, source: str, spec: bytes) -> Sequence[SourceFile]:
        return self.files_of(OwnFiles(self.contents_manager), source, spec)

    def files_of(self, own: OwnFiles, source: str, spec: bytes) -> Sequence[SourceFile]:
        """Return the files to pack. Blocks."""
        raise NotImplementedError


def _source(body: bytes) -> str | None:
    """Return the `source` that JSON names, None without one. What is no JSON is refused later."""
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None
    source = found.get("source") if isinstance(found, dict) else None
    if source is not None and not isinstance(source, str):
        raise InvalidRequest("source is a path, as the file browser shows it.", field="source")
    return source


def _without_source(body: bytes) -> bytes:
    fields = parse_change(body, dict[str, object])
    if fields.get("path") is not None or fields.get("template") is not None:
        raise InvalidRequest("Say where the files are once: source, path or template.", field="source")
    return msgspec.json.encode({name: value for name, value in fields.items() if name != "source"})
