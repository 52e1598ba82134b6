"""Where the catalogue's files are, and which folder of the server a user's path means.

`catalogue/<owner>/<id>/` below the data folder of the service: `data/` the files of a copied data set or of an
algorithm, `code.tar.gz` the code of a model or a version, `weights/` the weights that a model's trainings start with,
or those of a version. There are two roots: `data_dir` is the service's own folder, `data_fs` the folder of shared data
sets that jobs see as DLI_DATA_FS.

A folder that is being filled has another name until it is complete (`incoming`). A new server finds the remains of an
interrupted upload by that name.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from edt_sdk.schemas.errors import InvalidRequest, NotFound, Unprocessable
from edt_sdk.schemas.job import JobSpec
from edt_sdk.schemas.wire.control import ACCOUNT
from edt_server.ledger import Change
from edt_server.settings import Settings

_ROOT = "catalogue"
_INCOMING = ".incoming-"


@dataclass(frozen=True, slots=True)
class Places:
    """The places of a catalogue entry."""

    data_dir: Path
    owner: str
    id: str

    @property
    def folder(self) -> Path:
        """Return the folder with all files of the entry."""
        return self.data_dir / _ROOT / self.owner / self.id

    @property
    def incoming(self) -> Places:
        """Return the places of the same entry while it is incomplete."""
        return replace(self, id=f"{_INCOMING}{self.id}")

    @property
    def data(self) -> Path:
        """Return the folder with the files of a copied data set, or of an algorithm."""
        return self.folder / "data"

    @property
    def code(self) -> Path:
        """Return the package with the code of a model or of a version."""
        return self.folder / "code.tar.gz"

    @property
    def weights(self) -> Path:
        """Return the state dict of a version, or that trainings of a model start with. The file may be missing."""
        return self.folder / "weights" / "model_epoch_final.pth"


def clear_incoming(data_dir: Path) -> None:
    """Remove the uploads that a killed server left incomplete. No upload may be in progress. Blocks."""
    for folder in (data_dir / _ROOT).glob(f"*/{_INCOMING}*"):
        shutil.rmtree(folder, ignore_errors=True)


def content_below_data_fs(settings: Settings, path: str) -> Path:
    """Return `below_data_fs` of a place that the server itself is to read. Unprocessable where it is root."""
    if settings.isolation.kind == ACCOUNT:
        raise Unprocessable(
            "This server, which is root, reads nothing of its data folder for a user, who might not be allowed to.",
            hint="Upload it, or let jobs read it there with the rights of their own account.",
            field="path",
        )
    return below_data_fs(settings, path)


def below_data_fs(settings: Settings, path: str) -> Path:
    """Return the place that a user means by `path`: relative to the server's data folder, or absolute and in it.

    Links in that folder are followed, because its administrator has placed them. Blocks.
    """
    data_fs = settings.data_fs
    if not data_fs:
        raise Unprocessable(
            "This server has no data folder that something could lie in.",
            hint="Upload it, or ask the administrator to set c.EdtApp.data_fs.",
            field="path",
        )
    if "\0" in path:
        raise InvalidRequest("A path has no NUL in it.", field="path")
    root = os.path.normpath(data_fs)
    # By its text, not resolved: a link inside the folder is its administrator's permission. Jobs could read the same
    # files anyway, so this prevents mistakes and not attacks (docs/decisions/026).
    wanted = os.path.normpath(os.path.join(root, path))
    if wanted != root and not wanted.startswith(root.rstrip("/") + "/"):
        # The user may give the data folder's real path where the configuration has a link, as resolved paths do.
        real = os.path.realpath(root)
        if not wanted.startswith(real.rstrip("/") + "/"):
            raise InvalidRequest(
                f"{path} is outside of the server's data folder {data_fs}.",
                hint="Name a folder in it, relative to it, or upload the files.",
                field="path",
            )
        wanted = os.path.join(root, os.path.relpath(wanted, real))
    if not os.path.exists(wanted):
        raise NotFound(
            f"There is no {path} in the server's data folder {data_fs}.",
            hint="" if settings.isolation.kind == ACCOUNT else _beside(root, wanted),
            field="path",
        )
    if not os.access(wanted, os.R_OK | (os.X_OK if os.path.isdir(wanted) else 0)):
        raise Unprocessable(
            f"{path} cannot be read by the server's account.",
            hint=f"Its owner makes it readable: chmod -R a+rX {wanted}",
            field="path",
        )
    return Path(wanted)


def relative(data_fs: str, place: Path) -> str:
    """Return the path of a place relative to the data folder, "" for that folder itself."""
    found = os.path.relpath(place, os.path.normpath(data_fs))
    return "" if found == "." else found


def _beside(root: str, wanted: str) -> str:
    """Return a sentence with the names in the nearest folder that exists."""
    folder = os.path.dirname(wanted)
    while folder != root and not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    try:
        names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except OSError:
        return ""
    shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    return f"In {folder} there is {shown}." if names else f"{folder} is empty."


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
