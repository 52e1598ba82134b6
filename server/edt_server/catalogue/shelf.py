"""A user's catalogue entries of a kind: find them by name, add and remove them with their files.

Shared by data sets, models, weights and algorithms of searches. Files are in their place before the row is committed,
and are removed after the row. So every row has its files. Names are looked up among the owner's entries only.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from edt_sdk.schemas.errors import Conflict, NotFound
from edt_sdk.schemas.job import JobSpec, JobView
from edt_sdk.schemas.registered import Registered
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.catalogue.places import Places
from edt_server.catalogue.records import CALLED
from edt_server.files import new_id
from edt_server.ledger import Change
from edt_server.settings import Settings
from edt_server.store import CatalogueRow, JobRow, Store, StoreError, Use
from edt_server.system.private_files import make_private_dir

T = TypeVar("T")
_SHOWN = 10


class JobService(Protocol):
    """The part of the service that the catalogue uses."""

    settings: Settings

    async def change(self, work: Callable[[Change], T]) -> T:
        """Run `work` in a transaction of the ledger."""

    async def job(self, user: str, job: str) -> JobView:
        """Return the job as it is now."""

    async def mine(self, user: str, job: str) -> JobRow:
        """Return the user's job."""

    def paths(self, row: JobRow) -> JobPaths:
        """Return the places of the job's files."""

    async def submit(
        self,
        user: str,
        spec: JobSpec,
        package: Path,
        *,
        training: Registered | None = None,
        weights: Path | None = None,
    ) -> JobView:
        """Make a job from a package. With `training` it is a training of a model."""

    @property
    def store(self) -> Store:
        """Return the open store."""


@dataclass(frozen=True, slots=True)
class Shelf:
    """All entries of a kind: "dataset", "model", "template", "weights" or "algorithm"."""

    service: JobService
    kind: str

    async def rows(self, user: str) -> list[CatalogueRow]:
        """Return the user's entries, by name."""
        return await asyncio.to_thread(self.service.store.entries, user, self.kind)

    async def row(self, user: str, name: str) -> CatalogueRow:
        """Return the user's entry with that name. Raises NotFound, with the names of the others."""
        rows = await self.rows(user)
        for row in rows:
            if row.name == name:
                return row
        what = CALLED[self.kind]
        names = [row.name for row in rows]
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        hint = f"You have {', '.join(names[:_SHOWN])}{more}." if names else f"You have no {what} yet."
        raise NotFound(f"There is no {what} {name!r}.", hint=hint, field=self.kind)

    async def uses(self, user: str) -> list[Use]:
        """Return the uses of catalogue entries by the user's jobs, the newest first."""
        return await asyncio.to_thread(self.service.store.uses, user)

    def _taken(self, name: str) -> Conflict:
        what = CALLED[self.kind]
        return Conflict(
            f"You have a {what} {name!r} already.", hint="Choose another name, or delete that one first.", field="name"
        )

    def places(self, row: CatalogueRow) -> Places:
        """Return where the files of an entry are."""
        return Places(self.service.settings.data_dir, row.owner, row.id)

    async def add(
        self,
        user: str,
        name: str,
        fill: Callable[[Places], msgspec.Struct],
        check: Callable[[Places], Awaitable[None]] | None = None,
    ) -> CatalogueRow:
        """Add an entry. Raises Conflict when the name is taken. Nothing is left behind then, or when a function raises.

        `fill` puts its files into its folder, which exists, and returns its record. It runs in a thread. `check` tries
        the files in their place, before the entry is there.
        """
        # Before any file is copied.
        if any(row.name == name for row in await self.rows(user)):
            raise self._taken(name)
        places = Places(self.service.settings.data_dir, user, new_id(name))

        def prepared() -> msgspec.Struct:
            make_private_dir(places.incoming.folder)
            record = fill(places.incoming)
            # A complete folder gets its name in one atomic step. A server killed before leaves `.incoming-…`, which the
            # next start removes.
            places.incoming.folder.rename(places.folder)
            return record

        try:
            record = await asyncio.to_thread(prepared)
            if check is not None:
                await check(places)
            now = time.time()
            row = CatalogueRow(places.id, user, self.kind, name, now, now, msgspec.to_builtins(record))

            def work(change: Change) -> None:
                try:
                    change.tx.add_entry(row)
                except Conflict:
                    # The name may have been taken while the files were copied: the row's unique key decides the race.
                    raise self._taken(name) from None

            await self.service.change(work)
        except (StoreError, asyncio.CancelledError):
            raise  # it may have been committed all the same, so its files stay
        except BaseException:
            for folder in (places.incoming.folder, places.folder):
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            raise
        return row

    async def remove(self, row: CatalogueRow, check: Callable[[Change], None] | None = None) -> None:
        """Remove an entry with its files, unless `check` raises in the transaction that removes it."""

        def work(change: Change) -> None:
            if check is not None:
                check(change)
            change.tx.delete_entry(row.id)

        # The row first: a server killed in between leaves files without a row, and never a row without its files.
        # Complete folders are not cleared at a start (docs/decisions/026).
        await self.service.change(work)
        await asyncio.to_thread(shutil.rmtree, self.places(row).folder, ignore_errors=True)

    async def jobs(self, user: str, wanted: Callable[[Use], bool], most: int = 100) -> tuple[JobView, ...]:
        """Return the wanted jobs of the user, the newest first, at most this many."""
        chosen = [use.job for use in await self.uses(user) if wanted(use)][:most]
        found = await asyncio.gather(*(self._view(user, job) for job in chosen))
        return tuple(view for view in found if view is not None)

    async def _view(self, user: str, job: str) -> JobView | None:
        try:
            return await self.service.job(user, job)
        except NotFound:
            return None  # deleted in the meantime
