"""A job's files on disk: its id, its weights, and their removal."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import BinaryIO

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.job import JobSpec
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.regular import is_regular, open_regular, regular_files

log = logging.getLogger(__name__)

# The package as it was sent, and the weights that a job starts with, both in the job's own folder.
PACKAGE = "package"
WARM_START = "warm_start.pth"
# In place of the weights for a job that goes on from the whole state of another one after an epoch.
BRANCH = "warm_start.ckpt"
# The values of a trial: here as they were given, and in the code folder for its script, which may change them there.
CONFIG = "config.json"
MEMORY = Path("/dev/shm")
_LONGEST_SLUG = 24
_RANDOM = 6
_WEIGHTS = re.compile(r"model_epoch_(\d+|final)\.pth\Z")
_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"


def newest_weights(files: Iterable[Path]) -> Path | None:
    """Return the final weights among files of one folder, else the newest epoch's, None when there are none."""
    found = [(match[1], path) for path in files if (match := _WEIGHTS.match(path.name))]
    # By number: in the order of names, epoch 10 would come before epoch 9.
    return max(found, key=lambda each: (each[0] == "final", each[0] != "final" and int(each[0])))[1] if found else None


def weights_of(paths: JobPaths) -> Path:
    """Return the final weights of a job, else its newest epoch's. Unprocessable when there are none. Blocks."""
    newest = newest_weights(path for path, _ in regular_files(paths.train_dir, "*.pth", within=paths.result_dir))
    if newest is None:
        raise Unprocessable(
            f"Job {paths.job_id} has written no weights yet.",
            hint="Wait until it has finished, or has written an epoch's checkpoint (checkpoint_freq=1).",
            field="warm_start",
            job=paths.job_id,
        )
    return newest


def final_weights(paths: JobPaths) -> list[Path]:
    """Return the final weights of each training that a job has finished, in order. Blocks."""
    found: list[Path] = []
    while is_regular(paths.final(len(found))):
        found.append(paths.final(len(found)))
    return found


def warm_start(paths: JobPaths, spec: JobSpec) -> str:
    """Return where the job has the weights it starts with, "" for those of its script."""
    own = spec.registered is not None and spec.registered.weights
    return str(kept_start(paths)) if spec.warm_start or own else ""


def kept_start(paths: JobPaths) -> Path:
    """Return the file with what the job starts with, which need not exist."""
    branch = paths.job_dir / BRANCH
    return branch if is_regular(branch) else paths.job_dir / WARM_START


def keep(file: Path, kept: Path, data_dir: Path) -> None:
    """Keep `file` as `kept` too, independent of its first name. Arguments as of `open_source`. Blocks."""
    with open_source(file, data_dir) as source:
        # An account whose file it is could change it later on.
        if os.fstat(source.fileno()).st_uid == os.geteuid():
            with contextlib.suppress(OSError):
                # A hard link costs no space. Between two file systems, or where links are forbidden, a copy does. By
                # the descriptor, because the name may mean another file by now. Python follows a link, as that of a
                # descriptor is, only with a folder, which an absolute path does not use.
                os.link(f"/proc/self/fd/{source.fileno()}", kept, src_dir_fd=source.fileno())
                return
        with kept.open("xb") as target:
            shutil.copyfileobj(source, target)


def open_source(file: Path, data_dir: Path) -> BinaryIO:
    """Open a package or weights for reading. In the folders of a job, below `data_dir`, no link is followed.

    FileNotFoundError for a link there, or what is no regular file.
    """
    for root, depth in (("results", 3), ("jobs", 1)):
        if file.is_relative_to(data_dir / root):
            folders = file.relative_to(data_dir / root).parts[:depth]
            return open_regular(file, within=Path(data_dir, root, *folders))
    return open_regular(file.resolve())


def remove(paths: JobPaths) -> None:
    """Remove everything a job has on disk, never what a link leads to. Blocks."""
    for folder in (paths.result_dir, paths.job_dir):
        if folder.is_symlink():
            folder.unlink()
        elif folder.exists():
            shutil.rmtree(folder)


def new_id(name: str, fits: Callable[[str], bool] = bool) -> str:
    """Make an id that people recognise: the name in plain letters and six random letters.

    `fits` says whether an id has the colour that is wanted, which an id in eight has. By default any id fits.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:_LONGEST_SLUG].rstrip("-")
    # The id is a folder name and part of URLs, so plain letters only. The random part needs no look into the store.
    while True:
        made = f"{slug or 'job'}-{''.join(secrets.choice(_BASE32) for _ in range(_RANDOM))}"
        if fits(made):
            return made


def clear_uploads(folder: Path) -> None:
    """Make the folder of uploads, and remove what a server that was killed has left in it. Blocks.

    Whatever lies in it, and cannot be removed, a server starts.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    yesterday = time.time() - 86_400
    for upload in folder.iterdir():
        try:
            if upload.lstat().st_mtime >= yesterday:
                continue
            if upload.is_dir() and not upload.is_symlink():
                shutil.rmtree(upload)
            else:
                upload.unlink()
        except OSError as wrong:
            log.warning("%s of an earlier server could not be removed: %s", upload, wrong)


def clear_sockets(folder: Path, living: Collection[str]) -> None:
    """Remove what jobs that ended while no server was there have left outside of their own folders. Blocks."""
    for place in folder.iterdir():
        if place.is_dir() and place.name not in living:
            clear_traces(folder, place.name)


def clear_traces(folder: Path, job: str) -> None:
    """Remove a job's runtime folder below `folder`, and its folder in memory should it still be there. Blocks.

    Only when the job is over: attempts hand both on to each other.
    """
    name = f"edt-{os.getuid()}-{job}"
    # Named hosts of this machine have one each, see `supervisor.memory.host_mark`.
    for place in (folder / job, MEMORY / name, *MEMORY.glob(f"{name}@*")):
        shutil.rmtree(place, ignore_errors=True)
