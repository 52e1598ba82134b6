"""The stored package and the present settings of a job, ready to become another job.

A job's code folder is its working directory too, where its script may write. So the package is kept next to it: another
name for the same bytes where the file system can do that.
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec

from edt_sdk.schemas.errors import NotFound, PackageError
from edt_sdk.schemas.forecast import PackedFile
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.job import JobSpec, parse_spec
from edt_sdk.schemas.registered import Registered
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.regular import is_regular, open_regular, regular_files
from edt_server.files import PACKAGE, job_files
from edt_server.store import JobRow


@dataclass(frozen=True, slots=True)
class Stored:
    """A job's package and settings, from which another job is made.

    Attributes:
        spec: its settings, with what was changed since it was submitted.
        kept: the weights that it began with, None for none.
        config: the values that its script found in `config.json` as a trial, None for none.
    """

    job: str
    spec: JobSpec
    package: Path
    kept: Path | None
    config: dict[str, Any] | None

    def changed(self, changes: Mapping[str, Any]) -> JobSpec:
        """Return the settings of the other job. `changes` are fields of `JobSpec`, checked by `parse_spec`."""
        said = {**msgspec.to_builtins(self.spec), **changes}
        if said["framework"] != self.spec.framework:
            # How one framework is started means nothing to another one.
            said |= {"command": (), "torchrun": None, "slots_per_unit": 1}
        if "data_path" in changes and "dataset" not in changes:
            said["dataset"] = ""
        said |= changes
        return parse_spec(msgspec.json.encode(said))

    @property
    def training(self) -> Registered | None:
        """Return what the job uses from the catalogue apart from a data set, which is looked up again."""
        used = self.spec.registered or Registered()
        beside = msgspec.structs.replace(used, dataset="", copied=False, train="", test="", val="")
        return None if beside == Registered() else beside

    def weights(self, spec: JobSpec) -> Path | None:
        """Return the weights that the other job starts with because this one did, also when their job was deleted."""
        own = spec.warm_start == "" and self.spec.registered is not None and self.spec.registered.weights
        # With another `warm_start` the weights come from that job.
        same = spec.warm_start != "" and spec.warm_start == self.spec.warm_start
        return self.kept if own or same else None

    def files(self) -> tuple[PackedFile, ...]:
        """Return the files of the package, relative to the code folder and sorted. Sizes in bytes. Blocks."""
        return tuple(PackedFile(name=name, size=size) for name, (size, _) in sorted(self._members().items()))

    def sha256(self) -> str:
        """Return the SHA-256 of the names and the contents of its files, however they were packed. Blocks."""
        found = sorted((name, content) for name, (_, content) in self._members(digest=True).items())
        return hashlib.sha256(msgspec.json.encode(found)).hexdigest()

    def _members(self, *, digest: bool = False) -> dict[str, tuple[int, str]]:
        """Return size, and with `digest` the SHA-256, of each file by its name relative to the code folder."""
        top = f"{self.spec.code_dir}/" if self.spec.code_dir else ""
        found: dict[str, tuple[int, str]] = {}
        try:
            with tarfile.open(self.package) as archive:
                for member in archive:
                    if member.isdir():
                        continue
                    # What a link leads to stands for its content.
                    sha, content = member.linkname, archive.extractfile(member) if digest and member.isfile() else None
                    if content is not None:
                        sha = hashlib.file_digest(cast(io.BufferedReader, content), "sha256").hexdigest()
                    found[os.path.normpath(member.name).removeprefix(top)] = member.size, sha
                return found
        except FileNotFoundError:
            raise gone(self.job) from None
        except (tarfile.TarError, EOFError, OSError) as wrong:
            raise PackageError(
                f"What job {self.job} was made of cannot be read any more: {wrong}.",
                hint="Choose its folder instead.",
                field="source",
            ) from None


def gone(job: str) -> NotFound:
    """Return the error for a job that was deleted while another job was made from it."""
    return NotFound(f"Job {job} was deleted meanwhile.", hint="Choose the folder of its code instead.", field="source")


def stored(paths: JobPaths, row: JobRow) -> Stored:
    """Return what the job was made of. Blocks. NotFound when its files are gone."""
    package, weights = paths.job_dir / PACKAGE, job_files.kept_start(paths)
    if not is_regular(package):
        _pack(paths, package)
    config = paths.job_dir / job_files.CONFIG
    return Stored(
        row.id,
        _settings(row),
        package,
        weights if is_regular(weights) else None,
        msgspec.json.decode(config.read_bytes(), type=dict[str, Any]) if is_regular(config) else None,
    )


def _settings(row: JobRow) -> JobSpec:
    """Return the settings as a user would give them to submit the job again."""
    spec = msgspec.structs.replace(
        row.spec,
        **msgspec.structs.asdict(row.settings),
        wmla=None,  # the other job comes from another client
    )
    if spec.dataset:
        spec = msgspec.structs.replace(spec, data_path="")  # the server's word for where it lies
    if spec.framework == Framework.PYTORCH:
        spec = msgspec.structs.replace(spec, min_workers=1, slots_per_unit=1)  # follow from the maximum
    elif not Framework(spec.framework).elastic:
        spec = msgspec.structs.replace(spec, min_workers=1)
    return spec


def _pack(paths: JobPaths, package: Path) -> None:
    """Pack the code folder as it is now, for a job without a stored package."""
    # A link leads to a folder that is not the job's.
    if paths.submitted.is_symlink() or not paths.submitted.is_dir():
        raise gone(paths.job_id)
    paths.job_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    # A temporary file for each caller: a form may look at the job while it is cloned.
    with tempfile.NamedTemporaryFile(dir=paths.job_dir, prefix=f".{PACKAGE}-", delete=False) as beside:
        try:
            with tarfile.open(fileobj=beside, mode="w:gz", compresslevel=6) as archive:
                for place, _ in sorted(regular_files(paths.submitted, "**/*", within=paths.result_dir)):
                    if "__pycache__" not in place.parts:
                        with open_regular(place, within=paths.result_dir) as file:
                            name = place.relative_to(paths.submitted).as_posix()
                            archive.addfile(archive.gettarinfo(arcname=name, fileobj=file), file)
            beside.flush()
            os.replace(beside.name, package)
        except BaseException:
            os.unlink(beside.name)
            raise
