"""Write the trained model as a zip inside a job, for the `download()` of a notebook that runs as a job.

The zip has the content and the names of the one that the server makes of the same folder.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import BinaryIO

from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.training.checkpoints import durable


def write(paths: JobPaths, folder: Path) -> Path:
    """Write `<folder>/<job id>.zip` with what is below `model/`, and return its path. Make the folder.

    Files of epochs are left out once there are final ones.
    """

    def fill(file: BinaryIO) -> None:
        # Weights do not compress.
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for path in sorted(paths.model_dir.rglob("*")):
                if path.is_file() and not (path.is_symlink() or path.suffix == ".tmp" or paths.superseded(path)):
                    archive.write(path, path.relative_to(paths.result_dir))

    target = folder / f"{paths.job_id}.zip"
    durable.write(target, fill)
    return target
