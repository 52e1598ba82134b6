"""Bring files into the catalogue: unpack uploads, copy folders, pack code. Blocks.

A .zip, .tar or .tar.gz is known by its name and unpacked by the same careful reader as a job's package (`package.py`).
Any other upload is a single file. A folder is copied together with the targets of its links, if there is room.
"""

from __future__ import annotations

import io
import lzma
import os
import re
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from edt_sdk.packing.archive import write_archive
from edt_sdk.packing.sources import collect
from edt_sdk.packing.table import human_bytes
from edt_sdk.schemas.catalogue import FileEntry
from edt_sdk.schemas.errors import PackageError, TooLarge, Unprocessable
from edt_server.files import unpack
from edt_server.settings import Settings

_TARS = (".tar", ".tar.gz", ".tgz")
_CODE = (*_TARS, ".zip")
_MOST_FILES = 200_000
_MOST_COUNTED = 200_000
_LONGEST_NAME = 255
_MOST_DIRECTORY = 4 << 20  # bytes of a zip's directory, which `zipfile` holds in ten times as much memory
MOST_SHOWN = 8 << 20  # bytes of a file that an answer contains
_TRAIN_DIR = b"--train_dir"
_DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError)


@dataclass(frozen=True, slots=True)
class Code:
    """A package of code: its main script, its files, and whether the script takes `--train_dir`."""

    main: str
    files: int
    size: int
    console: bool


def unpack_data(upload: Path, filename: str, target: Path, max_bytes: int) -> None:
    """Put an upload into the folder `target`, which is made. PackageError for an archive that cannot be used."""
    if not filename.lower().endswith(_CODE):
        target.mkdir()
        shutil.copyfile(upload, target / _own_name(filename, "data"))
        return
    try:
        _unpacked(upload, filename, target, _MOST_FILES, max_bytes)
    except PackageError as error:
        raise PackageError(
            error.message,
            hint="Send a .tar.gz, .tar or .zip of the files; put a larger one into the server's data folder and "
            "register it by its path.",
            field="package",
        ) from None


def copy_data(source: Path, target: Path) -> None:
    """Copy a folder, or one file, into the folder `target`, which is made. Unprocessable when that is impossible."""
    if source.is_file():
        files = [(source.name, source)]
    else:
        files = [(path.relative_to(source).as_posix(), path) for path in _walk(source)]
    size = sum(path.stat().st_size for _, path in files)
    free = shutil.disk_usage(target.parent).free
    if size > free:
        raise Unprocessable(
            f"A copy of {source} takes {human_bytes(size)}, and the server's disk has {human_bytes(free)} left.",
            hint="Register it by its path without a copy.",
            field="copy",
        )
    target.mkdir()
    for name, path in files:
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(path, place)
        except OSError as wrong:
            raise Unprocessable(
                f"{path} cannot be copied: {wrong.strerror}.",
                hint="Register the folder by its path without a copy, or leave that file out.",
                field="path",
            ) from None


def pack_code(source: Path, filename: str, main: str | None, package: Path, limits: Settings) -> Code:
    """Make the package of a model's code.

    Args:
        source: a folder, a script, a notebook, or an archive.
        filename: name of an uploaded file, "" for a source in the server's data folder.
        main: the main script, None where the choice is clear.
        package: the file to write. Temporary files are made next to it and removed.
        limits: has the limits of a package, which also hold for an archive. TooLarge when it is over them.
    """
    name = filename or source.name
    work = package.with_name("unpacked")
    try:
        if source.is_file() and name.lower().endswith(_CODE):
            _unpacked(source, name, work, limits.max_package_files, limits.max_package_bytes)
            folder, entries = work, list(work.iterdir())
            # An archive's top folder holds the code where there is nothing next to it.
            if len(entries) == 1 and entries[0].is_dir() and not (main is not None and (work / main).is_file()):
                folder = entries[0]
        elif filename:
            # A script that was uploaded: under its own name, whatever the upload's file is called.
            work.mkdir()
            folder = work / _own_name(filename, "main.py")
            shutil.copyfile(source, folder)
        else:
            folder = source
        collected = collect(folder, main, most=limits.max_package_files)
        with package.open("wb") as sink:
            write_archive(collected.files, sink, cap=limits.max_package_bytes)
        text = next((file.content for file in collected.files if file.name == collected.main), b"")
        if isinstance(text, bytes):
            script = text
        else:
            with text.open("rb") as file:
                script = file.read(MOST_SHOWN)
        size = sum(file.size for file in collected.files)
        return Code(collected.main, len(collected.files), size, takes_train_dir(script))
    except PackageError as error:
        # The path of the temporary folder is no use to the user and must not leak.
        shown = re.sub(rf"{re.escape(str(work))}\S*?(?=[.:,]?(?:\s|$))", filename or "the package", error.message)
        raise PackageError(shown, hint=error.hint, **error.ids) from None
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _own_name(filename: str, default: str) -> str:
    """Return the last part of an upload's name, or `default` where that part cannot be a file name on this disk."""
    name = PurePosixPath(filename.replace("\\", "/")).name
    usable = name.isprintable() and name not in ("", "..") and len(name.encode("utf-8", "replace")) <= _LONGEST_NAME
    return name if usable else default


def takes_train_dir(script: bytes) -> bool:
    """Return whether a script was written for WMLA's console, where it takes `--train_dir`."""
    return _TRAIN_DIR in script


def listing(package: Path) -> tuple[FileEntry, ...]:
    """Return the files of a package of code."""
    with tarfile.open(package) as tar:
        return tuple(FileEntry(name=member.name, size=member.size) for member in tar if member.isfile())


def member(package: Path, name: str) -> bytes | None:
    """Return a file of a package of code, None without one of that name. TooLarge from MOST_SHOWN bytes on."""
    with tarfile.open(package) as tar:
        try:
            found = tar.extractfile(name)
        except KeyError:
            return None
        content = None if found is None else found.read(MOST_SHOWN)
    if content is not None and len(content) == MOST_SHOWN:
        raise TooLarge(
            f"{name} has {human_bytes(MOST_SHOWN)} or more, and is not shown.", hint="Look at a smaller file."
        )
    return content


def with_file(package: Path, name: str, content: bytes) -> tuple[int, int]:
    """Add or replace a file of a package of code. Return the files and bytes of the new package."""
    fresh = package.with_name("code-new.tar.gz")
    # A compressed tar cannot be changed in place, and `tarfile` does not append to one: the package is written again.
    files, size = 1, len(content)
    try:
        with (
            tarfile.open(package) as tar,
            tarfile.open(fresh, "w:gz", compresslevel=6, format=tarfile.PAX_FORMAT) as new,
        ):
            # From file to file: what the package holds need not fit into memory.
            for entry in tar:
                if entry.isfile() and entry.name != name:
                    new.addfile(entry, tar.extractfile(entry))
                    files, size = files + 1, size + entry.size
            added = tarfile.TarInfo(name)
            added.size = len(content)
            new.addfile(added, io.BytesIO(content))
        # Atomic: a training that is submitted now reads the old package or the new one.
        fresh.replace(package)
    finally:
        fresh.unlink(missing_ok=True)
    return files, size


def counted(folder: Path) -> tuple[int, int] | None:
    """Return the number of files and of bytes in a folder, None when there are too many to count."""
    files = size = 0
    for path in _walk(folder):
        files += 1
        if files > _MOST_COUNTED:
            return None
        try:
            size += path.stat().st_size
        except OSError:
            continue
    return files, size


def first_files(folder: Path, most: int) -> tuple[FileEntry, ...]:
    """Return the first files of a folder, sorted folder by folder."""
    found: list[FileEntry] = []
    for path in _walk(folder):
        if len(found) == most:
            break
        try:
            found.append(FileEntry(name=path.relative_to(folder).as_posix(), size=path.stat().st_size))
        except OSError:
            continue
    return tuple(found)


def _walk(folder: Path) -> Iterator[Path]:
    """Yield every file below `folder`, through links too, but never a folder within itself."""
    above: dict[str, tuple[str, ...]] = {str(folder): (os.path.realpath(folder),)}
    for place, folders, files in os.walk(folder, followlinks=True):
        real = above.pop(place, ())
        kept = []
        for name in sorted(folders):
            path = os.path.join(place, name)
            leads_to = os.path.realpath(path)
            # A link to a folder above would never end. Links to a folder next to it are followed, once per place.
            if leads_to not in real:
                kept.append(name)
                above[path] = (*real, leads_to)
        folders[:] = kept
        for name in sorted(files):
            path = os.path.join(place, name)
            if os.path.isfile(path):
                yield Path(path)


def _unpacked(archive: Path, filename: str, target: Path, max_files: int, max_bytes: int) -> None:
    if not filename.lower().endswith(".zip"):
        unpack(archive, target, main="", code_dir="", max_files=max_files, max_bytes=max_bytes)
        return
    made = target.with_name(f"{target.name}.tar")
    try:
        _as_tar(archive, made, max_files, max_bytes)
        unpack(made, target, main="", code_dir="", max_files=max_files, max_bytes=max_bytes)
    finally:
        made.unlink(missing_ok=True)


def _as_tar(archive: Path, made: Path, max_files: int, max_bytes: int) -> None:
    """Rewrite a zip as a tar, so that the same reader checks both.

    Links and devices, which a zip has no plain form for, become files.
    """
    try:
        with (
            _ZipBytes(archive.open("rb", buffering=0)) as raw,
            zipfile.ZipFile(raw) as source,
            tarfile.open(made, "w") as tar,
        ):
            entries = source.infolist()
            size = sum(entry.file_size for entry in entries)
            # Judged before any byte is inflated: a small zip can claim terabytes.
            if len(entries) > max_files or size > max_bytes:
                raise PackageError(
                    f"The archive has {len(entries)} members of {human_bytes(size)}; "
                    f"at most {max_files} of {human_bytes(max_bytes)} are accepted."
                )
            for entry in entries:
                info = tarfile.TarInfo(entry.filename.rstrip("/"))
                # A zip that was made on Unix has the file's mode in the upper half of this number.
                info.mode = 0o755 if entry.is_dir() or entry.external_attr >> 16 & 0o100 else 0o644
                if entry.is_dir():
                    info.type = tarfile.DIRTYPE
                    tar.addfile(info)
                    continue
                info.size = entry.file_size
                with source.open(entry) as content:
                    tar.addfile(info, content)
    # An encrypted zip raises RuntimeError, and an unknown compression NotImplementedError.
    except (*_DAMAGED, NotImplementedError, RuntimeError, ValueError, OSError) as wrong:
        raise PackageError(f"The package is not a readable zip archive: {wrong}.") from None


class _ZipBytes(io.BufferedReader):
    """The bytes of a zip. Its directory is read at once, and is refused when it is long."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _MOST_DIRECTORY:
            raise PackageError(
                f"The archive has a directory of {human_bytes(size)}; at most {human_bytes(_MOST_DIRECTORY)} of a zip "
                "are accepted."
            )
        return super().read(size)
