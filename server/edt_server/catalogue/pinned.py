"""The data set of a submitted job: check that it still exists, and find its folder."""

from __future__ import annotations

import os
from pathlib import Path

from edt_sdk.schemas.errors import NotFound, Unprocessable
from edt_sdk.schemas.job import JobSpec
from edt_server.catalogue.places import Places
from edt_server.ledger import Change


def check_there(change: Change, spec: JobSpec) -> None:
    """Raise NotFound when the data set was deleted while the job was being submitted."""
    used = spec.registered
    # In the transaction that adds the job. The one that deletes the data set checks for jobs, so one of the two fails
    # (docs/decisions/026).
    if used is not None and used.dataset and change.tx.entry(used.dataset) is None:
        raise NotFound(f"The data set {spec.dataset} was deleted.", hint="Register it again.", field="dataset")


def check_folder(data_dir: Path, owner: str, job: str, spec: JobSpec) -> None:
    """Raise Unprocessable when the copy that a job reads was deleted, and the job is to resume. Blocks."""
    copy = copy_of(data_dir, owner, spec)
    if copy and not Path(copy).is_dir():
        raise Unprocessable(
            f"The data set {spec.dataset} that job {job} reads was deleted.",
            hint="Submit the job again, with another data set.",
            job=job,
            field="dataset",
        )


def copy_of(data_dir: Path, owner: str, spec: JobSpec) -> str:
    """Return where the catalogue keeps its copy of the job's data set, "" when it has none."""
    used = spec.registered
    return str(Places(data_dir, owner, used.dataset).data) if used is not None and used.copied else ""


def folder_of(data_dir: Path, data_fs: str, owner: str, spec: JobSpec) -> str:
    """Return the job's DATA_DIR, "" for none."""
    return copy_of(data_dir, owner, spec) or (os.path.join(data_fs, spec.data_path).rstrip("/") if data_fs else "")
