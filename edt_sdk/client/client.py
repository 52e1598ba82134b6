"""`Client`: one server, seen from a notebook, a script or the command line.

Synchronous; a job is awaitable where an event loop runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from types import TracebackType
from typing import IO, TYPE_CHECKING

import msgspec

from edt_sdk.client.catalogue import Catalogue
from edt_sdk.client.job import Job
from edt_sdk.client.job_list import JobList
from edt_sdk.client.job_readings import When, read_timeline, timeline_window
from edt_sdk.client.sharing import Sharing
from edt_sdk.client.submitting import Submitting
from edt_sdk.display.answers import Answer
from edt_sdk.display.cluster_view import Cluster
from edt_sdk.display.picture import Picture, fetch_picture
from edt_sdk.display.readings import Timeline
from edt_sdk.http.connection import Connection, Params
from edt_sdk.http.discovery import connect
from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.job import JobState, JobView

if TYPE_CHECKING:
    from edt_sdk.monitor import Monitor


class Client(Submitting, Catalogue, Sharing):
    """A connection to a server.

    Args:
        url: its address; without one the server is found as `edt_sdk/http/discovery.py` says.
        token: its token.
        output: where `submit` tells what it packs; sys.stdout by default.

    Raises:
        ServerUnreachable: no server found, or it does not answer.
        NotAllowed: it does not accept the token.
    """

    def __init__(self, url: str | None = None, token: str | None = None, *, output: IO[str] | None = None) -> None:
        self.server, self.info = connect(url, token)
        self._connection = Connection(self.server.url, self.server.token)
        self._output = output

    @property
    def connection(self) -> Connection:
        """The session with the server."""
        return self._connection

    @property
    def url(self) -> str:
        """The server's address."""
        return self.server.url

    def close(self) -> None:
        """Close the connection; its jobs go on."""
        self._connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client of {self.url} ({self.info.name} {self.info.version}, user {self.info.user})"

    # --- the other verbs ----------------------------------------------------------------------------------------------

    def jobs(
        self,
        *,
        all: bool = False,
        state: JobState | str | None = None,
        limit: int | None = None,
        before: Job | str | None = None,
    ) -> JobList:
        """My jobs, newest first; the list says whether there are older ones (`more`).

        Args:
            all: those of other users as well, as far as the server shows them.
            state: only those in this state.
            limit: at most so many, None for the newest 1000; 10 000 at most.
            before: only those older than this job, such as the last one of an earlier list.

        Raises:
            InvalidRequest: no such state, or more than 10 000.
            NotFound: there is no job `before`.
        """
        if state is not None:
            state = _state(state)
        params: Params = {"all": 1 if all else None, "state": state, "limit": limit}
        if before is not None:
            view = before.view if isinstance(before, Job) else self.job(before).view
            params["before"] = f"{view.created!r},{view.id}"
        answer = self._connection.json("GET", "jobs", params=params)
        views = msgspec.convert(answer["jobs"], list[JobView])
        return JobList((Job(self._connection, view) for view in views), more="next" in answer)

    def job(self, job: str) -> Job:
        """The job with this id; NotFound when there is none."""
        if not job or PurePath(job).name != job:
            raise InvalidRequest(f"{job!r} is not the id of a job.", field="job")
        return Job(self._connection, msgspec.convert(self._connection.json("GET", f"jobs/{job}"), JobView))

    def what_if(
        self,
        job: Job | str,
        *,
        priority: int | None = None,
        max_workers: int | None = None,
        instance_group: str | None = None,
    ) -> Answer:
        """What if this job's settings were others? See `Job.what_if`; nothing is changed."""
        found = job if isinstance(job, Job) else self.job(job)
        return found.what_if(priority=priority, max_workers=max_workers, instance_group=instance_group)

    def stop_all(self) -> list[str]:
        """Stop all my jobs; their ids."""
        ids: list[str] = self._connection.json("POST", "jobs/stop")["jobs"]
        return ids

    def cluster(self) -> Cluster:
        """The machine now: slots, groups, jobs and what they wait for; a dict that reads well, see `Cluster`."""
        return Cluster(self._connection.json("GET", "cluster"))

    def timeline(self, *, since: When = None, until: When = None, points: int | None = None) -> Timeline:
        """Which job held how many slots, when and why.

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
        return read_timeline(self._connection.json("GET", "timeline", params=window), window)

    def picture(
        self,
        name: str = "timeline",
        *,
        job: Job | str | None = None,
        since: When = None,
        until: When = None,
        theme: str = "auto",
        width: int | None = None,
    ) -> Picture:
        """A picture of the machine, drawn by the server; it shows itself in a cell.

        Args:
            name: "timeline" (everybody's slots over time), "slots" (each slot and who has it) or "shares" (instance
                groups).
            job: one of mine that stands out.
            since: the timeline only since then, as for `timeline`.
            until: the timeline only until then.
            theme: "auto" (legible on white and on black), "light" or "dark".
            width: pixels, 720 by default.

        Raises:
            InvalidRequest: a value that cannot be drawn with.
            NotFound: no such picture, or no such job.
        """
        chosen = job.id if isinstance(job, Job) else job
        params: Params = {"job": chosen, "theme": theme, "width": width, **timeline_window(since, until, None)}
        return fetch_picture(self._connection, f"pictures/{name}", params)

    def compare(
        self,
        jobs: Sequence[Job | str],
        *,
        x: str = "samples",
        smooth: float = 0.0,
        log: bool = False,
        theme: str = "auto",
        width: int | None = None,
    ) -> Picture:
        """The losses of up to five of my jobs in one picture; the other arguments are those of `Job.picture`."""
        ids = ",".join(job.id if isinstance(job, Job) else job for job in jobs)
        curve: Params = {"x": x, "y": "log" if log else None, "smooth": smooth or None}
        return fetch_picture(
            self._connection, "pictures/compare", {"jobs": ids, **curve, "theme": theme, "width": width}
        )

    def monitor(self) -> Monitor:
        """Watch all jobs live: tabs of widgets in a notebook, a line in a terminal; ends when none is active."""
        from edt_sdk.monitor import ClientMonitor

        return ClientMonitor(self).show()


def _state(text: str) -> JobState:
    try:
        return JobState(text.upper())
    except ValueError:
        raise InvalidRequest(f"{text!r} is no state; the states are {', '.join(JobState)}.", field="state") from None
