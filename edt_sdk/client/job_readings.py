"""What a job tells of itself: logs, curves, events, allocation, workers, checkpoints. Nothing here changes it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal, overload

import msgspec

from edt_sdk.display.log_line import LogLine
from edt_sdk.display.log_text import LogText
from edt_sdk.display.picture import Picture, fetch_picture
from edt_sdk.display.readings import Checkpoints, Metrics, Story, Timeline, Workers
from edt_sdk.formatting.moments import moment
from edt_sdk.http.connection import Connection, Params
from edt_sdk.http.following import follow
from edt_sdk.schemas.errors import EdtError, InvalidRequest
from edt_sdk.schemas.events import Event
from edt_sdk.schemas.job import JobView
from edt_sdk.schemas.wire.parts import STREAMS

_PAGE = 5000
When = float | str | datetime | None


class JobReadings:
    """The part of `Job` that only reads."""

    _connection: Connection
    _view: JobView

    @property
    def id(self) -> str:
        """Its id, unique on the server."""
        return self._view.id

    @overload
    def logs(
        self,
        stream: str = "all",
        *,
        worker: int | None = None,
        tail: int | None = None,
        since: When = None,
        follow: Literal[False] = False,
    ) -> LogText: ...
    @overload
    def logs(
        self,
        stream: str = "all",
        *,
        worker: int | None = None,
        tail: int | None = None,
        since: When = None,
        follow: Literal[True],
    ) -> Iterator[LogLine]: ...

    def logs(
        self,
        stream: str = "all",
        *,
        worker: int | None = None,
        tail: int | None = None,
        since: When = None,
        follow: bool = False,
    ) -> LogText | Iterator[LogLine]:
        """What it wrote, as one string; with `follow` line by line.

        Args:
            stream: "all" (merged by time), "driver", "stdout" or "stderr" of the driver, "elog", or "worker".
            worker: one worker only.
            tail: only the last so many lines, 1 to 100 000; fewer where they are longer than a kibibyte.
            since: only lines said since then, as for `timeline`: "10m" for the last ten minutes.
            follow: an iterator that goes on until the job has ended, over dropped connections.

        Raises:
            InvalidRequest: no such stream, a `tail` below 1, or what is no time.
        """
        lines = self.log_lines(stream, worker=worker, tail=tail, since=since, follow=follow)
        return lines if follow else LogText(lines)

    def log_lines(
        self,
        stream: str = "all",
        *,
        worker: int | None = None,
        tail: int | None = None,
        since: When = None,
        follow: bool = False,
    ) -> Iterator[LogLine]:
        """The same one by one, fetched as they are taken: a log need not fit into memory. The arguments are `logs`'."""
        if stream not in STREAMS:
            raise InvalidRequest(f"stream is one of {', '.join(STREAMS)}, not {stream!r}.", field="stream")
        if tail is not None and tail < 1:
            raise InvalidRequest(
                f"tail is a number of lines above 0, not {tail}.", hint="Leave it out for all lines.", field="tail"
            )
        begin = None if since is None else moment(since, time.time())
        params: Params = {"stream": stream, "worker": worker, "tail": tail, "since": begin}
        return self._follow_logs(params) if follow else self._pages_of_logs(params)

    def _pages_of_logs(self, params: Params) -> Iterator[LogLine]:
        cursor: str | None = None
        while True:
            query = {**params, "after": cursor, "limit": _PAGE}
            page = self._connection.json("GET", f"jobs/{self.id}/logs", params=query)
            yield from msgspec.convert(page["lines"], list[LogLine])
            if not page["lines"] or page["next"] == cursor or params["tail"] is not None:
                return
            cursor = page["next"]

    def _follow_logs(self, params: Params) -> Iterator[LogLine]:
        for event in follow(self._connection, f"jobs/{self.id}/logs", params=params):
            if event is not None and event.kind == "line":
                yield msgspec.json.decode(event.data, type=LogLine)

    def metrics(self, *, points: int | None = None) -> Metrics:
        """Its curves; `points` thins the training curve to about that many."""
        answer = self._connection.json("GET", f"jobs/{self.id}/metrics", params={"points": points})
        return Metrics(train=answer["train"], test=answer["test"], speeds=answer.get("speeds", []))

    def story(self) -> Story:
        """Its events, oldest first; the repr tells them."""
        story, after = Story(), None
        while True:
            page = self._connection.json("GET", f"jobs/{self.id}/events", params={"after": after})
            story.extend(msgspec.convert(page["events"], list[Event]))
            if not page["events"] or page["next"] == after:
                return story
            after = page["next"]

    def timeline(self, *, since: When = None, until: When = None, points: int | None = None) -> Timeline:
        """How many slots it and its neighbours held, when and why.

        Thinned to a picture of 500 rows when there are more.

        Args:
            since: only since then: seconds since the epoch, a datetime, or a text such as "2h" (ago), "14:30" or
                "2026-05-01". A window is exact to the event, up to 10 000 rows.
            until: only until then.
            points: at most so many rows instead.

        Raises:
            InvalidRequest: what is no time.
        """
        window = timeline_window(since, until, points)
        return read_timeline(self._connection.json("GET", f"jobs/{self.id}/timeline", params=window), window)

    def picture(
        self,
        name: str = "loss",
        *,
        x: str = "samples",
        smooth: float = 0.0,
        log: bool = False,
        since: When = None,
        until: When = None,
        theme: str = "auto",
        width: int | None = None,
    ) -> Picture:
        """A picture of it, drawn by the server; it shows itself in a cell, and `save` writes it to a file.

        Args:
            name: "loss", "allocation" (slots over time), "efficiency" (speed at each number of workers) or "spark".
            x: what the loss is drawn over: "samples", "updates" or "time".
            smooth: how much the loss is smoothed, 0 to 1; the points stay visible.
            log: the loss on a logarithmic scale.
            since: only since then, as for `timeline`: the allocation, and the loss with x="time".
            until: the same until then.
            theme: "auto" (legible on white and on black), "light" or "dark".
            width: pixels, 720 by default.

        Raises:
            InvalidRequest: a value that cannot be drawn with; times, and the loss is not over time.
            NotFound: no such picture; the hint names those there are.
        """
        if name == "loss" and x != "time" and not (since is None and until is None):
            raise InvalidRequest(
                f"since and until are times, and the loss is drawn over {x}.",
                hint='Draw it over time: x="time", at a shell --x time with -o or --open.',
                field="since" if since is not None else "until",
            )
        window = timeline_window(since, until, None)
        curve: Params = {"x": x, "y": "log" if log else None, "smooth": smooth or None}
        params: Params = {**curve, "theme": theme, "width": width, **window}
        return fetch_picture(self._connection, f"jobs/{self.id}/pictures/{name}", params)

    def workers(self) -> Workers:
        """`{"worker", "slot", "host", "pid", "rank", "generation"}` of each worker that runs now."""
        return Workers(self._connection.json("GET", f"jobs/{self.id}/workers")["workers"])

    def checkpoints(self) -> Checkpoints:
        """`{"name", "epoch", "bytes", "time", "kind", "update", "training"}` of each; kind is "weights" or "exact"."""
        return Checkpoints(self._connection.json("GET", f"jobs/{self.id}/checkpoints")["checkpoints"])

    def losses(self) -> list[tuple[float, float]]:
        """(update, loss) of about 100 points of the training curve; none when the server cannot tell."""
        try:
            train = self.metrics(points=100).train
        except EdtError:
            return []  # a card without its curve is still a card
        return [(point["update"], point["loss"]) for point in train if point["loss"] is not None]


def timeline_window(since: When, until: When, points: int | None) -> Params:
    """The query for a window of a timeline. InvalidRequest for what is no time."""
    now = time.time()
    start, end = (None if when is None else moment(when, now) for when in (since, until))
    return {"start": start, "end": end, "points": points}


def read_timeline(answer: Any, window: Params) -> Timeline:
    """A timeline as the server tells it; one of a window holds up to the window's end."""
    found = msgspec.convert(answer, Timeline)
    end = window.get("end")
    return found if end is None else replace(found, until=float(end))
