"""A stream of the server's that goes on over dropped connections: paced attempts, resumed after the last event.

What every wait in the SDK is made of. How long an absence is borne, and from when on somebody is told of it, is said
here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import requests
from urllib3.exceptions import ReadTimeoutError

from edt_sdk.http.connection import Connection, Params
from edt_sdk.http.sse import EventParser, ServerEvent
from edt_sdk.schemas.errors import ServerUnreachable

# A job outlives its server's restart; so does whoever waits for it.
PATIENCE = 120.0
# Proxies drop connections, and they are there again at once: nobody has to be told.
UNNOTICED = 2.0


def over(stop: threading.Event | None, deadline: float | None) -> bool:
    """True when a wait has been ended from outside or has lasted long enough."""
    return (stop is not None and stop.is_set()) or (deadline is not None and time.monotonic() >= deadline)


@dataclass(slots=True)
class Pause:
    """Waiting between attempts: 0.1 s, doubled up to 2 s, given up after `patience` seconds without success."""

    patience: float
    _delay: float = 0.1
    _since: float | None = None

    @property
    def lasting(self) -> float:
        """Seconds since the first failure after the last success; 0 without one."""
        return 0.0 if self._since is None else time.monotonic() - self._since

    def success(self) -> None:
        """The connection works: start over."""
        self._delay, self._since = 0.1, None

    def failure(self, error: ServerUnreachable, stop: threading.Event | None, deadline: float | None) -> None:
        """Wait a little, or raise `error` when patience is at its end."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if now - self._since > self.patience:
            raise error
        delay = self._delay if deadline is None else max(0.0, min(self._delay, deadline - now))
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
    """Events of a stream, resumed after the last one whenever the connection drops; None at signs of life.

    Ends after the event `end`, when `stop` is set or when `time.monotonic()` passes `deadline`.

    Args:
        connection: with the server.
        path: the resource; `follow=1` and `after` are added.
        params: further query parameters.
        after: the id to resume after, "" for the beginning.
        stop: set by another thread to end the stream, within about 5 s.
        deadline: in `time.monotonic()` seconds.
        patience: seconds without a connection after which ServerUnreachable is raised.
        away: told why there is no connection, once that lasts longer than `UNNOTICED`, and None with the first
            sign of life again.
    """
    pause = Pause(patience)
    gone = False
    while not over(stop, deadline):
        idle = 5.0 if stop is not None or deadline is not None else connection.timeout
        if deadline is not None:
            idle = max(0.05, min(idle, deadline - time.monotonic()))
        try:
            for event in _stream(connection, path, params, after, idle):
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
                # The server closed the stream without saying that it is over.
                pause.failure(ServerUnreachable(f"The server at {connection.url} ends the stream."), stop, deadline)
        except ServerUnreachable as lost:
            if pause.lasting > UNNOTICED:
                gone = True
                away(lost)
            pause.failure(lost, stop, deadline)


def _stream(
    connection: Connection, path: str, params: Params | None, after: str, idle: float
) -> Iterator[ServerEvent | None]:
    """One connection of `follow`; ends silently when it is idle for longer than `idle` seconds."""
    headers = {"Accept": "text/event-stream", "Accept-Encoding": "identity"}
    if after:
        headers["Last-Event-ID"] = after
    query: Params = {**(params or {}), "follow": 1, "after": after or None}
    parser = EventParser(after)
    with connection.open("GET", path, params=query, headers=headers, timeout=idle, once=True) as response:
        # Pieces as they come where the transfer is chunked (tornado's is); else only single bytes do not block.
        size = None if getattr(response.raw, "chunked", False) else 1
        try:
            for chunk in response.iter_content(size):
                yield None
                yield from parser.feed(chunk)
        except requests.RequestException as broken:
            if any(isinstance(reason, ReadTimeoutError) for reason in broken.args):
                yield None  # nothing to tell for a while is not a failure
                return
            raise connection.unreachable(broken, "dropped the connection") from broken
