"""One user's things of one kind: found by name, put away with their files, removed with them.

What data sets and models have in common. Files are in their place before the row is committed, and go after it was
removed; so whatever has a row has its files. A row belongs to its owner, and names are looked up among the owner's own:
nobody else's can be meant.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

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
        ...

    async def job(self, user: str, job: str) -> JobView:
        """The job as it is now."""
        ...

    async def mine(self, user: str, job: str) -> JobRow:
        """The user's job."""
        ...

    def paths(self, row: JobRow) -> JobPaths:
        """Where its files are."""
        ...

    async def submit(
        self,
        user: str,
        spec: JobSpec,
        package: Path,
        *,
        training: Registered | None = None,
        weights: Path | None = None,
    ) -> JobView:
        """Make a job of a package, a training of a model where that is given."""
        ...

    @property
    def store(self) -> Store:
        """The open store."""
        ...


@dataclass(frozen=True, slots=True)
class Shelf:
    """All things of one kind: "dataset", "model" or "template"."""

    service: JobService
    kind: str

    async def rows(self, user: str) -> list[CatalogueRow]:
        """The user's, by name."""
        return await asyncio.to_thread(self.service.store.entries, user, self.kind)

    async def row(self, user: str, name: str) -> CatalogueRow:
        """The user's thing of that name. NotFound, with those there are."""
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
        """The user's jobs that use something of the catalogue, the newest first."""
        return await asyncio.to_thread(self.service.store.uses, user)

    async def check_free(self, user: str, name: str) -> None:
        """Conflict when the name is taken: said before anything is copied."""
        if any(row.name == name for row in await self.rows(user)):
            raise self._taken(name)

    def _taken(self, name: str) -> Conflict:
        what = CALLED[self.kind]
        return Conflict(
            f"You have a {what} {name!r} already.", hint="Choose another name, or delete that one first.", field="name"
        )

    def places(self, row_or_user: CatalogueRow | str, identifier: str = "") -> Places:
        """Where the files of a thing are."""
        if isinstance(row_or_user, CatalogueRow):
            return Places(self.service.settings.data_dir, row_or_user.owner, row_or_user.id)
        return Places(self.service.settings.data_dir, row_or_user, identifier)

    async def add(
        self,
        user: str,
        name: str,
        fill: Callable[[Places], msgspec.Struct],
        *,
        check: Callable[[Change], None] | None = None,
    ) -> CatalogueRow:
        """Add a thing.

        Args:
            user: whose it will be.
            name: its name, free.
            fill: puts its files into its folder, which is there, and returns its record; in a thread.
            check: of the transaction that adds it.

        Raises:
            Conflict: the name was taken meanwhile. Nothing is left behind, then and whenever `fill` raises.
        """
        await self.check_free(user, name)
        places = self.places(user, new_id(name))

        def prepared() -> msgspec.Struct:
            make_private_dir(places.incoming.folder)
            record = fill(places.incoming)
            places.incoming.folder.rename(places.folder)
            return record

        try:
            record = await asyncio.to_thread(prepared)
            now = time.time()
            row = CatalogueRow(places.id, user, self.kind, name, now, now, data_of(record))

            def work(change: Change) -> None:
                if check is not None:
                    check(change)
                try:
                    change.tx.add_entry(row)
                except Conflict:
                    raise self._taken(name) from None

            await self.service.change(work)
        except (StoreError, asyncio.CancelledError):
            raise  # it may have been committed all the same: its files stay
        except BaseException:
            for folder in (places.incoming.folder, places.folder):
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            raise
        return row

    async def remove(self, row: CatalogueRow, check: Callable[[Change], None] | None = None) -> None:
        """Remove a thing with its files, unless `check` raises in the transaction that removes it."""

        def work(change: Change) -> None:
            if check is not None:
                check(change)
            change.tx.delete_entry(row.id)

        await self.service.change(work)
        await asyncio.to_thread(shutil.rmtree, self.places(row).folder, ignore_errors=True)

    async def jobs(self, user: str, wanted: Callable[[Use], bool], most: int = 100) -> tuple[JobView, ...]:
        """The user's jobs that are wanted, the newest first, at most so many."""
        chosen = [use.job for use in await self.uses(user) if wanted(use)][:most]
        found = await asyncio.gather(*(self._view(user, job) for job in chosen))
        return tuple(view for view in found if view is not None)

    async def _view(self, user: str, job: str) -> JobView | None:
        try:
            return await self.service.job(user, job)
        except NotFound:
            return None  # deleted meanwhile


def data_of(record: msgspec.Struct) -> dict[str, Any]:
    """A record as JSON."""
    data: dict[str, Any] = msgspec.to_builtins(record)
    return data
