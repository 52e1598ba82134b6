"""Make a job from an uploaded package: check it, unpack it, give it an id. A refused package leaves nothing.

A store that fails at the end of a commit, or a request that is cancelled during a commit, leaves open whether the job
was committed. Its files then stay until the store has answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from edt_sdk.packing.preflight import check_syntax
from edt_sdk.packing.sources import SourceFile
from edt_sdk.schemas import events as kinds
from edt_sdk.schemas.errors import PackageError, Unprocessable
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.job import JobPatch, JobSettings, JobSpec, JobState
from edt_sdk.schemas.plan import InstanceGroup
from edt_sdk.schemas.serving.examples import SIGNATURE_FILE
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.saved import SUFFIX
from edt_server.catalogue.places import check_there, folder_of
from edt_server.catalogue.training import PARAMETERS, WEIGHTS_DIR, parameters
from edt_server.files import PACKAGE, WARM_START, job_files, keep, new_id, remove, unpack
from edt_server.ledger import STORE_AWAY, Change, LedgerWriter, arrival
from edt_server.settings import Settings
from edt_server.store import JobRow, StoreError
from edt_server.system.interpreters import Interpreter
from edt_server.system.private_files import make_private_dir


@dataclass(frozen=True, slots=True)
class Submission:
    """One accepted package, already in its place."""

    job: str
    owner: str
    spec: JobSpec
    interpreter: str
    threads_per_slot: int
    paths: JobPaths
    remarks: tuple[str, ...] = ()

    def enter(self, change: Change) -> None:
        """Store the job and let the core decide whether it starts."""
        spec = self.spec
        check_there(change, spec)
        change.ledger.names[self.job] = spec.name
        row = JobRow(
            id=self.job,
            owner=self.owner,
            spec=spec,
            state=JobState.SUBMITTED,
            state_since=change.now,
            created=change.now,
            started=None,
            ended=None,
            attempt=0,
            message="",
            interpreter=self.interpreter,
            threads_per_slot=self.threads_per_slot,
            supervisor=None,
            public_key="",
            shards=None,
            last_report=0,
            progress=None,
            settings=spec.settings,
        )
        change.tx.add_job(row)
        data = {"state": JobState.SUBMITTED.value, "before": None, "message": ""}
        change.append(kinds.STATE, self.job, data)
        for remark in self.remarks:
            change.append(kinds.REMARK, self.job, {"text": remark})
        seq = change.apply(arrival(self.job, self.owner, spec), name=spec.name)
        if not change.core.holding(self.job):
            change.wait(self.job, cause=seq)


def remarks(spec: JobSpec, data_fs: str) -> tuple[str, ...]:
    """Return remarks for the job's story on what has another meaning here, or none. Blocks."""
    found: list[str] = []
    if spec.registered is not None and spec.registered.validates is not None:
        what = spec.registered.validates
        found.append(f"It validates the training {what.training_name} ({what.training}): {', '.join(what.metrics)}.")
    found += () if spec.wmla is None else spec.wmla.remarks
    found += () if spec.torchrun is None else spec.torchrun.said
    if spec.data_path and not data_fs:
        found.append(
            "DATA_DIR is not set: this server has no data folder (its administrator names one: EdtApp.data_fs)."
        )
    elif spec.data_path and not (Path(data_fs) / spec.data_path).exists():
        found.append(f"There is no {spec.data_path} in the server's data folder {data_fs} yet; DATA_DIR leads there.")
    return tuple(found)


def place(
    settings: Settings,
    owner: str,
    spec: JobSpec,
    package: Path,
    interpreter: Interpreter,
    threads: int,
    weights: Path | None = None,
    config: Mapping[str, Any] | None = None,
    fits: Callable[[str], bool] = bool,
) -> Submission:
    """Unpack `package` where the job will find it, and keep the `weights` or the state it begins with. Blocks.

    `config` takes the place of a `config.json` in the package.

    The job gets an id that `fits` (see `new_id`).

    PackageError when it is refused or its main script is not Python, with nothing left.
    """
    paths = JobPaths(settings.data_dir, owner, new_id(spec.name, fits))
    paths.result_dir.mkdir(parents=True)
    try:
        unpacked = unpack(
            package,
            paths.submitted,
            main=main_file(spec),
            code_dir=spec.code_dir,
            max_files=settings.max_package_files,
            max_bytes=settings.max_package_bytes,
        )
        files = (SourceFile(name, paths.submitted / name, 0) for name in unpacked.files)
        check_syntax(spec, files, interpreter.version)
        make_private_dir(paths.job_dir)
        keep(package, paths.job_dir / PACKAGE, settings.data_dir)
        if weights is not None:
            kept = job_files.BRANCH if weights.suffix == SUFFIX else WARM_START
            keep(weights, paths.job_dir / kept, settings.data_dir)
            serves = spec.registered is not None and spec.registered.serves is not None
            if serves and (signature := weights.with_name(SIGNATURE_FILE)).exists():
                keep(signature, paths.job_dir / SIGNATURE_FILE, settings.data_dir)
        _write_settings(settings, spec, paths)
        if config is not None:
            replaced = paths.submitted / spec.code_dir / job_files.CONFIG
            if replaced.is_dir() and not replaced.is_symlink():
                raise PackageError(
                    f"{job_files.CONFIG} is a folder.", hint="A trial finds its values in a file of that name."
                )
            replaced.unlink(missing_ok=True)
            for file in (replaced, paths.job_dir / job_files.CONFIG):
                file.write_text(json.dumps(config), encoding="utf-8")
    except BaseException:
        remove(paths)
        raise
    said = remarks(spec, settings.data_fs)
    if spec.python and spec.python != interpreter.path:
        said += (f"There is no {spec.python} on the server's machine: it runs in {interpreter.path}.",)
    return Submission(paths.job_id, owner, spec, interpreter.path, threads, paths, said)


def _write_settings(settings: Settings, spec: JobSpec, paths: JobPaths) -> None:
    """Write what a training of a model finds in its RESULT_DIR.

    Before any user code runs there, so that no path can be a link.
    """
    found = parameters(spec.registered, folder_of(settings.data_dir, settings.data_fs, paths.owner, spec))
    if found is not None:
        (paths.result_dir / PARAMETERS).write_text(json.dumps(found, indent=1), encoding="utf-8")
    kept = paths.job_dir / WARM_START
    if spec.registered is not None and spec.registered.console and kept.exists():
        (paths.result_dir / WEIGHTS_DIR).mkdir()
        keep(kept, (paths.result_dir / WEIGHTS_DIR) / "model_epoch_final.pth", settings.data_dir)


def main_file(spec: JobSpec) -> str:
    """Return the main script that has to be in the package, "" when the job runs something else."""
    started = spec.torchrun
    other = spec.command or (started is not None and (started.module or started.no_python))
    return "" if other else spec.main


def sized(spec: JobSpec) -> JobSpec:
    """Return the specification with a fixed size for a job that is not elastic, which gets all its slots at once.

    `PyTorch` is one process, so its slots are one unit. `distPyTorch` has one process for each `slots_per_unit`.
    """
    if Framework(spec.framework).elastic:
        return spec
    unit = spec.max_workers if spec.framework == Framework.PYTORCH else spec.slots_per_unit
    return msgspec.structs.replace(spec, min_workers=spec.max_workers, slots_per_unit=unit)


def check_change(spec: JobSpec, settings: JobSettings, patch: JobPatch, group: InstanceGroup, *, admin: bool) -> None:
    """Raise Unprocessable when the change would resize a program that is not elastic, or exceed the highest priority.

    `group` is the job's instance group after the change. Only an `admin` may exceed its highest priority.
    """
    after = patch.apply_to(settings)
    # Not for any other change: a job that was above the bound before there was one keeps its priority.
    urged = (after.priority, after.instance_group) != (settings.priority, settings.instance_group)
    if urged and after.priority > group.max_priority and not admin:
        group.check_priority(after.priority)
    wanted = patch.max_workers
    if wanted is None or wanted == spec.max_workers or Framework(spec.framework).elastic:
        return
    raise Unprocessable(
        f"A {spec.framework} job runs on {spec.max_workers} workers, no more and no fewer.",
        hint="Submit it again with another max_workers, or as edtPyTorch or torchrun, whose jobs grow and shrink.",
        field="max_workers",
    )


class UncommittedSubmissions:
    """The submissions of a service with a commit in doubt."""

    def __init__(self, writer: LedgerWriter) -> None:
        self._writer = writer
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, paths: JobPaths) -> None:
        """Remove these files as soon as the store answers that it does not have the job."""
        task = asyncio.create_task(self._settle(paths), name=f"edt uncommitted {paths.job_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Stop asking. Files of submissions still in doubt stay."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _settle(self, paths: JobPaths) -> None:
        while True:
            with contextlib.suppress(StoreError):
                # Between two changes, because only the store knows whether a commit without an answer has succeeded
                # (docs/decisions/018).
                if await self._writer.read(self._writer.ledger.store.job, paths.job_id) is None:
                    await asyncio.to_thread(remove, paths)
                return
            await asyncio.sleep(STORE_AWAY)
