"""`Job`: one submitted training, as seen from a notebook, a script or the command line.

Holds an id, a connection and the last view; the truth is the server's. Nothing here can hurt a job but `stop`,
`suspend` and `delete`: letting go of the object, interrupting a wait or losing the server leaves the job as it is.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from edt_sdk.client.job_readings import JobReadings
from edt_sdk.client.job_validation import JobValidation
from edt_sdk.display import card
from edt_sdk.display.answers import Answer
from edt_sdk.http.connection import Connection, save_file
from edt_sdk.schemas.errors import (
    EdtError,
    InvalidRequest,
    JobFailed,
    NotAllowed,
    NotFound,
    ServerUnreachable,
    WaitTimeout,
)
from edt_sdk.schemas.job import JobPatch, JobResume, JobState, JobView
from edt_sdk.schemas.wire.parts import PARTS
from edt_sdk.waiting.waiting import ProgressLine, fetch, in_thread, sight_lost, watch

if TYPE_CHECKING:
    import torch

    from edt_sdk.monitor import Monitor

MIME = card.MIME
FINAL_MODEL = "model/train/model_epoch_final.pth"


class Job(JobReadings, JobValidation):
    """One job. Made by `Client.submit()`, `Client.job(id)` and `Client.jobs()`.

    `await job` waits for its end inside a running event loop, `job.wait()` everywhere else.

    Args:
        connection: the server's.
        view: the job as last seen.
        taken: when that was, seconds since the epoch; now by default.
    """

    def __init__(self, connection: Connection, view: JobView, taken: float | None = None) -> None:
        self._connection = connection
        self._view = view
        self._taken = time.time() if taken is None else taken

    # --- what it is ---------------------------------------------------------------------------------------------------

    @property
    def connection(self) -> Connection:
        """The session with its server."""
        return self._connection

    @property
    def name(self) -> str:
        """What people call it."""
        return self._view.name

    @property
    def view(self) -> JobView:
        """The job as last seen, without asking the server."""
        return self._view

    @property
    def taken(self) -> float:
        """When `view` was seen, seconds since the epoch."""
        return self._taken

    def through(self, connection: Connection) -> Job:
        """The same job over another connection, for another thread."""
        return Job(connection, self._view, self._taken)

    def _another(self, view: JobView) -> Job:
        """A job of the same server."""
        return Job(self._connection, view)

    @property
    def status(self) -> JobState:
        """Its state now (asks the server)."""
        return self.refresh().view.state

    @property
    def state(self) -> JobState:
        """Same as `status`."""
        return self.status

    @property
    def result_dir(self) -> Path:
        """Where its results lie on the server's machine."""
        return Path(self._view.result_dir)

    def refresh(self) -> Job:
        """Ask the server how it is; self."""
        self.saw(fetch(self._connection, self.id))
        return self

    def saw(self, view: JobView) -> None:
        """Take over a newer view that a stream brought."""
        self._view, self._taken = view, time.time()

    # --- waiting ------------------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None, *, progress: bool = True) -> Job:
        """Wait for its end; self when it FINISHED.

        A lost connection is taken up again for up to two minutes. Ctrl-C ends the waiting, never the job. A
        suspended job has not ended: this waits on until somebody has resumed it.

        Args:
            timeout: seconds, None for as long as it takes.
            progress: draw one line (stderr; in a notebook stdout) once it takes longer than 2 s.

        Raises:
            JobFailed: it ended as FAILED, ERROR or KILLED.
            WaitTimeout: it goes on, but `timeout` seconds are over.
            ServerUnreachable: the server did not come back.
        """
        return self._wait(timeout, progress=progress)

    def __await__(self) -> Generator[Any, None, Job]:
        return in_thread(lambda stop: self._wait(None, progress=False, stop=stop)).__await__()

    def _wait(self, timeout: float | None, *, progress: bool, stop: threading.Event | None = None) -> Job:
        deadline = None if timeout is None else time.monotonic() + max(0.0, timeout)
        line = ProgressLine() if progress else None
        away = line.away if line is not None else lambda lost: None
        try:
            for view in watch(self._connection, self.id, stop=stop, deadline=deadline, away=away):
                if view is not None:
                    self.saw(view)
                if line is not None:
                    line.show(view)
        except KeyboardInterrupt:
            print(
                f"\nStopped waiting. Job {self.id} goes on; wait again with job.wait(), end it with job.stop().",
                file=sys.stderr,
            )
            raise KeyboardInterrupt from None
        except (ServerUnreachable, NotAllowed) as lost:
            raise sight_lost(lost, self.id) from None
        finally:
            if line is not None:
                line.close()
        return self._ended(timeout)

    def _ended(self, timeout: float | None) -> Job:
        view = self._view
        if not view.state.final:
            suspended = view.state is JobState.SUSPENDED
            raise WaitTimeout(
                f"Job {self.id} is still {view.state} after {timeout or 0:g} s.",
                hint="job.resume() lets it go on, or at a shell: edt resume " + self.id
                if suspended
                else "It goes on; wait again, or end it with job.stop().",
                job=self.id,
                state=view.state.value,
            )
        if view.state is not JobState.FINISHED:
            raise JobFailed(
                f"Job {self.id} ({view.name}) ended as {view.state}: {view.message.strip() or 'no message'}\n"
                f"Every line it wrote: job.logs(), or at a shell: edt logs {self.id}",
                job=self.id,
                state=view.state.value,
            )
        return self

    # --- changing it --------------------------------------------------------------------------------------------------

    def update(
        self, *, priority: int | None = None, max_workers: int | None = None, instance_group: str | None = None
    ) -> Job:
        """Change what may change while it lives; self.

        Args:
            priority: weight under fair share, 1 … 10**9.
            max_workers: most slots it may hold, ≥ 1.
            instance_group: the queue it moves to.

        Raises:
            Conflict: it has ended.
            Unprocessable: the value cannot be used here.
        """
        patch = JobPatch(priority=priority, max_workers=max_workers, instance_group=instance_group).check()
        changes = {key: value for key, value in msgspec.structs.asdict(patch).items() if value is not None}
        return self._answer("PATCH", "", changes)

    def what_if(
        self, *, priority: int | None = None, max_workers: int | None = None, instance_group: str | None = None
    ) -> Answer:
        """Who would hold how many slots with these settings, and when its training would end; nothing is changed.

        Args, and what is raised: those of `update`. The forecast assumes that nobody else arrives.
        """
        patch = JobPatch(priority=priority, max_workers=max_workers, instance_group=instance_group).check()
        return msgspec.convert(
            self._connection.json("GET", f"jobs/{self.id}/what-if", params=msgspec.structs.asdict(patch)), Answer
        )

    def stop(self) -> Job:
        """End it as KILLED; self. Its logs and checkpoints stay."""
        return self._answer("POST", "/stop")

    def suspend(self) -> Job:
        """Take all slots from it until `resume`; self.

        At the next update's end it writes a checkpoint and gives its slots back; then it is SUSPENDED, not ended.

        Raises:
            Conflict: it has ended.
        """
        return self._answer("POST", "/suspend")

    def resume(self, checkpoint: str | None = None, *, instance_group: str | None = None) -> Job:
        """Go on after `suspend`, or after it was stopped or failed; self. One that runs stays as it is.

        It waits for slots like any other, and goes on with the same bits on however many it gets.

        Args:
            checkpoint: what to go on from, as `checkpoints()` names it, such as "epoch-3"; what came after is computed
                again. The newest there is by default.
            instance_group: the queue it goes on in; the one it was in by default.

        Raises:
            Conflict: it is over for good, or a checkpoint was named while its workers run.
            Unprocessable: its queue was removed meanwhile, and no other is named, or there is none of that name.
            InvalidRequest, NotFound: there can be no, or there is no checkpoint of that name.
        """
        chosen = msgspec.structs.asdict(JobResume(checkpoint=checkpoint, instance_group=instance_group).check())
        named = {name: value for name, value in chosen.items() if value is not None}
        return self._answer("POST", "/resume", named or None)

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
        warm_start: Job | str | None = None,
        dataset: str | None = None,
        args: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Job:
        """Submit another job of the package that this one was submitted with; it.

        The package is the server's copy, as it came, so nothing is read or sent here. What is not named is as in this
        job, with what was changed since; what is named has the meaning it has in `Client.submit`, and "" for
        `dataset` and `warm_start` is none.

        Raises:
            NotFound: this job was deleted; or there is no such data set, or no job of `warm_start`.
            PackageError: `main` is not in the package.
            InvalidRequest, Unprocessable: a value cannot be used.
        """
        begins = warm_start.id if isinstance(warm_start, Job) else warm_start
        said = {
            "name": name,
            "max_workers": max_workers,
            "min_workers": min_workers,
            "priority": priority,
            "instance_group": instance_group,
            "mode": mode,
            "seed": seed,
            "warm_start": begins,
            "dataset": dataset,
            "args": None if args is None else list(args),
            "env": None if env is None else dict(env),
        }
        body = {
            "source": {"job": self.id},
            "main": main,
            "spec": {field: value for field, value in said.items() if value is not None},
        }
        return self._another(msgspec.convert(self._connection.json("POST", "submissions", body=body), JobView))

    def delete(self) -> None:
        """Remove it with its logs and results."""
        self._connection.json("DELETE", f"jobs/{self.id}")

    def _answer(self, method: str, verb: str, body: Any = None) -> Job:
        answer = self._connection.json(method, f"jobs/{self.id}{verb}", body=body)
        self.saw(msgspec.convert(answer, JobView))
        return self

    # --- results ------------------------------------------------------------------------------------------------------

    def download(
        self,
        directory: str | os.PathLike[str] = ".",
        part: str = "all",
        *,
        extract: bool = False,
        told: Callable[[int, int | None], None] = lambda written, total: None,
    ) -> Path:
        """Fetch its results as one zip, streamed to disk; the path of the zip.

        Args:
            directory: where to; made when missing.
            part: "model", "checkpoint", "log" or "all".
            extract: also unpack it, into `directory/<job id>/`, and return that folder.
            told: called while it arrives, with the bytes there are and those there will be (None: not known).
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
            archive.extractall(unpacked)
        return unpacked

    def load_into(self, model: torch.nn.Module) -> torch.nn.Module:
        """Load the weights it ended with into `model`, in place; the model.

        Only tensors are read from the file, never code. Raises NotFound when there is no final model yet.
        """
        import torch

        with tempfile.TemporaryDirectory(prefix="edt-") as folder:
            with zipfile.ZipFile(self.download(folder, "model")) as archive:
                name = next((name for name in archive.namelist() if name.endswith(FINAL_MODEL)), None)
                if name is None:
                    raise NotFound(
                        f"Job {self.id} has no final model (its state is {self._view.state}).",
                        hint="It is written after the last update; wait for the job first.",
                        job=self.id,
                    )
                path = archive.extract(name, folder)
            model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        return model

    def monitor(self) -> Monitor:
        """Watch it live: tabs of widgets in a notebook, a line in a terminal.

        When the job ends, when the kernel is interrupted, and at `.close()` it leaves a picture that lasts.
        """
        from edt_sdk.monitor import JobMonitor

        return JobMonitor(self).show()

    # --- how it looks -------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        trouble = self._renew()
        return card.text_card(self._view, self._taken, trouble=trouble)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """The card. Never a widget: one that lost its kernel hides the HTML beside it."""
        return self.bundle(self._renew())

    def bundle(self, trouble: str = "") -> dict[str, Any]:
        """The card of the last view as a MIME bundle; `trouble` is why there is no newer one."""
        losses = [] if trouble else self.losses()
        return {
            MIME: card.live_card(self._view, self._taken, self._connection.url),
            "text/html": card.html_card(self._view, self._taken, losses=losses, trouble=trouble),
            "text/plain": card.text_snapshot(self._view, self._taken, trouble=trouble),
        }

    def _renew(self) -> str:
        """Refresh a view that may have changed; the sentence that says why that was not possible, or ""."""
        if self._view.state in (JobState.FINISHED, JobState.ERROR):
            return ""  # over for good; one that was stopped or failed may have been resumed
        try:
            self.refresh()
        except EdtError as refused:
            return str(refused)
        return ""
