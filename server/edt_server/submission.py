"""From an uploaded package to a job: checked, unpacked, given an id. Nothing stays behind of one that is refused."""

from __future__ import annotations

import re
import secrets
import shutil
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from edt_sdk.schemas import events as kinds
from edt_sdk.schemas.job import JobSpec, JobState
from edt_sdk.schemas.paths import JobPaths
from edt_server.core import JobArrived
from edt_server.ledger import Change
from edt_server.package import unpack
from edt_server.settings import Settings
from edt_server.store import JobRow

_LONGEST_SLUG = 24
_RANDOM = 6
_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"


@dataclass(frozen=True, slots=True)
class Submission:
    """One accepted package, already in its place."""

    job: str
    owner: str
    spec: JobSpec
    interpreter: str
    threads_per_slot: int
    paths: JobPaths

    def enter(self, change: Change) -> None:
        """Write the job down and let the core decide whether it starts."""
        spec = self.spec
        change.ledger.names[self.job] = spec.name
        change.tx.add_job(self._row(change.now))
        data = {"state": JobState.SUBMITTED.value, "before": None, "message": ""}
        change.append(kinds.STATE, self.job, data)
        arrived = JobArrived(self.job, spec.priority, spec.max_workers, spec.instance_group)
        seq = change.apply(arrived, owner=self.owner, name=spec.name)
        if not change.core.holding(self.job):
            reason = change.core.reason(self.job, change.ledger.name)
            change.set_state(self.job, JobState.PENDING, reason.text if reason else "", cause=seq)
            change.tx.update_job(self.job, message="")  # why it waits changes with the others; the view says it anew

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
            priority=spec.priority,
            max_workers=spec.max_workers,
            instance_group=spec.instance_group,
        )


def place(settings: Settings, owner: str, spec: JobSpec, package: Path, interpreter: str, threads: int) -> Submission:
    """Unpack `package` where the job will find it. Blocks; PackageError when it is refused, with nothing left."""
    paths = JobPaths(settings.data_dir, owner, new_id(spec.name))
    paths.result_dir.mkdir(parents=True)
    try:
        unpack(
            package,
            paths.submitted,
            main=spec.main,
            code_dir=spec.code_dir,
            max_files=settings.max_package_files,
            max_bytes=settings.max_package_bytes,
        )
    except BaseException:
        remove(paths)
        raise
    return Submission(paths.job_id, owner, spec, interpreter, threads, paths)


def remove(paths: JobPaths) -> None:
    """Remove everything a job has on disk. Blocks."""
    for folder in (paths.result_dir, paths.job_dir):
        if folder.exists():
            shutil.rmtree(folder)


def new_id(name: str) -> str:
    """An id people recognise: the name in plain letters and six random ones."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:_LONGEST_SLUG].rstrip("-")
    return f"{slug or 'job'}-{''.join(secrets.choice(_BASE32) for _ in range(_RANDOM))}"


def clear_uploads(folder: Path) -> None:
    """Make the folder of uploads, and remove what a server that was killed has left in it. Blocks."""
    folder.mkdir(mode=0o700, exist_ok=True)
    yesterday = time.time() - 86_400
    for upload in folder.iterdir():
        if upload.stat().st_mtime < yesterday:
            upload.unlink()


def clear_sockets(folder: Path, living: Collection[str]) -> None:
    """Remove the runtime folders of jobs that ended while no server was there to do so. Blocks."""
    for place in folder.iterdir():
        if place.is_dir() and place.name not in living:
            shutil.rmtree(place, ignore_errors=True)
