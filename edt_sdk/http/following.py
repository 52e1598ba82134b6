"""Follow a stream of the server over dropped connections: retry with back-off and resume after the last event.

Every wait in the SDK uses this. The time limits of an absence of the server are set here. The format is the event
stream of the HTML standard (section 9.2.6, "Interpreting an event stream").
"""

from __future__ import annotations

import codecs
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import requests
from urllib3.exceptions import ReadTimeoutError

from edt_sdk.http.connection import Connection, Params
from edt_sdk.schemas.errors import ServerUnreachable

# Seconds without a connection until a wait gives up: a wait outlives a restart of the server, as its job does.
PATIENCE = 120.0
# Seconds without a connection that are not reported: proxies drop connections that come back at once.
UNNOTICED = 2.0


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """Holds one dispatched event. `id` is the newest id of the stream so far, and a reader resumes after it."""

    kind: str
    data: str
    id: str


class EventParser:
    """Collects bytes and returns events. Pure: any split of the same bytes gives the same events.

    Use one object per connection. `last_id` may come from the last connection.
    """

    def __init__(self, last_id: str = "") -> None:
        self.last_id = last_id
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._after_cr = False
        self._first = True
        self._kind = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> list[ServerEvent]:
        """Return the events that `data` completes, in order."""
        text = self._decoder.decode(data)
        if self._first and text:
            text, self._first = text.removeprefix("\ufeff"), False
        # A CR at the end of a piece and a LF at the start of the next form a single line end.
        if self._after_cr and text:
            text, self._after_cr = text.removeprefix("\n"), False
        if text.endswith("\r"):
            self._after_cr = True
        lines = (self._rest + text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._rest = lines.pop()
        events = (self._line(line) for line in lines)
        return [event for event in events if event is not None]

    def _line(self, line: str) -> ServerEvent | None:
        if not line:
            return self._dispatch()
        if line.startswith(":"):
            return None
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._kind = value
        elif field == "id" and "\0" not in value:
            self.last_id = value
        return None

    def _dispatch(self) -> ServerEvent | None:
        kind, data = self._kind or "message", self._data
        self._kind, self._data = "", []
        return ServerEvent(kind=kind, data="\n".join(data), id=self.last_id) if data else None


def over(stop: threading.Event | None, deadline: float | None) -> bool:
    """Return whether a wait was stopped by another thread or has passed its deadline."""
    return (stop is not None and stop.is_set()) or (deadline is not None and time.monotonic() >= deadline)


@dataclass(slots=True)
class Pause:
    """Waits between attempts: a back-off of 0.1 s, doubled up to 2 s, until `patience` seconds without success."""

    patience: float
    _delay: float = 0.1
    _since: float | None = None

    @property
    def lasting(self) -> float:
        """Return the seconds since the first failure after the last success, 0 without a failure."""
        return 0.0 if self._since is None else time.monotonic() - self._since

    def success(self) -> None:
        """Reset the back-off: the connection works."""
        self._delay, self._since = 0.1, None

    def failure(self, error: ServerUnreachable, stop: threading.Event | None, deadline: float | None) -> None:
        """Wait for the back-off, or raise `error` after `patience` seconds."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if now - self._since > self.patience:
            raise error
        self.wait(stop, deadline)

    def wait(self, stop: threading.Event | None, deadline: float | None) -> None:
        """Wait for the back-off, and double it."""
        delay = self._delay if deadline is None else max(0.0, min(self._delay, deadline - time.monotonic()))
        if stop is None:
            time.sleep(delay)
        else:
            stop.wait(delay)
        self._delay = min(2.0, self._delay * 2)


def follow(
    connection: Connection,
    path: str,
    *,
    params: Params | None = None,
    after: str = "",
    stop: threading.Event | None = None,
    deadline: float | None = None,
    patience: float = PATIENCE,
    away: Callable[[ServerUnreachable | None], None] = lambda lost: None,
) -> Iterator[ServerEvent | None]:
    """Yield the events of a stream, and None for other data. A dropped connection resumes after the last event.

    Ends after the event `end`, when `stop` is set (within about 5 s), or when `time.monotonic()` passes `deadline`.

    Args:
        connection: with the server.
        path: the resource, to which `follow=1` and `after` are added.
        params: further query parameters.
        after: the id to resume after, "" for the beginning.
        stop: set by another thread.
        deadline: as above.
        patience: seconds without a connection after which ServerUnreachable is raised.
        away: called with the error when the connection is lost for longer than `UNNOTICED`, with None when it is back.
    """
    pause = Pause(patience)
    gone = False
    while not over(stop, deadline):
        # A stop and a deadline are noticed between two reads, so no read may take longer.
        idle = 5.0 if stop is not None or deadline is not None else connection.timeout
        if deadline is not None:
            idle = max(0.05, min(idle, deadline - time.monotonic()))
        try:
            for event in _stream(connection, path, params, after, idle):
                # Any data resets the back-off, also data without an event, such as a comment that keeps the connection
                # open.
                pause.success()
                if gone:
                    gone = False
                    away(None)
                after = event.id if event is not None else after
                yield event
                if event is not None and event.kind == "end":
                    return
                if over(stop, deadline) or (deadline is not None and deadline - time.monotonic() < idle):
                    break  # connect again with a shorter time-out, so that the deadline is kept
            else:
                # The server closed the stream without the event `end`.
                pause.failure(ServerUnreachable(f"The server at {connection.url} ends the stream."), stop, deadline)
        except ServerUnreachable as lost:
            if pause.lasting > UNNOTICED:
                gone = True
                away(lost)
            pause.failure(lost, stop, deadline)


def _stream(
    connection: Connection, path: str, params: Params | None, after: str, idle: float
) -> Iterator[ServerEvent | None]:
    """Yield the events of a single connection for `follow`. End silently after `idle` seconds without data."""
    headers = {"Accept": "text/event-stream", "Accept-Encoding": "identity"}
    if after:
        headers["Last-Event-ID"] = after
    query: Params = {**(params or {}), "follow": 1, "after": after or None}
    parser = EventParser(after)
    with connection.open("GET", path, params=query, headers=headers, timeout=idle, once=True) as response:
        # A chunked transfer (tornado's) yields each chunk as it arrives. Otherwise only reads of a single byte return
        # without waiting for more data.
        size = None if getattr(response.raw, "chunked", False) else 1
        try:
            for chunk in response.iter_content(size):
                yield None
                yield from parser.feed(chunk)
        except requests.RequestException as broken:
            if any(isinstance(reason, ReadTimeoutError) for reason in broken.args):
                yield None  # an idle stream is not a failure
                return
            raise connection.unreachable(broken, "dropped the connection") from broken
