"""`ServerSession`: a connection to one server, which the client's classes share."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from typing import IO, Any, Self

import msgspec

from edt_sdk.http.connection import Connection
from edt_sdk.http.discovery import connect
from edt_sdk.packing.archive import write_archive
from edt_sdk.packing.sources import Collected, SourceFile
from edt_sdk.packing.table import packing_table
from edt_sdk.packing.upload import Multipart, upload_progress


class ServerSession:
    """A connection to a server. Arguments and errors are those of `Client`."""

    def __init__(self, url: str | None = None, token: str | None = None, *, output: IO[str] | None = None) -> None:
        self.server, self.info = connect(url, token)
        self._connection = Connection(self.server.url, self.server.token)
        self._output = output

    @property
    def connection(self) -> Connection:
        """Return the connection to the server."""
        return self._connection

    @property
    def url(self) -> str:
        """Return the server's address."""
        return self.server.url

    def close(self) -> None:
        """Close the connection. Its jobs go on."""
        self._connection.close()

    def _post_package(
        self, path: str, spec: msgspec.Struct, files: Sequence[SourceFile], shown: Collected | None = None
    ) -> Any:
        """Pack the files, send them with `spec`, and return the answer. `shown` is listed, with the progress."""
        # A file, not memory: a package may be larger than the memory of a small notebook server.
        with tempfile.TemporaryFile(prefix="edt-package-") as package:
            # The server's cap is checked here too: a refusal after a long upload would be late.
            size = write_archive(files, package, cap=self.info.max_upload_bytes)
            if shown is not None:
                print(packing_table(shown, size), file=self._output or sys.stdout, flush=True)
            package.seek(0)
            progress = None if shown is None else upload_progress()
            body = Multipart(msgspec.json.encode(spec), package, size, progress)
            return self._connection.post_body(path, body, body.content_type)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__} of {self.url} ({self.info.name} {self.info.version}, user {self.info.user})"
