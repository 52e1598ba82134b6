"""Parse server-sent events: bytes in, events out.

The format is the event stream of the HTML standard (section 9.2.6, "Interpreting an event stream"). The parser is pure
and incremental: any split of the same bytes gives the same events. `following.py` connects and resumes.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """Holds one dispatched event. `id` is the newest id of the stream so far, and a reader resumes after it."""

    kind: str
    data: str
    id: str


class EventParser:
    """Collects bytes and returns events. Use one object per connection. `last_id` may come from the last connection."""

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
