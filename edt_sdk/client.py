"""`Client`: one server, seen from a notebook, a script or the command line.

Synchronous; a job is awaitable where an event loop runs. A submission contains what is listed before it is sent, and
never the token of the server or the Hub.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from types import TracebackType
from typing import IO

import msgspec

from edt_sdk.answers import Answer
from edt_sdk.cluster_view import Cluster
from edt_sdk.connection import Connection, Params
from edt_sdk.discovery import connect
from edt_sdk.job import Job
from edt_sdk.job_list import JobList
from edt_sdk.job_readings import When, timeline_window
from edt_sdk.monitor import ClientMonitor, Monitor
from edt_sdk.packing import (
    QUIET_VARIABLE,
    Collected,
    Multipart,
    Source,
    collect,
    packing_table,
    upload_progress,
    write_archive,
)
from edt_sdk.picture import Picture, fetch_picture
from edt_sdk.readings import Timeline
from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.frameworks import SHELL, Framework
from edt_sdk.schemas.job import DEFAULT_PRIORITY, JobSpec, JobState, JobView
from edt_sdk.sharing import Sharing
from edt_sdk.torchrun.submission import start_of

# Names under which tokens of servers travel in the environment of kernels.
_SECRETS = frozenset({"EDT_TOKEN", "JUPYTER_TOKEN", "JPY_API_TOKEN", "JUPYTERHUB_API_TOKEN"})


class Client(Sharing):
    """A connection to a server.

    Args:
        url: its address; without one the server is found as `edt_sdk/discovery.py` says.
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

    # --- submitting ---------------------------------------------------------------------------------------------------

    def submit(
        self,
        source: Source,
        *,
        main: str | None = None,
        name: str | None = None,
        max_workers: int = 1,
        min_workers: int = 1,
        slots_per_unit: int = 1,
        pending_timeout: float | None = None,
        priority: int = DEFAULT_PRIORITY,
        instance_group: str = "",
        mode: str = "exact",
        seed: int = 0,
        threads_per_slot: int | None = None,
        warm_start: Job | str | None = None,
        framework: str = Framework.EDT,
        command: Sequence[str] | str = (),
        torchrun: Sequence[str] | str = (),
        data_path: str = "",
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        progress: bool = True,
    ) -> Job:
        """Pack `source`, send it, and return the job.

        Args:
            source: a folder; a `.py` or `.ipynb` file, sent with the modules beside it that it imports; or code: a
                string with a line break, or a list of notebook cells.
            main: main script, relative to the folder; needed only where more than one could be meant.
            name: what people call it; taken from the source by default.
            max_workers: most slots it may hold at once. It starts on one.
            min_workers: slots without which it does not run: it waits until it can have as many.
            slots_per_unit: its slots come and go so many at a time; `max_workers` is a multiple of it, `min_workers` is
                1 (for one unit) or one too.
            pending_timeout: seconds after which it ends with ERROR if it has never got a slot; None for what its
                instance group says.
            priority: weight under fair share; twice the weight gets about twice the slots.
            instance_group: the queue, "" for the server's first.
            mode: "exact": equal bits for any number of workers; "fast": the same batches, not the same bits.
            seed: of sample order, dropout and augmentation.
            threads_per_slot: threads of a worker, None for the server's cores ÷ slots.
            warm_start: another job of mine, or its id: the model begins with its final weights, else with those of its
                newest epoch. Optimizer and schedule are the script's own.
            framework: what runs the script: "edtPyTorch", our elastic engine; "PyTorch", the script as it is in one
                process with all slots; "distPyTorch", the script once for each slot, for torch.distributed; "torchrun",
                a PyTorch Elastic script. The middle two get `max_workers` slots at once, and keep that number.
            command: run in the folder in place of the script, with a framework other than "edtPyTorch": its words, or a
                string for a shell.
            torchrun: with framework "torchrun" what would be said to `torchrun`, such as "--nnodes=1:4
                --nproc-per-node=2 --max-restarts=3"; as text or words, with or without a script. Nodes times processes
                are the slots, and come before `max_workers`, `min_workers` and `slots_per_unit`.
            data_path: the job's DATA_DIR, relative to the server's data folder; "" for that folder itself.
            args: the script's own arguments.
            env: environment variables of the job; nothing is taken over from here by itself.
            progress: print what is packed; `EDT_NONINTERACTIVE` silences it too.

        Raises:
            PackageError: no such source, no such main script, or a file that cannot be packed.
            TooLarge: the package is over the server's limit.
            InvalidRequest, Unprocessable: an argument cannot be used, or `warm_start` has written no weights yet.
            NotFound, NotAllowed: the job of `warm_start` is not there, or somebody else's.
        """
        words = (*SHELL, command) if isinstance(command, str) and command else tuple(command)
        start = start_of(
            framework,
            torchrun,
            main=main,
            args=args,
            max_workers=max_workers,
            min_workers=min_workers,
            slots_per_unit=slots_per_unit,
        )
        collected = collect(source, start.main, script=not words and not start.named)
        spec = JobSpec(
            name=name or collected.name,
            main=start.named or collected.main,
            pending_timeout=pending_timeout,
            args=start.args,
            **start.fields,
            env=dict(env or {}),
            priority=priority,
            instance_group=instance_group,
            mode=mode,
            seed=seed,
            threads_per_slot=threads_per_slot,
            warm_start=_job_id(warm_start),
            # On another machine this path means nothing; the server then takes its configured interpreter.
            python=sys.executable if self.server.local else None,
            python_version=f"{sys.version_info.major}.{sys.version_info.minor}",
            framework=str(framework),
            command=words,
            data_path=data_path,
        ).check()
        self._keep_secrets(spec)
        return self._send(spec, collected, quiet=not progress or bool(os.environ.get(QUIET_VARIABLE)))

    def _keep_secrets(self, spec: JobSpec) -> None:
        for key, value in spec.env.items():
            if key in _SECRETS or self._connection.holds(value):
                raise InvalidRequest(
                    f"env has {key}, the token of a server; a job must not carry it.",
                    hint="Pass only the variables that the job needs.",
                    field="env",
                )
        for field, words in (("args", spec.args), ("command", spec.command)):
            if any(map(self._connection.holds, words)):
                raise InvalidRequest(f"{field} has the token of the server; a job must not carry it.", field=field)

    def _send(self, spec: JobSpec, collected: Collected, *, quiet: bool) -> Job:
        with tempfile.TemporaryFile(prefix="edt-package-") as package:
            size = write_archive(collected.files, package, cap=self.info.max_upload_bytes)
            if not quiet:
                print(packing_table(collected, size), file=self._output or sys.stdout, flush=True)
            package.seek(0)
            body = Multipart(msgspec.json.encode(spec), package, size, None if quiet else upload_progress())
            answer = self._connection.post_body("jobs", body, body.content_type)
        return Job(self._connection, msgspec.convert(answer, JobView))

    # --- the other verbs ----------------------------------------------------------------------------------------------

    def jobs(self, *, all: bool = False, state: JobState | str | None = None, limit: int | None = None) -> JobList:
        """My jobs, newest first.

        Args:
            all: those of other users as well, as far as the server shows them.
            state: only those in this state.
            limit: at most so many, None for the newest 1000; 10 000 at most.
        """
        if state is not None:
            state = _state(state)
        params: Params = {"all": 1 if all else None, "state": state, "limit": limit}
        answer = self._connection.json("GET", "jobs", params=params)
        return JobList(Job(self._connection, view) for view in msgspec.convert(answer["jobs"], list[JobView]))

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
        return msgspec.convert(self._connection.json("GET", "timeline", params=window), Timeline)

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
        theme: str = "auto",
        width: int | None = None,
    ) -> Picture:
        """The losses of up to five of my jobs in one picture; the other arguments are those of `Job.picture`."""
        ids = ",".join(job.id if isinstance(job, Job) else job for job in jobs)
        params: Params = {"jobs": ids, "x": x, "smooth": smooth or None, "theme": theme, "width": width}
        return fetch_picture(self._connection, "pictures/compare", params)

    def monitor(self) -> Monitor:
        """Watch all jobs live: a table in a notebook, a line in a terminal."""
        return ClientMonitor(self).show()


def _job_id(job: Job | str | None) -> str:
    if job is None:
        return ""
    name = job.id if isinstance(job, Job) else job
    if not isinstance(name, str) or not name or PurePath(name).name != name:
        raise InvalidRequest(
            f"warm_start is a job or the id of one, not {job!r}.",
            hint="client.jobs() lists them.",
            field="warm_start",
        )
    return name


def _state(text: str) -> JobState:
    try:
        return JobState(text.upper())
    except ValueError:
        raise InvalidRequest(f"{text!r} is no state; the states are {', '.join(JobState)}.", field="state") from None
