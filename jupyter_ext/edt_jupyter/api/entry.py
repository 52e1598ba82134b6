"""Receive a new entry of the catalogue: JSON that names it, or an upload with JSON and a file.

JSON is held in memory and bounded, an upload goes to the disk (`upload.py`). JSON may name a `source` among this
server's own files. That is packed here, also where another server keeps the catalogue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from edt_jupyter.api.own_files import OwnFiles
from edt_jupyter.api.submissions import PickingHandler
from edt_jupyter.http.receiving import ReceivingHandler
from edt_jupyter.http.upload import Upload
from edt_sdk.packing.sources import SourceFile
from edt_sdk.schemas.catalogue import Dataset, Model
from edt_sdk.schemas.errors import InvalidRequest, TooLarge
from edt_sdk.schemas.job import parse_change

Entry = TypeVar("Entry", Dataset, Model)
_MAX_JSON = 1 << 20
_PACKAGE = "package.tar.gz"


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


class EntryHandler(ReceivingHandler[UploadedEntry], PickingHandler, Generic[Entry]):
    """Base of a handler with a POST that adds to the catalogue. `entry` is the struct of its answer."""

    entry: type[Entry]

    def open_sink(self, folder: Path, content_type: str, cap: int) -> UploadedEntry:
        """Return a sink that writes an upload to the disk."""
        return UploadedEntry(Upload(folder, content_type, cap))

    async def _admit(self) -> None:
        # As on every other route, a body is JSON whatever its content type, unless it is an upload.
        if self.request.headers.get("Content-Type", "").strip().lower().startswith("multipart/"):
            await super()._admit()
        else:
            self.sink = UploadedEntry(None)

    async def forwarded(self) -> bool:
        """Answer here when JSON names this server's files, else where the catalogue is."""
        if self.request.method == "POST" and self.sink is not None and self.sink.json is not None:
            self.request.body = self.sink.json
            if _source(self.request.body) is not None:
                return False
        # Past PickingHandler's own rule, which reads the body as a `Picked`. An entry is another struct.
        return await super(PickingHandler, self).forwarded()

    async def received(self, sink: UploadedEntry) -> None:
        """Add the entry, here or where the catalogue is."""
        spec, package, filename = await asyncio.to_thread(sink.finish)
        source = _source(spec) if package is None else None
        if source is None:
            self.reply(await self.add(spec, package, filename), 201)
            return
        own = await self.own_files()
        plain = _without_source(spec)
        # Packed here, because the server that runs the jobs does not have these files.
        files = await asyncio.to_thread(self.files_of, own, source, plain)

        async def added(made: Path) -> Entry:
            return await self.add(plain, made, _PACKAGE)

        self.reply(await self.packed(files, self.path.strip("/"), plain, self.entry, added), 201)

    async def add(self, spec: bytes, package: Path | None, filename: str) -> Entry:
        """Add the entry that the JSON describes, with the file of its upload, and return it."""
        raise NotImplementedError

    def files_of(self, own: OwnFiles, source: str, spec: bytes) -> Sequence[SourceFile]:
        """Return the files to pack. Blocks."""
        raise NotImplementedError


def _source(body: bytes) -> str | None:
    """Return the `source` that JSON names, None without one. What is no JSON is refused later."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
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
