"""What a client submits: packed here, specified here, sent once; or only looked at.

A submission contains what is listed before it is sent, and never the token of the server or the Hub.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import IO, Any, TypedDict, Unpack

import msgspec

from edt_sdk.client.job import Job
from edt_sdk.client.outlook import Outlook, Package
from edt_sdk.http.connection import Connection
from edt_sdk.http.discovery import Server, ServerInfo
from edt_sdk.packing.archive import write_archive
from edt_sdk.packing.sources import Collected, Source, collect
from edt_sdk.packing.table import packing_table
from edt_sdk.packing.upload import QUIET_VARIABLE, Multipart, upload_progress
from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.forecast import PackedFile
from edt_sdk.schemas.frameworks import SHELL, Framework
from edt_sdk.schemas.job import DEFAULT_PRIORITY, JobSpec, JobView
from edt_sdk.torchrun.command_line.submission import start_of

# Names under which tokens of servers travel in the environment of kernels.
_SECRETS = frozenset({"EDT_TOKEN", "JUPYTER_TOKEN", "JPY_API_TOKEN", "JUPYTERHUB_API_TOKEN"})


class Wishes(TypedDict, total=False):
    """What may be said of a job beside its source; see `Submitting.submit`."""

    main: str | None
    tag: str | None
    name: str | None
    max_workers: int
    min_workers: int
    slots_per_unit: int
    pending_timeout: float | None
    priority: int
    instance_group: str
    mode: str
    seed: int
    threads_per_slot: int | None
    warm_start: Job | str | None
    framework: str
    command: Sequence[str] | str
    torchrun: Sequence[str] | str
    data_path: str
    dataset: str
    args: Sequence[str]
    env: Mapping[str, str] | None
    python: str | None


class Submitting:
    """The part of `Client` that makes jobs."""

    server: Server
    info: ServerInfo
    _connection: Connection
    _output: IO[str] | None

    def submit(
        self,
        source: Source,
        *,
        main: str | None = None,
        tag: str | None = None,
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
        dataset: str = "",
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        python: str | None = None,
        progress: bool = True,
    ) -> Job:
        """Pack `source`, send it, and return the job.

        Args:
            source: a folder; a `.py` or `.ipynb` file, sent with the modules beside it that it imports; or code: a
                string with a line break, or a list of notebook cells.
            main: main script, relative to the folder; needed only where more than one could be meant.
            tag: of a notebook file only the cells with this tag; None for all.
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
            dataset: a registered data set of mine, whose folder is the job's DATA_DIR; not with `data_path`.
            args: the script's own arguments.
            env: environment variables of the job; nothing is taken over from here by itself.
            python: what it runs in, a path on the server's machine (`interpreters()` lists them); by default what runs
                this where that is the server's machine, else the server's own. Where there is no such program it runs
                in the server's own, and its story says so.
            progress: print what is packed; `EDT_NONINTERACTIVE` silences it too.

        Raises:
            PackageError: no such source, no such main script, or a file that cannot be packed.
            TooLarge: the package is over the server's limit.
            InvalidRequest, Unprocessable: an argument cannot be used, or `warm_start` has written no weights yet.
            NotFound, NotAllowed: the job of `warm_start` is not there, or somebody else's; there is no such `dataset`.
        """
        spec, collected = self._specified(
            source,
            main=main,
            tag=tag,
            name=name,
            max_workers=max_workers,
            min_workers=min_workers,
            slots_per_unit=slots_per_unit,
            pending_timeout=pending_timeout,
            priority=priority,
            instance_group=instance_group,
            mode=mode,
            seed=seed,
            threads_per_slot=threads_per_slot,
            warm_start=warm_start,
            framework=framework,
            command=command,
            torchrun=torchrun,
            data_path=data_path,
            dataset=dataset,
            args=args,
            env=env,
            python=python,
        )
        return self._send(spec, collected, quiet=not progress or bool(os.environ.get(QUIET_VARIABLE)))

    def preview(self, source: Source, **wishes: Unpack[Wishes]) -> Package:
        """What `submit` would send, and when the job would start; nothing is sent or submitted.

        Args:
            source: as for `submit`.
            **wishes: the other arguments of `submit`, but `progress`.

        Raises:
            EdtError: what `submit` would raise before it sends.
        """
        spec, collected = self._specified(source, **wishes)
        return Package(
            name=spec.name,
            main=spec.main,
            files=tuple(PackedFile(name=file.name, size=file.size) for file in collected.files),
            size=collected.size,
            notes=collected.notes,
            forecast=self._foretold(spec),
        )

    def forecast(
        self,
        *,
        max_workers: int = 1,
        min_workers: int = 1,
        slots_per_unit: int = 1,
        priority: int = DEFAULT_PRIORITY,
        instance_group: str = "",
        framework: str = Framework.EDT,
        torchrun: Sequence[str] | str = (),
    ) -> Outlook:
        """When a job would start that asks for this, and on how many slots; why never, if never. Nothing is submitted.

        It assumes that nobody else comes. The arguments are those of `submit`.

        Raises:
            InvalidRequest, Unprocessable: an argument cannot be used.
        """
        sizes = {"max_workers": max_workers, "min_workers": min_workers, "slots_per_unit": slots_per_unit}
        start = start_of(framework, torchrun, main="main.py", args=(), **sizes)
        return self._foretold(
            JobSpec(
                name="forecast",
                main="main.py",
                **start.fields,
                priority=priority,
                instance_group=instance_group,
                framework=str(framework),
            ).check()
        )

    def interpreters(self) -> list[dict[str, Any]]:
        """What a job may run in: `{"python", "version", "ready", "kernels"}` of each, the server's default first.

        `ready` says that it has jupyter-edt, `kernels` has `{"name", "display_name"}` of those that run in it.
        """
        found: list[dict[str, Any]] = self._connection.json("GET", "interpreters")["interpreters"]
        return found

    def _foretold(self, spec: JobSpec) -> Outlook:
        return msgspec.convert(self._connection.json("POST", "forecasts", body=spec), Outlook)

    def _specified(self, source: Source, **wishes: Unpack[Wishes]) -> tuple[JobSpec, Collected]:
        """The job and its files; nothing is sent."""
        said: dict[str, Any] = {"max_workers": 1, "min_workers": 1, "slots_per_unit": 1, **wishes}
        python = said.pop("python", None)
        main, name, command = said.pop("main", None), said.pop("name", None), said.pop("command", ())
        framework = str(said.pop("framework", Framework.EDT))
        words = (*SHELL, command) if isinstance(command, str) and command else tuple(command)
        start = start_of(
            framework,
            said.pop("torchrun", ()),
            main=main,
            args=said.pop("args", ()),
            **{size: said.pop(size) for size in ("max_workers", "min_workers", "slots_per_unit")},
        )
        script = not words and not start.named
        collected = collect(source, start.main, script=script, tag=said.pop("tag", None))
        spec = JobSpec(
            name=name or collected.name,
            main=start.named or collected.main,
            args=start.args,
            **start.fields,
            env=dict(said.pop("env", None) or {}),
            warm_start=_job_id(said.pop("warm_start", None)),
            # On another machine this path means nothing; the server then takes its configured interpreter.
            python=python or (sys.executable if self.server.local else None),
            # Code that is chosen an interpreter for need not be for the present one.
            python_version=None if python else f"{sys.version_info.major}.{sys.version_info.minor}",
            framework=framework,
            command=words,
            **said,
        ).check()
        self._keep_secrets(spec)
        return spec, collected

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
