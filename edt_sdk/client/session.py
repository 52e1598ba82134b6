"""`ServerSession`: a connection to one server, which the client's classes share."""

from __future__ import annotations

from types import TracebackType
from typing import IO, Self

from edt_sdk.http.connection import Connection
from edt_sdk.http.discovery import connect


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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__} of {self.url} ({self.info.name} {self.info.version}, user {self.info.user})"
