"""Write the trained model as a zip inside a job, for the `download()` of a notebook that runs as a job.

The zip has the content and the names of the one that the server makes of the same folder.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

from edt_sdk.schemas.wire.paths import JobPaths


def write(paths: JobPaths, folder: Path) -> Path:
    """Write `<folder>/<job id>.zip` with everything below `model/` and return its path. Make the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{paths.job_id}.zip"
    temporary = folder / f".{target.name}.{os.getpid()}.tmp"
    try:
        # Weights do not compress.
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
            for path in sorted(paths.model_dir.rglob("*")):
                if path.is_file() and not path.is_symlink() and path.suffix != ".tmp":
                    archive.write(path, path.relative_to(paths.result_dir))
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return target
