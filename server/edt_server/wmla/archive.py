"""Make one package from the files of a request: find the archive among them and its code folder, and add the rest.

An archive is a tar, gzipped or not, with any name. Its top folder may have another name than the request gives, or be
missing. Single files are put into an archive of their own. Files next to an archive go in front of it without
unpacking: a tar without its end, followed by another, is one tar, and so are two gzip streams. This module reads names
only. `package.unpack` checks later whether the archive is safe. Blocks.
"""

from __future__ import annotations

import gzip
import lzma
import shutil
import tarfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, cast

from edt_sdk.schemas.errors import PackageError
from edt_server.files import members, read_tar

_GZIP = b"\x1f\x8b"
_TAR_NAMES = (".tar", ".tar.gz", ".tgz")
_UNREADABLE = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, OSError, ValueError)
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a request: its name as sent ("" for none), and where its bytes are."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class Packed:
    """One package, and the folder in it that holds the code ("" for its top)."""

    path: Path
    code_dir: str


def pack(parts: Sequence[Part], folder: Path, *, main: str, model_dir: str, max_files: int, max_bytes: int) -> Packed:
    """Make one package from the parts.

    Args:
        parts: at least one, except where there is no script (`main` is "") and a command runs in an empty folder.
        folder: for a file that has to be made. The caller removes it.
        main: the script's base name, "" for none. A single file without a name of its own gets it.
        model_dir: the folder the request names, "" for none.
        max_files: most members of an archive to look at. `unpack` refuses an archive with more.
        max_bytes: most bytes of an archive to look at, likewise.
    """
    if not parts and main:
        raise PackageError(
            "The request brings no file.", hint="Send the model's folder as a tar in a part 'file', or its script."
        )
    archives = [
        part for part in parts if _is_archive(part, max_files, max_bytes, alone=len(parts) == 1 and bool(model_dir))
    ]
    singles = [part for part in parts if part not in archives]
    if len(archives) > 1:
        raise PackageError(f"The request brings {len(archives)} archives.", hint="Put all folders into one.")
    if not archives:
        path = folder / "single-files.tar"
        with path.open("wb") as sink, tarfile.open(fileobj=sink, mode="w") as tar:
            _add(tar, singles, main, "")
        return Packed(path, "")
    archive = archives[0]
    folders, files = _layout(archive.path, max_files, max_bytes)
    code_dir = _code_folder(folders, files, main=main, model_dir=model_dir)
    if not singles:
        return Packed(archive.path, code_dir)
    return Packed(_in_front(archive.path, singles, main, code_dir, folder / "with-files.tar"), code_dir)


def _layout(archive: Path, max_files: int, max_bytes: int) -> tuple[set[str], set[str]]:
    """Return the folders at the top of an archive, and the path of every file in it."""
    folders: set[str] = set()
    files: set[str] = set()
    try:
        with read_tar(archive, max_files, max_bytes) as tar:
            size = 0
            for count, member in enumerate(members(tar)):
                size += member.size
                if count >= max_files or size > max_bytes:
                    break  # `unpack` refuses it and names the limit
                parts = PurePosixPath(member.name).parts
                if not parts or any(map(_junk, parts)):
                    continue
                if len(parts) > 1 or member.isdir():
                    folders.add(parts[0])
                if not member.isdir():
                    files.add("/".join(parts))
    except _UNREADABLE as error:
        raise PackageError(
            f"The package is not a readable tar archive: {error}.",
            hint="Send a tar, gzipped or not, of the model's folder.",
        ) from None
    return folders, files


def _code_folder(folders: set[str], files: set[str], *, main: str, model_dir: str) -> str:
    """Return the folder that holds the code: the folder the request names, else the only one, else none."""
    # In this order: clients name the folder of their own disk, and the top folder in the tar may have another name
    # (docs/decisions/021).
    if model_dir and model_dir in folders:
        return model_dir
    if main and main in files:
        return ""
    with_main = [folder for folder in sorted(folders) if main and f"{folder}/{main}" in files]
    if len(with_main) == 1:
        return with_main[0]
    at_top = any("/" not in name for name in files)
    return next(iter(folders)) if len(folders) == 1 and not at_top else ""


# --- one file ---------------------------------------------------------------------------------------------------------


def _is_archive(part: Part, max_files: int, max_bytes: int, *, alone: bool) -> bool:
    """Decide by name or content. The single file of a request that names a folder can only be an archive."""
    if part.name.lower().endswith(_TAR_NAMES):
        return True
    try:
        # The SDK sends no file name, so the content decides as well (docs/decisions/021).
        with read_tar(part.path, max_files, max_bytes) as tar:
            return next(members(tar), None) is not None
    except _UNREADABLE:
        # A script is never gzipped: a file that starts so and cannot be read is a damaged archive.
        script = part.name.lower().endswith(".py")
        return (alone and not script) or (not part.name and _gzipped(part.path))


def _gzipped(path: Path) -> bool:
    with path.open("rb") as raw:
        return raw.read(2) == _GZIP


def _junk(part: str) -> bool:
    """Return True for macOS's companions of files, and for members that unpacking refuses."""
    return part in ("__MACOSX", ".DS_Store", "..", "/") or part.startswith("._")


def _add(tar: tarfile.TarFile, parts: Sequence[Part], main: str, code_dir: str) -> None:
    seen: set[str] = set()
    for part in parts:
        # A client on Windows sends a path with backslashes. Only the last part may become a member's name, or a sender
        # could choose the folder.
        name = PurePosixPath(part.name.replace("\\", "/")).name or main or "main.py"
        if name in seen:
            raise PackageError(f"The request brings the file {name!r} twice.")
        seen.add(name)
        member = tarfile.TarInfo(f"{code_dir}/{name}" if code_dir else name)
        member.size = part.path.stat().st_size
        member.mode = 0o644
        with part.path.open("rb") as source:
            tar.addfile(member, source)


def _in_front(archive: Path, singles: Sequence[Part], main: str, code_dir: str, made: Path) -> Path:
    with made.open("wb") as sink:
        # In the archive's own form: gzip streams in a row are read as one, but a plain tar before a gzip stream is not.
        out = cast("IO[bytes]", gzip.GzipFile(fileobj=sink, mode="wb")) if _gzipped(archive) else sink
        # Never closed, because closing writes the blocks of zeros that end an archive.
        _add(tarfile.open(fileobj=out, mode="w"), singles, main, code_dir)  # noqa: SIM115
        if out is not sink:
            out.close()
        with archive.open("rb") as source:
            shutil.copyfileobj(source, sink, _CHUNK)
    return made
