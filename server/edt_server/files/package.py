"""Unpack a submitted package: a tar archive, plain or gzipped, from a source that is not trusted.

The archive is read once, member by member, into a fresh folder next to the target. That folder takes the target's name
only when everything was in order, so a refused package leaves nothing. Every refusal is a `PackageError` that names the
member. Files are written by us, not by `tarfile.extract`: each is created new (never through a link), with 0644 or
0755, and symbolic links come last, when nothing is written any more. The standard library's data filter is asked as a
second opinion.

Invariant: nothing is ever written outside the fresh folder, and never more than `max_bytes` in `max_files` members.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, TypeVar, cast

from edt_sdk.schemas.errors import PackageError
from edt_sdk.schemas.fields import did_you_mean

_CHUNK = 1 << 20
_GZIP = b"\x1f\x8b"
_NAMES_SHOWN = 10
_LONGEST_NAME = 1024
# What is remembered of an archive takes about as much memory, and so many names are never honest.
_MOST_NAMES = 16 << 20
# Bytes of headers before a member, and of the headers for all members that follow.
_MOST_HEADER = 1 << 20
_MOST_COMMON = 1 << 16
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class UnpackedPackage:
    """The unpacked files: their names, relative to the target and sorted, and their total size in bytes."""

    files: tuple[str, ...]
    size: int


def unpack(archive: Path, target: Path, *, main: str, code_dir: str, max_files: int, max_bytes: int) -> UnpackedPackage:
    """Unpack `archive` as the folder `target`. The parent of that folder exists.

    Args:
        archive: a tar file, plain or gzipped.
        target: the folder to make, which must not exist yet.
        main: the main script that must be in it, relative to `code_dir`. "" when no script has to be.
        code_dir: the package's one top folder, or "".
        max_files: most members (files, folders, links) it may have.
        max_bytes: most bytes its files may have together.
    """
    if code_dir in (".", "..") or "/" in code_dir or "\0" in code_dir:
        raise PackageError(f"code_dir must name one folder of the package, not {code_dir!r}.", field="code_dir")
    # Next to the target, because a rename is atomic only within one file system.
    fresh = Path(tempfile.mkdtemp(prefix=".unpack-", dir=target.parent))
    try:
        # `mkdtemp` makes it 0700, and the mode would stay after the rename.
        fresh.chmod(0o755)
        package = _Unpacking(fresh, max_files, max_bytes).run(archive)
        _find_main(fresh, package, main, code_dir)
        fresh.rename(target)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    return package


@contextmanager
def read_tar(archive: Path, max_files: int, max_bytes: int) -> Iterator[tarfile.TarFile]:
    """Open a tar that is not trusted, plain or gzipped, for `members`. It never takes much memory.

    PackageError, also later, when more is read of it than `max_bytes` in `max_files` members take, or when a header of
    a member is as long as a file. `tarfile.ReadError` for what is no tar.
    """
    # Headers and padding of a member are at most a few blocks. An archive with more is refused as an attack.
    limit = max_bytes + (max_files + 20) * 4096
    with archive.open("rb") as raw:
        gzipped = raw.read(2) == _GZIP
        raw.seek(0)
        # gzip is opened here, so that the bound counts inflated bytes, and `tarfile` must not try other compressions.
        plain = cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if gzipped else raw
        stream = cast("IO[bytes]", _Bounded(plain, limit))
        with _parsed(lambda: tarfile.open(fileobj=stream, mode="r:")) as tar:
            yield tar


def members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the members of a tar that `read_tar` has opened. Errors as there."""
    stream = cast(_Bounded, tar.fileobj)
    while True:
        stream.header_left = _MOST_HEADER
        member = _parsed(tar.next)
        stream.header_left = None
        if member is None:
            return
        # `tarfile` remembers every member, a kilobyte each, for a second pass.
        tar.members.clear()  # type: ignore[attr-defined]
        if sum(len(name) + len(value) for name, value in tar.pax_headers.items()) > _MOST_COMMON:
            raise _long_header(_MOST_COMMON)
        for name in (member.name, member.linkname):
            if len(name) > _LONGEST_NAME:
                raise PackageError(f"{_show(name)} is too long a name.")
        yield member


def _parsed(parse: Callable[[], T]) -> T:
    """Call a function of `tarfile` that reads a header. It has no error of its own for some damages."""
    try:
        return parse()
    except (ValueError, ArithmeticError, LookupError, RecursionError) as wrong:
        raise tarfile.ReadError(f"a damaged header ({wrong})") from None


def _long_header(size: int) -> PackageError:
    return PackageError(f"The package has a header of more than {size} bytes.", hint="Shorten its file names.")


def _find_main(root: Path, package: UnpackedPackage, main: str, code_dir: str) -> None:
    if not main:
        if not (root / code_dir).is_dir():
            raise PackageError(f"The folder {code_dir!r} is not in the package.", field="code_dir")
        return
    if "\0" not in main and (root / code_dir / main).is_file():
        return
    place = f"{code_dir}/{main}" if code_dir else main
    more = len(package.files) - _NAMES_SHOWN
    shown = (", ".join(package.files[:_NAMES_SHOWN]) or "no file at all") + (f" and {more} more" if more > 0 else "")
    raise PackageError(
        f"The main script {place!r} is not in the package.",
        hint=f"{did_you_mean(place, package.files)} The package holds {shown}; set main to one of its files.".lstrip(),
        field="main",
        files=list(package.files[:100]),
    )


@dataclass(slots=True)
class _Unpacking:
    """One run over one archive."""

    root: Path
    max_files: int
    max_bytes: int
    seen: int = 0
    size: int = 0
    names: int = 0
    files: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=lambda: {"."})
    links: dict[str, str] = field(default_factory=dict)

    def run(self, archive: Path) -> UnpackedPackage:
        try:
            with read_tar(archive, self.max_files, self.max_bytes) as tar:
                self._read(tar)
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise PackageError(
                f"The package is not a readable tar archive: {error}.", hint="Send a .tar.gz, as Client.submit does."
            ) from None
        except FileExistsError as error:
            raise PackageError(
                f"{_show(str(error.filename))} and another name differ only in a way this disk ignores."
            ) from None
        self._make_links()
        return UnpackedPackage(tuple(sorted({*self.files, *self.links})), self.size)

    def _read(self, tar: tarfile.TarFile) -> None:
        for member in members(tar):
            self._accept(tar, member)
        stream = cast("IO[bytes]", tar.fileobj)
        # tarfile takes a damaged header for the end. A real end is a block of zeros, or the end of the file.
        stream.seek(tar.offset)
        if stream.read(tarfile.BLOCKSIZE).strip(b"\0"):
            raise tarfile.ReadError(f"damaged header at byte {tar.offset}")
        while stream.read(_CHUNK):  # to the end, so that gzip compares its checksum
            pass

    def _accept(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        self.seen += 1
        if self.seen > self.max_files:
            raise self._too_many(member.name)
        name = _clean(member.name)
        if name == "." or _from_macos(name):
            return
        self._claim(name, folder=member.isdir())
        if member.isdir():
            self._add_folder(name)
        elif member.isreg():
            # Before a byte is written, because a small archive can announce terabytes.
            self._count(name, member.size)
            self._second_opinion(member)
            source = tar.extractfile(member)
            if source is None:
                raise PackageError(f"{_show(name)} cannot be read from the package.")
            with source:
                self._write(name, source, executable=bool(member.mode & 0o100))
        elif member.issym():
            self.links[name] = self._link_target(name, member.linkname)
            self._remember(name + member.linkname)
            self._second_opinion(member)
            self._add_folder(str(PurePosixPath(name).parent))
        elif member.islnk():
            self._copy(name, _clean(member.linkname))
        else:
            raise PackageError(f"{_show(name)} is a device or a pipe; a package holds files, folders and links.")

    def _claim(self, name: str, *, folder: bool) -> None:
        """Refuse a second entry of the same name, and whatever would be written through a file or a link."""
        if name in self.files or name in self.links or (name in self.folders and not folder):
            raise PackageError(f"The package contains {_show(name)} twice.")
        for parent in PurePosixPath(name).parents:
            if str(parent) in self.files or str(parent) in self.links:
                raise PackageError(f"{_show(name)} lies below {_show(str(parent))}, which is not a folder.")

    def _remember(self, name: str) -> None:
        """Count a file, a link or a folder, also a folder that no member names."""
        self.names += len(name)
        if len(self.files) + len(self.links) + len(self.folders) > self.max_files + 1 or self.names > _MOST_NAMES:
            raise self._too_many(name)

    def _too_many(self, name: str) -> PackageError:
        return PackageError(
            f"The package has more than {self.max_files} members; {_show(name)} is one too many.",
            hint="Leave data and build folders out with an .edtignore file, or ask for a larger max_package_files.",
        )

    def _second_opinion(self, member: tarfile.TarInfo) -> None:
        try:
            tarfile.data_filter(member, str(self.root))
        except tarfile.FilterError as error:
            raise PackageError(f"{_show(member.name)} is refused: {error}.") from None

    def _count(self, name: str, size: int) -> None:
        self.size += size
        if self.size > self.max_bytes:
            raise PackageError(
                f"The package unpacks to more than {self.max_bytes} bytes; {_show(name)} is over the cap.",
                hint="Keep data sets out of the package and read them from DATA_DIR.",
            )

    def _add_folder(self, name: str) -> None:
        if name not in self.folders:
            self._add_folder(str(PurePosixPath(name).parent))
            self.folders.add(name)
            self._remember(name)
            os.mkdir(self.root / name, 0o755)

    def _write(self, name: str, source: IO[bytes], *, executable: bool) -> None:
        self._add_folder(str(PurePosixPath(name).parent))
        place = self.root / name
        # O_EXCL also refuses two names that a disk without upper and lower case takes for one.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(place, flags, 0o755 if executable else 0o644)
        with os.fdopen(descriptor, "wb") as sink:
            shutil.copyfileobj(source, sink, _CHUNK // 4)
        self.files.add(name)
        self._remember(name)

    def _copy(self, name: str, origin: str) -> None:
        """Copy the target of a hard link: with two names for one file, a job could change the other by accident."""
        place = self.root / origin
        if origin not in self.files:
            raise PackageError(
                f"{_show(name)} is a hard link to {_show(origin)}, which is no earlier file of the package."
            )
        self._count(name, place.stat().st_size)
        with place.open("rb") as source:
            self._write(name, source, executable=os.access(place, os.X_OK))

    def _link_target(self, name: str, target: str) -> str:
        """Return `target` unchanged when it stays in the package, checked name by name."""
        steps: list[str] = [] if target.startswith("/") else list(PurePosixPath(name).parent.parts)
        outside = not target or target.startswith("/") or "\0" in target
        for part in target.split("/"):
            if part == "..":
                outside = outside or not steps
                steps = steps[:-1]
            elif part not in ("", "."):
                steps.append(part)
        if outside:
            raise PackageError(f"{_show(name)} is a link to {_show(target)}, outside of the package.")
        return target

    def _make_links(self) -> None:
        for name, target in self.links.items():
            here = PurePosixPath(os.path.normpath(PurePosixPath(name).parent / target))
            # `a/..` is not what it looks like when `a` is a link, so links to or through links are out.
            through = [str(p) for p in (here, *here.parents) if str(p) in self.links]
            if through or (".." in target.split("/") and not self._climbs_by_folders(name, target)):
                raise PackageError(
                    f"{_show(name)} is a link to or through another link ({_show(target)}).",
                    hint="Link to the file or folder itself.",
                )
            os.symlink(target, self.root / name)

    def _climbs_by_folders(self, name: str, target: str) -> bool:
        """Return True when every `..` of the target leaves a real folder."""
        here = PurePosixPath(name).parent
        for part in target.split("/"):
            if part == "..":
                if str(here) not in self.folders:
                    return False
                here = here.parent
            elif part not in ("", "."):
                here = here / part
        return True


class _Bounded:
    """A readable, seekable stream that ends the run when more than `limit` bytes are read from it.

    While a header is read, `header_left` counts the bytes that it may still have: tarfile holds all of it in memory.
    """

    def __init__(self, stream: IO[bytes], limit: int) -> None:
        self._stream = stream
        self._limit = limit
        self.header_left: int | None = _MOST_HEADER  # tarfile reads the first header when it opens a tar

    def read(self, size: int = -1) -> bytes:
        if self.header_left is not None:
            self.header_left -= size
            if self.header_left < 0:
                raise _long_header(_MOST_HEADER)
        data = self._stream.read(size)
        self._check(self._stream.tell())
        return data

    def seek(self, position: int, whence: int = 0) -> int:
        if whence == 0:
            self._check(position)
        return self._stream.seek(position, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def _check(self, position: int) -> None:
        if position < 0:
            raise tarfile.ReadError("a member with a size below 0")
        if position > self._limit:
            raise PackageError(f"The package unpacks to more than {self._limit} bytes, headers included.")


def _clean(name: str) -> str:
    """Return a member's name without `./`. Raises PackageError when it is no plain relative name."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    try:
        # `tarfile` decodes foreign bytes as surrogates, which do not encode again.
        encoded = [part.encode() for part in parts]
    except UnicodeEncodeError:
        raise PackageError(f"The name {name!a} is not UTF-8.") from None
    if name.startswith("/"):
        raise PackageError(f"{_show(name)} is an absolute name.", hint="Names in a package are relative.")
    if ".." in parts:
        raise PackageError(f"{_show(name)} leads out of the package.", hint="Names in a package must not contain '..'.")
    if any(ord(c) < 32 for c in name):
        raise PackageError(f"{name!a} has control characters in its name.")
    if any(len(part) > 255 for part in encoded) or sum(map(len, encoded)) + len(encoded) > _LONGEST_NAME:
        raise PackageError(f"{_show(name)} is too long a name.")
    return "/".join(parts) or "."


def _from_macos(name: str) -> bool:
    """Return whether this is a metadata file of macOS Finder, which is skipped."""
    parts = PurePosixPath(name).parts
    return parts[0] == "__MACOSX" or parts[-1] == ".DS_Store" or any(part.startswith("._") for part in parts)


def _show(name: str) -> str:
    text = repr(name if len(name) <= 120 else name[:117] + "…")
    return text.encode("utf-8", "backslashreplace").decode()
