"""Make a job from an uploaded package: check it, unpack it, give it an id. A refused package leaves nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from edt_sdk.schemas import events as kinds
from edt_sdk.schemas.job import JobSpec, JobState
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.catalogue.places import check_there, folder_of
from edt_server.catalogue.training import PARAMETERS, WEIGHTS_DIR, parameters
from edt_server.files import PACKAGE, WARM_START, keep, new_id, remove, unpack
from edt_server.ledger import Change, arrival
from edt_server.settings import Settings
from edt_server.store import JobRow
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
        change.tx.add_job(self._row(change.now))
        data = {"state": JobState.SUBMITTED.value, "before": None, "message": ""}
        change.append(kinds.STATE, self.job, data)
        for remark in self.remarks:
            change.append(kinds.REMARK, self.job, {"text": remark})
        seq = change.apply(arrival(self.job, self.owner, spec), name=spec.name)
        if not change.core.holding(self.job):
            change.wait(self.job, cause=seq)

    def _row(self, now: float) -> JobRow:
        spec = self.spec
        return JobRow(
            id=self.job,
            owner=self.owner,
            spec=spec,
            state=JobState.SUBMITTED,
            state_since=now,
            created=now,
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


def remarks(spec: JobSpec, data_fs: str) -> tuple[str, ...]:
    """Return remarks for the job's story on what has another meaning here, or none. Blocks."""
    wmla = () if spec.wmla is None else spec.wmla.remarks
    torchrun = () if spec.torchrun is None else spec.torchrun.said
    return (*_validation_remarks(spec), *wmla, *torchrun, *_data_remarks(spec.data_path, data_fs))


def _validation_remarks(spec: JobSpec) -> tuple[str, ...]:
    what = None if spec.registered is None else spec.registered.validates
    if what is None:
        return ()
    return (f"It validates the training {what.training_name} ({what.training}): {', '.join(what.metrics)}.",)


def _data_remarks(data_path: str, data_fs: str) -> tuple[str, ...]:
    if data_path and not data_fs:
        return ("DATA_DIR is not set: this server has no data folder (its administrator names one: EdtApp.data_fs).",)
    if data_path and not (Path(data_fs) / data_path).exists():
        return (f"There is no {data_path} in the server's data folder {data_fs} yet; DATA_DIR leads there.",)
    return ()


def _python_remarks(spec: JobSpec, interpreter: str) -> tuple[str, ...]:
    if spec.python and spec.python != interpreter:
        return (f"There is no {spec.python} on the server's machine: it runs in {interpreter}.",)
    return ()


def place(
    settings: Settings,
    owner: str,
    spec: JobSpec,
    package: Path,
    interpreter: str,
    threads: int,
    weights: Path | None = None,
) -> Submission:
    """Unpack `package` where the job will find it, and keep the `weights` it begins with. Blocks.

    PackageError when it is refused, with nothing left.
    """
    paths = JobPaths(settings.data_dir, owner, new_id(spec.name))
    paths.result_dir.mkdir(parents=True)
    try:
        unpack(
            package,
            paths.submitted,
            main=main_file(spec),
            code_dir=spec.code_dir,
            max_files=settings.max_package_files,
            max_bytes=settings.max_package_bytes,
        )
        make_private_dir(paths.job_dir)
        keep(package, paths.job_dir / PACKAGE)
        if weights is not None:
            keep(weights, paths.job_dir / WARM_START)
        _write_settings(settings, spec, paths)
    except BaseException:
        remove(paths)
        raise
    said = (*remarks(spec, settings.data_fs), *_python_remarks(spec, interpreter))
    return Submission(paths.job_id, owner, spec, interpreter, threads, paths, said)


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
        keep(kept, (paths.result_dir / WEIGHTS_DIR) / "model_epoch_final.pth")


def main_file(spec: JobSpec) -> str:
    """Return the main script that has to be in the package, "" when the job runs something else."""
    started = spec.torchrun
    other = spec.command or (started is not None and (started.module or started.no_python))
    return "" if other else spec.main
