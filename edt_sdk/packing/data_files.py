"""List the files of a data set: all files unchanged, nothing left out, nothing added.

Unlike code (`sources.py`), data is not filtered: hidden files and odd names belong to it. Links are followed while they
stay inside the folder.
"""

from __future__ import annotations

import os
from pathlib import Path

from edt_sdk.packing.sources import SourceFile
from edt_sdk.schemas.errors import PackageError


def data_files(source: str | os.PathLike[str]) -> tuple[SourceFile, ...]:
    """Return the files of a folder, or the single file. Names are relative to the folder.

    Raises:
        PackageError: the path does not exist, is empty, or contains a folder that cannot be read.
    """
    top = Path(source).expanduser()
    if top.is_file():
        return (_entry(top.resolve(), top.name),)
    if not top.is_dir():
        raise PackageError(
            f"There is no folder or file {str(source)!r}.",
            hint="Give a folder or a file of this machine.",
            field="source",
        )
    root = top.resolve()
    found = tuple(sorted(_below(root), key=lambda file: file.name))
    if not found:
        raise PackageError(f"The folder {top} has no files.", hint="Give the folder with the data.", field="source")
    return found


def _below(root: Path) -> list[SourceFile]:
    def refuse(error: OSError) -> None:
        raise PackageError(f"The folder {error.filename} cannot be read: {error.strerror}.", field="source") from None

    found: list[SourceFile] = []
    for place, _, files in os.walk(root, onerror=refuse):
        for name in files:
            path = Path(place, name)
            real = path.resolve()
            # Pipes and devices are left out too, because reading them could block for ever.
            if real.is_file() and real.is_relative_to(root):
                found.append(_entry(path, path.relative_to(root).as_posix()))
    return found


def _entry(path: Path, name: str) -> SourceFile:
    return SourceFile(name, path, path.stat().st_size)
