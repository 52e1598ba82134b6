"""`Job`: one submitted training, as seen from a notebook, a script or the command line.

It holds an id, a connection and the last view of the job. The state itself is on the server. Only `stop`,
`suspend` and `delete` end or pause a job. Dropping the object, interrupting a wait or losing the server does not.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal, overload

import msgspec

from edt_sdk.client.timeline import When, read_timeline, timeline_window
from edt_sdk.display import card
from edt_sdk.display.log_text import LogLine, LogText
from edt_sdk.display.picture import Picture, fetch_picture
from edt_sdk.display.readings import Checkpoints, Metrics, Story, Timeline, WhatIfAnswer, Workers
from edt_sdk.display.validation import Validation
from edt_sdk.formatting.moments import moment
from edt_sdk.http.connection import Connection, Params, save_file
from edt_sdk.http.following import follow as follow_stream
from edt_sdk.schemas.errors import EdtError, InvalidRequest, NotFound, ServerUnreachable
from edt_sdk.schemas.events import Event
from edt_sdk.schemas.fields import did_you_mean, names_checked, words_of
from edt_sdk.schemas.job import CLONEABLE, JobPatch, JobResume, JobState, JobView, Reason, convert_change, tags_of
from edt_sdk.schemas.serving.versions import VersionReference, is_version
from edt_sdk.schemas.validation import DEFAULT_METRICS, NewValidation
from edt_sdk.schemas.wire.parts import PARTS, STREAMS
from edt_sdk.waiting.waiting import fetch, in_thread, raise_unless_finished, wait_for

if TYPE_CHECKING:
    import torch

    from edt_sdk.client.versions import Version
    from edt_sdk.monitor import Monitor

MIME = card.MIME
FINAL_FILES = "model/train/model_epoch_final"
_MADE_ID = re.compile(r"[a-z0-9-]+-[a-z2-7]{6}\Z")
_PAGE = 5000  # lines of a log fetched at once


def looks_like_id(text: str) -> bool:
    """Return whether the text has the form of the ids that servers make: a name, a dash and six random letters."""
    return bool(_MADE_ID.match(text))


def fetch_what_if(connection: Connection, of: str, fields: Mapping[str, Any]) -> WhatIfAnswer:
    """Return the effect of other settings of `of`, a path such as `jobs/ID`. Raises what the change would."""
    patch = convert_change(fields, JobPatch).check()
    return msgspec.convert(connection.json("GET", f"{of}/what-if", params=patch.changes()), WhatIfAnswer)


def is_id(text: str) -> bool:
    """Return whether the text can be an id: a part of a URL's path, where `..` or a slash leads to another route."""
    return bool(text) and PurePath(text).name == text


def weights_named(source: Job | Version | str) -> str:
    """Return what names the weights of a job or of a version in a submission."""
    name = source if isinstance(source, str) else getattr(source, "id", None)
    if isinstance(name, str) and is_version(name):
        VersionReference.of(name)
        return name
    if isinstance(name, str) and is_id(name):
        return name
    raise InvalidRequest(
        f"warm_start is a job, a version, or what it is called, not {source!r}.",
        hint="client.jobs() and client.versions() list them.",
        field="warm_start",
    )


@names_checked
class Job:
    """One job. Made by `Client.submit()`, `Client.job(id)` and `Client.jobs()`.

    `await job` waits for its end inside a running event loop, `job.wait()` everywhere else.

    Args:
        connection: the server's.
        view: the job as last seen. Or its id, and the view is fetched when it is needed.
        taken: when the view was taken, seconds since the epoch. Now by default.

    Raises:
        InvalidRequest: the text is not an id.
    """

    def __init__(self, connection: Connection, view: JobView | str, taken: float | None = None) -> None:
        self._connection = connection
        self._id = view if isinstance(view, str) else view.id
        if not is_id(self._id):
            raise InvalidRequest(f"{view!r} is not the id of a job.", field="job")
        self._seen = None if isinstance(view, str) else view
        self._taken = time.time() if taken is None else taken

    # Hidden from type checkers, for which any name would exist.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError, with the name that is meant: `suspend` for `pause`."""
            meant = "" if name.startswith("_") else did_you_mean(name, dir(type(self)))
            raise AttributeError(f"A job has no {name!r}. {meant}".rstrip())

    # --- what it is ---------------------------------------------------------------------------------------------------

    @property
    def connection(self) -> Connection:
        """Return the connection to its server."""
        return self._connection

    @property
    def id(self) -> str:
        """Return the id of the job, unique on the server."""
        return self._id

    @property
    def notes(self) -> str:
        """Text about the job, as last seen."""
        return self.view.notes

    @property
    def tags(self) -> tuple[str, ...]:
        """Return the words to find the job by, as last seen."""
        return self.view.tags

    @property
    def project(self) -> str:
        """Return the name of its project as last seen, "" for none."""
        return self.view.project

    @property
    def experiment(self) -> str:
        """Return the name of its experiment as last seen, "" for none."""
        return self.view.experiment

    @property
    def name(self) -> str:
        """Return the name of the job."""
        return self.view.name

    @property
    def reason(self) -> Reason | None:
        """Return why it has fewer slots than it wants, as last seen. `details` says how that is computed."""
        return self.view.reason

    @property
    def view(self) -> JobView:
        """Return the job as last seen. The server is asked only where none was seen yet."""
        if self._seen is None:
            self.refresh()
            assert self._seen is not None
        return self._seen

    @property
    def taken(self) -> float:
        """Return when `view` was seen, seconds since the epoch."""
        return self._taken

    def through(self, connection: Connection) -> Job:
        """Return the same job over another connection, for another thread."""
        return Job(connection, self.view, self._taken)

    @property
    def status(self) -> JobState:
        """Fetch the job and return its state."""
        return self.refresh().view.state

    @property
    def state(self) -> JobState:
        """Return the same as `status`."""
        return self.status

    @property
    def result_dir(self) -> Path:
        """Return the folder of the results on the server's machine."""
        return Path(self.view.result_dir)

    def refresh(self) -> Job:
        """Ask the server for the present view and return self."""
        self.saw(fetch(self._connection, self.id))
        return self

    def saw(self, view: JobView) -> None:
        """Take over a newer view from a stream."""
        self._seen, self._taken = view, time.time()

    # --- waiting ------------------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None, *, progress: bool = True) -> Job:
        """Wait for the end of the job, and return self when it is FINISHED.

        A lost connection is retried for up to two minutes. Ctrl-C ends the waiting, never the job. A suspended job has
        not ended: the wait goes on until it is resumed and ends.

        Args:
            timeout: seconds, None for no limit.
            progress: draw one line (stderr, in a notebook stdout) once the wait takes longer than 2 s.

        Raises:
            JobFailed: it failed or was stopped.
            WaitTimeout: `timeout` seconds are over. The job goes on.
            ServerUnreachable: the connection could not be restored.
        """
        return self._wait(timeout, progress=progress)

    def __await__(self) -> Generator[Any, None, Job]:
        # In a thread, because the connection blocks and the event loop must go on.
        return in_thread(lambda stop: self._wait(None, progress=False, stop=stop)).__await__()

    def _wait(self, timeout: float | None, *, progress: bool, stop: threading.Event | None = None) -> Job:
        wait_for(self._connection, self.id, self.saw, timeout=timeout, progress=progress, stop=stop)
        raise_unless_finished(self.view, timeout)
        return self

    # --- reading ------------------------------------------------------------------------------------------------------

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
        """Return the log as one string, with `follow` line by line.

        Args:
            stream: "all" (merged by time), "driver", "stdout" or "stderr" of the driver, "elog", or "worker".
            worker: one worker only.
            tail: only this many last lines, 1 to 100,000. Fewer where they are longer than a kibibyte.
            since: only lines written since then, as for `timeline`: "10m" for the last ten minutes.
            follow: an iterator that goes on until the job has ended, over dropped connections.

        Raises:
            InvalidRequest: no such stream, a `tail` below 1, or not a time.
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
        """Yield the lines of `logs` one by one, so that a log need not fit into memory. Arguments as for `logs`."""
        if stream not in STREAMS:
            raise InvalidRequest(f"stream is one of {', '.join(STREAMS)}, not {stream!r}.", field="stream")
        if tail is not None and tail < 1:
            raise InvalidRequest(
                f"tail is a number of lines above 0, not {tail}.", hint="Leave it out for all lines.", field="tail"
            )
        begin = None if since is None else moment(since, time.time())
        params: Params = {"stream": stream, "worker": worker, "tail": tail, "since": begin}
        if follow:
            events = follow_stream(self._connection, f"jobs/{self.id}/logs", params=params)
            return (msgspec.json.decode(each.data, type=LogLine) for each in events if each and each.kind == "line")
        pages = self._pages("logs", "lines", {**params, "limit": _PAGE})
        # A tail is one page by definition.
        chosen = pages if tail is None else islice(pages, 1)
        return (line for page in chosen for line in msgspec.convert(page, list[LogLine]))

    def _pages(self, path: str, field: str, params: Params) -> Iterator[list[Any]]:
        """Yield `field` of each page at `path`, until there is nothing more."""
        after: str | int | None = None
        while True:
            page = self._connection.json("GET", f"jobs/{self.id}/{path}", params={**params, "after": after})
            yield page[field]
            # An unchanged cursor is the end of what is written.
            if not page[field] or page["next"] == after:
                return
            after = page["next"]

    def metrics(self, *, points: int | None = None) -> Metrics:
        """Return the training and test curves. `points` thins the training curve to about that many points."""
        answer = self._connection.json("GET", f"jobs/{self.id}/metrics", params={"points": points})
        return Metrics(train=answer["train"], test=answer["test"], speeds=answer.get("speeds", []))

    def story(self) -> Story:
        """Return the events of the job, oldest first. The repr is their text."""
        pages = self._pages("events", "events", {})
        # A report that a later server took has the time it was written at, which is before that server's own events.
        events = (event for page in pages for event in msgspec.convert(page, list[Event]))
        return Story(sorted(events, key=lambda event: event.time))

    def timeline(self, *, since: When = None, until: When = None, points: int | None = None) -> Timeline:
        """Return how many slots it and its neighbours held, when and why. See `Client.timeline`."""
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
        """Return a picture drawn by the server. It shows itself in a cell, and `save` writes it to a file.

        Args:
            name: "loss", "allocation" (slots over time), "efficiency" (speed at each number of workers) or "spark".
            x: the axis of the loss: "samples", "updates" or "time".
            smooth: smoothing of the loss, 0 to 1. The points stay visible.
            log: draw the loss on a logarithmic scale.
            since: only since then, as for `timeline`: the allocation, and the loss with x="time".
            until: the same until then.
            theme: "auto" (legible on white and on black), "light" or "dark".
            width: pixels, 720 by default.

        Raises:
            InvalidRequest: a value cannot be used, or `since` or `until` with a loss that is not over time.
            NotFound: no such picture. The hint lists the pictures.
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
        """Return `{"worker", "slot", "host", "pid", "rank", "generation"}` of each running worker."""
        return Workers(self._connection.json("GET", f"jobs/{self.id}/workers")["workers"])

    def checkpoints(self) -> Checkpoints:
        """Return `{"name", "epoch", "bytes", "time", "kind" ("weights", "exact"), "update", "training"}` of each."""
        return Checkpoints(self._connection.json("GET", f"jobs/{self.id}/checkpoints")["checkpoints"])

    def losses(self) -> list[tuple[float, float]]:
        """Return (update, loss) of about 100 points of the training curve, or none when the server does not answer."""
        try:
            train = self.metrics(points=100).train
        except EdtError:
            return []  # a card is useful without its curve
        return [(point["update"], point["loss"]) for point in train if point["loss"] is not None]

    # --- changing it --------------------------------------------------------------------------------------------------

    def update(
        self,
        *,
        priority: int | None = None,
        max_workers: int | None = None,
        instance_group: str | None = None,
        notes: str | None = None,
        tags: Sequence[str] | str | None = None,
        project: str | None = None,
        experiment: str | None = None,
    ) -> Job:
        """Change settings of the job and return self.

        The first three may change until it has ended, the others at any time.

        Args:
            priority: weight under fair share, 1 … 10**9.
            max_workers: most slots it may hold, ≥ 1.
            instance_group: the queue it moves to.
            notes: text about the job, at most 10,000 characters. "" for none.
            tags: up to 20 words to find it by, in place of the present ones, as a sequence or a text with commas.
            project: the project it belongs to. "" for none.
            experiment: the experiment in that project. "" for none.

        Raises:
            Conflict: it has ended.
            Unprocessable: the value cannot be used here.
        """
        fields = {"priority": priority, "max_workers": max_workers, "instance_group": instance_group, "notes": notes}
        fields |= {"project": project, "experiment": experiment}
        # None leaves the tags as they are, and an empty sequence removes them.
        patch = convert_change({**fields, "tags": None if tags is None else tags_of(tags)}, JobPatch)
        return self._answer("PATCH", "", patch.check().changes())

    def what_if(
        self, *, priority: int | None = None, max_workers: int | None = None, instance_group: str | None = None
    ) -> WhatIfAnswer:
        """Return how many slots each job would hold with these settings, and when the training would end.

        Changes nothing. Arguments and errors are those of `update`. The forecast assumes that no other job arrives.
        """
        fields = {"priority": priority, "max_workers": max_workers, "instance_group": instance_group}
        return fetch_what_if(self._connection, f"jobs/{self.id}", fields)

    def stop(self) -> Job:
        """Stop the job and return self. Its logs and checkpoints stay."""
        return self._answer("POST", "/stop")

    def suspend(self) -> Job:
        """Take all slots from the job until `resume`, and return self.

        At the end of the next update it writes a checkpoint and releases its slots. It is then SUSPENDED, not ended.

        Raises:
            Conflict: it has ended.
        """
        return self._answer("POST", "/suspend")

    def resume(self, checkpoint: str | None = None, *, instance_group: str | None = None) -> Job:
        """Resume a job that was suspended or stopped, or that failed, and return self. A running job is unchanged.

        The job waits for slots like any other. Its result has the same bits on any number of slots.

        Args:
            checkpoint: where to resume from, as `checkpoints()` names it, such as "epoch-3". Later updates are
                recomputed. The newest checkpoint by default.
            instance_group: the queue for the resumed job, its last one by default.

        Raises:
            Conflict: it cannot be resumed any more, or a checkpoint was named while its workers run.
            Unprocessable: there is no such queue, or its last queue was removed and no other is named.
            InvalidRequest, NotFound: not the name of a checkpoint, or there is no such checkpoint.
        """
        chosen = msgspec.to_builtins(JobResume(checkpoint=checkpoint, instance_group=instance_group).check())
        return self._answer("POST", "/resume", chosen or None)

    def clone(
        self,
        *,
        main: str | None = None,
        name: str | None = None,
        max_workers: int | None = None,
        min_workers: int | None = None,
        priority: int | None = None,
        instance_group: str | None = None,
        mode: str | None = None,
        seed: int | None = None,
        log: str | None = None,
        warm_start: Job | Version | str | None = None,
        dataset: str | None = None,
        notes: str | None = None,
        tags: Sequence[str] | str | None = None,
        project: str | None = None,
        experiment: str | None = None,
        args: Sequence[str] | str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Job:
        """Submit another job with the package of this one, and return it.

        The package is the server's copy, so nothing is read or sent here. Settings that are not given are those of this
        job, with later changes. The arguments are those of `Client.submit`, where "" for `dataset` and `warm_start` is
        none.

        Raises:
            NotFound: this job was deleted, or there is no such data set, or job or version of `warm_start`.
            PackageError: `main` is not in the package.
            InvalidRequest, Unprocessable: a value cannot be used.
        """
        warm_start = warm_start and weights_named(warm_start)
        tags = None if tags is None else tags_of(tags)
        args = None if args is None else words_of(args)
        env = None if env is None else dict(env)
        given: Mapping[str, Any] = locals()
        # A setting that is not sent keeps the value it has in this job, so None must not travel.
        spec = {field: given[field] for field in (*CLONEABLE, "args") if given[field] is not None and field != "main"}
        body = {"source": {"job": self.id}, "main": main, "spec": spec}
        return Job(self._connection, msgspec.convert(self._connection.json("POST", "submissions", body=body), JobView))

    def delete(self) -> None:
        """Remove the job with its logs and results."""
        self._connection.json("DELETE", f"jobs/{self.id}")

    def _answer(self, method: str, verb: str, body: Any = None) -> Job:
        self.saw(msgspec.convert(self._connection.json(method, f"jobs/{self.id}{verb}", body=body), JobView))
        return self

    # --- validation ---------------------------------------------------------------------------------------------------

    def validate(
        self,
        metrics: Sequence[str] | str = DEFAULT_METRICS,
        *,
        threshold: float | None = None,
        dataset: str | None = None,
        name: str | None = None,
        max_workers: int = 1,
        instance_group: str | None = None,
        priority: int | None = None,
    ) -> Job:
        """Validate the trained model on the test data.

        The same package runs again. Where its script calls `train()`, the final weights of the training are tested and
        nothing is trained. Returns the validation job, and `validation()` reads its result.

        Args:
            metrics: "loss" (the script's), "accuracy", "top5" or another top<K>, "precision", "recall", "f1", "iou",
                "confusion". A sequence, or one text with commas. Case does not matter.
            threshold: the lowest probability that means class 1 of a binary output, between 0 and 1. 0.5 by default.
            dataset: name of a registered data set, the folder of which is the job's DATA_DIR. The training's by
                default.
            name: name of the job.
            max_workers: most slots it may hold. The result is the same for any number.
            instance_group: its queue. The training's by default.
            priority: its weight under fair share. The training's by default.

        Raises:
            Conflict: it has written no weights yet.
            InvalidRequest: there is no such metric.
            Unprocessable: it is not a training by the elastic engine, or a value is out of bounds.
            NotFound: there is no such data set.
        """
        new = NewValidation(
            metrics=metrics if isinstance(metrics, str) else tuple(metrics),
            threshold=threshold,
            dataset=dataset,
            name=name,
            max_workers=max_workers,
            instance_group=instance_group,
            priority=priority,
        ).check()
        answer = self._connection.json("POST", f"jobs/{self.id}/validations", body=new)
        return Job(self._connection, msgspec.convert(answer, JobView))

    def validation(self) -> Validation:
        """Return the result of a validation job (see `Job.validate`), which shows itself as a table.

        Raises:
            NotFound: there is no result, or not yet.
            Unprocessable: it is not a validation.
        """
        return Validation.of(self.id, self._connection.json("GET", f"jobs/{self.id}/validation"))

    # --- results ------------------------------------------------------------------------------------------------------

    def download(
        self,
        directory: str | os.PathLike[str] = ".",
        part: str = "all",
        *,
        extract: bool = False,
        told: Callable[[int, int | None], None] = lambda written, total: None,
    ) -> Path:
        """Download the results as one zip, streamed to disk, and return its path.

        Args:
            directory: the target, made when missing.
            part: "model" (the final weights, those of epochs only before there are final ones), "checkpoint" (the
                others, and what the job resumes from), "log" or "all".
            extract: also unpack it, into `directory/<job id>/`, and return that folder.
            told: callback, run during the download with the bytes so far and the total (None: not known).
        """
        if part not in PARTS:
            raise InvalidRequest(f"part is one of {', '.join(PARTS)}, not {part!r}.", field="part")
        folder = Path(directory).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{self.id}-{part}.zip"
        save_file(self._connection, f"jobs/{self.id}/result", target, params={"part": part}, told=told)
        if not zipfile.is_zipfile(target):
            target.unlink()
            raise ServerUnreachable(f"The download of job {self.id} is damaged.", hint="Try again.", job=self.id)
        if not extract:
            return target
        unpacked = folder / self.id
        with zipfile.ZipFile(target) as archive:
            # `zipfile` drops absolute names and `..` by itself, so nothing lands outside of the folder.
            archive.extractall(unpacked)
        return unpacked

    def load_into(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None, lr_scheduler: Any = None
    ) -> torch.nn.Module:
        """Load the final weights into `model`, in place, and return the model.

        An optimizer over the parameters of `model`, and its scheduler, get their final state too.
        Only tensors and numbers are read from the files, never code. Raises NotFound when there is no final model yet.
        """
        # Here and not at the top: importing torch takes about a second, and most clients never need it.
        from edt_sdk.training.checkpoints import model_files

        # Through the download, not `result_dir`: the server may be on another machine.
        with tempfile.TemporaryDirectory(prefix="edt-") as folder:
            with zipfile.ZipFile(self.download(folder, "model")) as archive:
                final = {Path(name).name: name for name in archive.namelist() if FINAL_FILES in name}
                if model_files.MODEL not in final:
                    raise NotFound(
                        f"Job {self.id} has no final model (its state is {self.view.state.word}).",
                        hint="It is written after the last update; wait for the job first.",
                        job=self.id,
                    )
                train = Path(archive.extract(final[model_files.MODEL], folder)).parent
                for name in (model_files.OPTIMIZER, model_files.SCHEDULE):
                    if optimizer is not None and name in final:
                        archive.extract(final[name], folder)
            model_files.load(train / model_files.MODEL, model)
            if optimizer is not None:
                model_files.load_optimizer(train, optimizer, lr_scheduler)
        return model

    def monitor(self) -> Monitor:
        """Watch the job live: its tab as a widget in a notebook, a line in a terminal.

        When the job ends, when the kernel is interrupted, and at `.close()` it leaves a static picture.
        """
        from edt_sdk.monitor import JobMonitor

        return JobMonitor(self).show()

    # --- how it looks -------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        trouble = self._renew()
        return card.text_card(self.view, self._taken, trouble=trouble)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """Return the card. Never a widget: a widget that lost its kernel hides the HTML next to it."""
        return self.bundle(self._renew())

    def bundle(self, trouble: str = "") -> dict[str, Any]:
        """Return the card of the last view as a MIME bundle. `trouble` is why there is no newer view."""
        losses = [] if trouble or self.view.validates else self.losses()
        result = ""
        if self.view.validates and self.view.state is JobState.FINISHED:
            with suppress(EdtError):  # a card is useful without it
                result = self.validation().words
        return card.bundle(self.view, self._taken, self._connection.url, losses=losses, trouble=trouble, result=result)

    def _renew(self) -> str:
        """Refresh a view that may have changed. Returns why that was not possible, or ""."""
        if self.view.state in (JobState.FINISHED, JobState.ERROR):
            return ""  # final for good, where a stopped or failed job may have been resumed
        try:
            self.refresh()
        except EdtError as refused:
            return str(refused)
        return ""
