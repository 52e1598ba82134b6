"""Versions of models: copies of the weights and the code of a training, under a name and a number.

Each is an entry of the catalogue, `digits/3`, and needs its job no more. A second entry, `digits`, keeps the last
number that was given and the aliases. It stays when versions are deleted, so that no number is used twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np

from edt_sdk.schemas.errors import Conflict, NotFound
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.job import JobSpec, JobView
from edt_sdk.schemas.serving.examples import SIGNATURE_FILE, Examples
from edt_sdk.schemas.serving.versions import (
    NEWEST,
    ModelVersion,
    NewFolderVersion,
    NewVersion,
    VersionComparison,
    VersionPatch,
    VersionReference,
    check_alias,
)
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.regular import is_regular, open_regular
from edt_server.catalogue.answering import answering_program
from edt_server.catalogue.places import Places
from edt_server.catalogue.records import VERSION, VERSIONS
from edt_server.catalogue.shelf import Shelf
from edt_server.files import job_files, unpack
from edt_server.jobs import Stored
from edt_server.ledger import Change
from edt_server.outputs import results
from edt_server.service.last_metrics import last_metrics
from edt_server.store import CatalogueRow, JobRow

if TYPE_CHECKING:
    from edt_server.service.service import Service

_PIECE = 1 << 20
_LONGEST_HEADER = 4096  # bytes of the line that begins a payload
_LARGEST_SIGNATURE = 1 << 20  # bytes of the file whose examples are shown: people cannot edit more numbers by hand


class VersionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A version in the store.

    Attributes:
        training: which `train()` call of the job, from 0.
        spec: the settings of the job, with which it can be trained again.
        config: the values of a trial, None for none.
        start: name of the file with the weights or the state that the training began with, "" for none.
    """

    description: str = ""
    tags: tuple[str, ...] = ()
    job: str = ""
    job_name: str = ""
    search: str = ""
    epoch: int | None = None
    training: int = 0
    sha256: str = ""
    code_sha256: str = ""
    size: int = 0
    metrics: dict[str, float | None] = {}
    threads_per_slot: int = 1
    shards: int | None = None
    software: dict[str, str] = {}
    spec: JobSpec
    config: dict[str, Any] | None = None
    start: str = ""


@dataclass(frozen=True, slots=True)
class ServableVersion:
    """A version that is to be served.

    Attributes:
        name: with its number.
        calls: which of the script's `train()` calls made the weights, from 1.
        spec: the settings of the training, with the number of threads that it had.
        stored: its code and, as `kept`, its weights.
    """

    name: str
    sha256: str
    calls: int
    spec: JobSpec
    stored: Stored


class VersionsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the versions of a name have in common, in the store: the last number, and a number for each alias."""

    last: int = 0
    aliases: dict[str, int] = {}


class Versions:
    """The verbs of a service for versions. A version is named as `VersionReference` describes."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._shelf = Shelf(service, VERSION)
        self._names = Shelf(service, VERSIONS)

    async def register(self, user: str, new: NewVersion) -> tuple[ModelVersion, bool]:
        """Make a version of a job's weights, and return it with True.

        Where the name has one with the same weights and code, that one is returned with False, with the new alias.

        Raises NotFound for an unknown job or an epoch without weights, Conflict when there are no final weights yet.
        """
        new.check()
        row = await self._service.mine(user, new.job)
        stored = await self._service.stored(user, new.job)
        paths = self._service.paths(row)
        weights, training = await asyncio.to_thread(_weights, paths, row, new.epoch)
        shas = await asyncio.to_thread(lambda: (self._sha(weights), stored.sha256()))

        def fill(places: Places) -> VersionRecord:
            described = _described(row, stored, paths, training, new.epoch)
            # The examples in it are of the final weights.
            signature = paths.signature(training) if new.epoch is None else None
            return self._filled(places, weights, signature, stored, described, new)

        return await self._added(user, new, shas, fill)

    async def register_folder(self, user: str, new: NewFolderVersion, package: Path) -> tuple[ModelVersion, bool]:
        """Make a version of a folder whose code answers requests, and return it with True.

        Where the name has one with the same code, that one is returned with False, with the new alias. Raises
        Unprocessable for a folder without such code, PackageError for a `package` that cannot be unpacked.
        """
        new.check()
        stored = await asyncio.to_thread(self._checked_folder, new.name, package)
        code_sha = await asyncio.to_thread(stored.sha256)

        def fill(places: Places) -> VersionRecord:
            self._copy(package, places.code)
            threads = self._service.settings.threads_per_slot or 1
            return VersionRecord(
                description=new.description,
                tags=new.tags,
                code_sha256=code_sha,
                spec=stored.spec,
                threads_per_slot=threads,
            )

        return await self._added(user, new, ("", code_sha), fill)

    def _checked_folder(self, name: str, package: Path) -> Stored:
        """Return a package as that of the job which answers by it. Blocks."""
        settings = self._service.settings
        with tempfile.TemporaryDirectory(dir=package.parent) as folder:
            tried = Path(folder, "tried")
            most = {"max_files": settings.max_package_files, "max_bytes": settings.max_package_bytes}
            unpack(package, tried, main="", code_dir="", **most)
            program = answering_program(tried)
        framework = Framework.PYTORCH.value
        spec = JobSpec(name=name, main=program.main, env=program.env, max_workers=1, framework=framework).check()
        return Stored("", spec, package, None, None)

    async def _added(
        self,
        user: str,
        new: NewFolderVersion,
        shas: tuple[str, str],
        fill: Callable[[Places], VersionRecord],
    ) -> tuple[ModelVersion, bool]:
        """Add a version, unless its name has one with the same weights and code. Return it, and whether it is new."""
        number = await self._known(user, new.name, shas)
        made = number is None
        if number is None:
            number = await self._change_name(user, new.name, _next)
            await self._shelf.add(user, f"{new.name}/{number}", fill)
        if new.alias:
            await self._change_name(user, new.name, _aliased(new.alias, number))
        return await self.version(user, VersionReference(new.name, number)), made

    async def versions(self, user: str, name: str | None = None) -> list[ModelVersion]:
        """Return the versions of a name, or of all, by name and the newest first."""
        names = await self._by_name(user)
        rows = [row for row in await self._shelf.rows(user) if name is None or _parts(row)[0] == name]
        rows.sort(key=lambda row: (_parts(row)[0], -_parts(row)[1]))
        return await asyncio.to_thread(lambda: [self._shown(row, names) for row in rows])

    async def of_jobs(self, user: str) -> dict[str, list[str]]:
        """Return the versions of each job that has some, as digits/3, by its id."""
        found: dict[str, list[str]] = {}
        for row in sorted(await self._shelf.rows(user), key=_parts):
            found.setdefault(row.data["job"], []).append(row.name)
        return found

    async def version(self, user: str, wanted: VersionReference) -> ModelVersion:
        """Return a version. NotFound when there is none."""
        row = await self._row(user, wanted)
        names = await self._by_name(user)
        return await asyncio.to_thread(self._shown, row, names)

    async def change(self, user: str, wanted: VersionReference, patch: VersionPatch) -> ModelVersion:
        """Change what people say about a version."""
        patch.check()
        row = await self._row(user, wanted)

        def work(change: Change) -> None:
            there = change.tx.entry(row.id) or row
            record = msgspec.structs.replace(_record(there), **patch.changes())
            change.tx.update_entry(row.id, msgspec.to_builtins(record), change.now)

        await self._service.change(work)
        return await self.version(user, wanted)

    async def set_alias(self, user: str, wanted: VersionReference, alias: str) -> ModelVersion:
        """Let an alias mean this version from now on, and no other one."""
        check_alias(alias)
        name, number = _parts(await self._row(user, wanted))
        await self._change_name(user, name, _aliased(alias, number))
        return await self.version(user, VersionReference(name, number))

    async def remove_alias(self, user: str, wanted: VersionReference, alias: str) -> ModelVersion:
        """Take an alias away from a version. NotFound when the version is not called that."""
        shown = await self.version(user, wanted)
        if alias not in shown.aliases:
            called = f"It is called {', '.join(shown.aliases)}." if shown.aliases else "It has no alias."
            raise NotFound(f"{shown.id} is not called {alias!r}.", hint=called, field="alias")
        await self._change_name(user, shown.name, _aliased(alias, None))
        return await self.version(user, VersionReference(shown.name, shown.number))

    async def delete(self, user: str, wanted: VersionReference) -> None:
        """Remove a version with its files. Conflict when an alias means it, or a deployment serves it."""
        row = await self._row(user, wanted)
        name, number = _parts(row)
        if served := self._service.deployments.serving(user, row.name):
            raise Conflict(
                f"{row.name} is served by the deployment{'s' if len(served) > 1 else ''} {', '.join(served)}.",
                hint="Let it serve another version first, or stop it.",
                field="version",
            )
        line = (await self._by_name(user))[name]

        def check(change: Change) -> None:
            called = _called(_names_record(change.tx.entry(line.id) or line), number)
            if called:
                raise Conflict(
                    f"{row.name} is {' and '.join(f'{name}@{alias}' for alias in called)}.",
                    hint="Let another version have that alias first, or remove the alias.",
                    field="alias",
                )

        await self._shelf.remove(row, check)

    async def archive(self, user: str, wanted: VersionReference) -> results.ResultZip:
        """Return the weights (`weights.pth`) and the code (`code.tar.gz`) as a zip. Conflict when they have changed.

        `signature.json` is in it where there is one.
        """
        row = await self._checked(user, wanted)
        places = self._shelf.places(row)
        weights = {"weights.pth": places.weights} if _record(row).sha256 else {}
        files = {**weights, "code.tar.gz": places.code}
        signature = places.weights.with_name(SIGNATURE_FILE)
        if await asyncio.to_thread(is_regular, signature):
            files[SIGNATURE_FILE] = signature
        return await asyncio.to_thread(results.zip_of, f"{row.name.replace('/', '-')}.zip", files, places.folder)

    async def weights(self, user: str, wanted: VersionReference) -> tuple[Path, str]:
        """Return the file of its weights, and its name with its number. Conflict for changed weights, or none."""
        row = await self._checked(user, wanted)
        _training_of(row)
        return self._shelf.places(row).weights, row.name

    async def servable(self, user: str, wanted: VersionReference, *, checked: bool = True) -> ServableVersion:
        """Return what a deployment needs of a version. Conflict when the weights on disk have changed, if `checked`."""
        row = await (self._checked if checked else self._row)(user, wanted)
        record, places = _record(row), self._shelf.places(row)
        weights = places.weights if record.sha256 else None
        stored = Stored(record.job, record.spec, places.code, weights, record.config)
        spec = msgspec.structs.replace(record.spec, threads_per_slot=record.threads_per_slot)
        return ServableVersion(row.name, record.sha256, record.training + 1, spec, stored)

    async def example(self, user: str, wanted: VersionReference) -> Any:
        """Return the inputs of a request with one row as JSON values, None where none is known or it is large."""
        row = await self._row(user, wanted)
        return await asyncio.to_thread(_example, self._shelf.places(row).weights.with_name(SIGNATURE_FILE))

    async def reproduce(self, user: str, wanted: VersionReference) -> JobView:
        """Train a version again: the same code, settings and beginning, as a new job. Conflict for one of a folder."""
        row = await self._checked(user, wanted)
        record, places = _training_of(row), self._shelf.places(row)
        start = places.folder / record.start if record.start else None
        stored = Stored(record.job, record.spec, places.code, start, record.config)
        spec = stored.changed({"name": f"{row.name} again", "threads_per_slot": record.threads_per_slot})
        return await self._service.submit(
            user, spec, stored.package, training=stored.training, weights=start, config=stored.config
        )

    async def compare(self, user: str, wanted: VersionReference, job: str) -> VersionComparison:
        """Return whether a job has trained the same weights, and what differs between the trainings."""
        record = _training_of(await self._row(user, wanted))
        other = await self._service.mine(user, job)
        stored, paths = await self._service.stored(user, job), self._service.paths(other)

        def compared() -> VersionComparison:
            weights, training = _weights(paths, other, record.epoch, record.training)
            described = _described(other, stored, paths, training, record.epoch)
            differ = [what for what, of in _DECISIVE.items() if of(record) != of(described)]
            sha = self._sha(weights)
            return VersionComparison(equal=sha == record.sha256, sha256=sha, differences=tuple(differ))

        return await asyncio.to_thread(compared)

    # --- rows and files -----------------------------------------------------------------------------------------------

    async def _by_name(self, user: str) -> dict[str, CatalogueRow]:
        return {row.name: row for row in await self._names.rows(user)}

    async def _row(self, user: str, wanted: VersionReference) -> CatalogueRow:
        rows = {_parts(row)[1]: row for row in await self._shelf.rows(user) if _parts(row)[0] == wanted.name}
        if not rows:
            names = sorted({_parts(row)[0] for row in await self._shelf.rows(user)})
            hint = (
                f"You have versions of {', '.join(names[:10])}." if names else "client.register() makes the first one."
            )
            raise NotFound(f"There is no version of {wanted.name!r}.", hint=hint, field="name")
        number = max(rows)
        if wanted.number is not None:
            number = wanted.number
        elif wanted.alias not in ("", NEWEST):
            aliases = _names_record((await self._by_name(user))[wanted.name]).aliases
            if wanted.alias not in aliases:
                hint = f"There are {', '.join(sorted(aliases))}." if aliases else "It has no alias yet."
                raise NotFound(f"{wanted.name} has no alias {wanted.alias!r}.", hint=hint, field="alias")
            number = aliases[wanted.alias]
        if number not in rows:
            known = ", ".join(map(str, sorted(rows)))
            raise NotFound(f"There is no {wanted.name}/{number}.", hint=f"There are {known}.", field="number")
        return rows[number]

    async def _checked(self, user: str, wanted: VersionReference) -> CatalogueRow:
        """Return the row of a version whose weights are what they were."""
        row = await self._row(user, wanted)
        wanted_sha = _record(row).sha256
        if (found := await asyncio.to_thread(self._found, row)) != wanted_sha:
            raise Conflict(
                f"The weights of {row.name} are not what was registered: {found[:16]} in place of "
                f"{wanted_sha[:16]}, by SHA-256.",
                hint="Register the job again, or restore the file from a backup.",
            )
        return row

    async def _known(self, user: str, name: str, shas: tuple[str, str]) -> int | None:
        """Return the number of a version with these weights and this code, None where none has them on disk."""
        for row in await self._shelf.rows(user):
            record = _record(row)
            same = _parts(row)[0] == name and (record.sha256, record.code_sha256) == shas
            if same and await asyncio.to_thread(self._found, row) == record.sha256:
                return _parts(row)[1]
        return None

    def _found(self, row: CatalogueRow) -> str:
        """Return the SHA-256 of a version's weights as they are on disk, "" for a version without any. Blocks."""
        weights = self._shelf.places(row).weights
        if not _record(row).sha256:
            return ""
        return self._sha(weights) if is_regular(weights) else "gone"

    async def _change_name(self, user: str, name: str, change_of: Callable[[VersionsRecord], VersionsRecord]) -> int:
        """Change what the versions of a name have in common, and return the last number."""
        if name not in await self._by_name(user):
            with contextlib.suppress(Conflict):  # another request has added it
                await self._names.add(user, name, lambda _: VersionsRecord())
        row = (await self._by_name(user))[name]

        def work(change: Change) -> int:
            # Read again in the transaction, so that no number is given twice.
            record = change_of(_names_record(change.tx.entry(row.id) or row))
            change.tx.update_entry(row.id, msgspec.to_builtins(record), change.now)
            return record.last

        return await self._service.change(work)

    def _filled(
        self,
        places: Places,
        weights: Path,
        signature: Path | None,
        stored: Stored,
        described: VersionRecord,
        new: NewVersion,
    ) -> VersionRecord:
        """Copy the files of a version to their places, and return its whole record. Blocks."""
        places.weights.parent.mkdir()
        self._copy(weights, places.weights)
        self._copy(stored.package, places.code)
        if signature is not None and is_regular(signature):
            self._copy(signature, places.weights.with_name(SIGNATURE_FILE))
        start = ""
        if stored.kept is not None:
            start = f"start{stored.kept.suffix}"
            self._copy(stored.kept, places.folder / start)
        return msgspec.structs.replace(
            described,
            description=new.description,
            tags=new.tags,
            sha256=self._sha(places.weights),
            size=places.weights.stat().st_size,
            start=start,
        )

    def _copy(self, source: Path, target: Path) -> None:
        # No link to the same bytes: the job's script may still write into its file.
        with job_files.open_source(source, self._service.settings.data_dir) as file, target.open("xb") as copy:
            shutil.copyfileobj(file, copy, _PIECE)

    def _sha(self, file: Path) -> str:
        with job_files.open_source(file, self._service.settings.data_dir) as content:
            return hashlib.file_digest(cast(io.BufferedReader, content), "sha256").hexdigest()

    def _shown(self, row: CatalogueRow, names: dict[str, CatalogueRow]) -> ModelVersion:
        name, number = _parts(row)
        record, weights = _record(row), self._shelf.places(row).weights
        there = weights.stat().st_size if is_regular(weights) else None
        trouble = (
            "" if there == record.size or not record.sha256 else "Its weights are not on disk as they were registered."
        )
        spec, same = record.spec, set(VersionRecord.__struct_fields__) & set(ModelVersion.__struct_fields__)
        return ModelVersion(
            name=name,
            number=number,
            owner=row.owner,
            aliases=_called(_names_record(names[name]), number) if name in names else (),
            created=row.created,
            framework=spec.framework,
            main=spec.main,
            args=spec.args,
            dataset=spec.dataset,
            seed=spec.seed,
            mode=spec.mode,
            trouble=trouble,
            **{field: getattr(record, field) for field in same},
        )


# What the bits of a training depend on, as far as it is known.
_DECISIVE: dict[str, Callable[[VersionRecord], object]] = {
    "the code": lambda record: record.code_sha256,
    "the arguments": lambda record: record.spec.args,
    "the values of the trial": lambda record: record.config,
    "the environment variables": lambda record: record.spec.env,
    "the data set": lambda record: (record.spec.dataset, record.spec.data_path),
    "the seed": lambda record: record.spec.seed,
    "the mode": lambda record: record.spec.mode,
    "the number of shards": lambda record: record.shards,
    "the number of threads": lambda record: record.threads_per_slot,
    "the versions of Python and torch": lambda record: record.software,
}


def _described(row: JobRow, stored: Stored, paths: JobPaths, training: int, epoch: int | None) -> VersionRecord:
    """Return what a version of a job's weights says of their origin, without what its files say. Blocks."""
    return VersionRecord(
        job=row.id,
        job_name=row.spec.name,
        search=row.spec.search,
        epoch=epoch,
        training=training,
        code_sha256=stored.sha256(),
        metrics=last_metrics(paths, training, epoch),
        threads_per_slot=row.threads_per_slot,
        shards=row.shards,
        software=_software(paths.payload(training)),
        spec=stored.spec,
        config=stored.config,
    )


def _weights(paths: JobPaths, row: JobRow, epoch: int | None, training: int | None = None) -> tuple[Path, int]:
    """Return the file with a job's weights, and which `train()` call made them, from 0. Blocks.

    With an `epoch` those after it, else the final ones of that `training`, by default of the last one.
    """
    finals = job_files.final_weights(paths)
    if epoch is not None:
        file = paths.train_dir / f"model_epoch_{epoch}.pth"
        if not is_regular(file, within=paths.result_dir):
            known = [each.epoch for each in results.checkpoints(paths) if each.epoch and each.kind == "weights"]
            hint = f"There are those after {', '.join(map(str, known))}." if known else "It keeps none."
            raise NotFound(f"Job {row.id} has no weights after epoch {epoch}.", hint=hint, field="epoch", job=row.id)
        return file, max(0, len(finals) - row.state.final) if training is None else training
    call = len(finals) - 1 if training is None else training
    if 0 <= call < len(finals):
        return finals[call], call
    whole = paths.train_dir / "model_epoch_final.pth"  # of a script that trains by itself
    if row.state.final and is_regular(whole, within=paths.result_dir):
        return whole, 0
    raise Conflict(
        f"Job {row.id} is {row.state.value} and has no final weights{'' if row.state.final else ' yet'}.",
        hint="Wait for its end, or name an epoch, whose weights it has kept.",
        job=row.id,
    )


def _example(signature: Path) -> Any:
    """Return the inputs of the first example in a file, by name where there are several. Blocks."""
    if not is_regular(signature) or signature.stat().st_size > _LARGEST_SIGNATURE:
        return None
    try:
        (first, *_) = Examples.read(signature).examples
        files = {name: io.BytesIO(content) for name, content in first.inputs.items()}
        inputs = {name: np.lib.format.read_array(file, allow_pickle=False).tolist() for name, file in files.items()}
    except Exception:  # the job's process wrote it, and numpy raises a dozen types
        return None
    return inputs if len(inputs) > 1 else next(iter(inputs.values()), None)


def _software(payload: Path) -> dict[str, str]:
    """Return the versions that the first line of a payload names, nothing where there is none."""
    try:
        with open_regular(payload) as file:
            header = msgspec.json.decode(file.readline(_LONGEST_HEADER), type=dict[str, Any])
    except (OSError, msgspec.DecodeError):
        return {}
    return {name: str(header[name]) for name in ("python", "torch") if name in header}


def _record(row: CatalogueRow) -> VersionRecord:
    return msgspec.convert(row.data, VersionRecord)


def _training_of(row: CatalogueRow) -> VersionRecord:
    """Return the record of a version that was trained. Conflict for one of a folder."""
    record = _record(row)
    if not record.sha256:
        raise Conflict(f"{row.name} was made of a folder: it has no weights, and was never trained.")
    return record


def _names_record(row: CatalogueRow) -> VersionsRecord:
    return msgspec.convert(row.data, VersionsRecord)


def _parts(row: CatalogueRow) -> tuple[str, int]:
    name, _, number = row.name.rpartition("/")
    return name, int(number)


def _called(record: VersionsRecord, number: int) -> tuple[str, ...]:
    return tuple(sorted(alias for alias, meant in record.aliases.items() if meant == number))


def _next(record: VersionsRecord) -> VersionsRecord:
    return msgspec.structs.replace(record, last=record.last + 1)


def _aliased(alias: str, number: int | None) -> Callable[[VersionsRecord], VersionsRecord]:
    """Return the change that lets an alias mean a number, with None nothing."""

    def change(record: VersionsRecord) -> VersionsRecord:
        others = {name: meant for name, meant in record.aliases.items() if name != alias}
        return msgspec.structs.replace(record, aliases=others if number is None else {**others, alias: number})

    return change
