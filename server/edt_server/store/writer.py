"""One transaction: everything written through a `Writer` is committed together, or not at all."""

from __future__ import annotations

import time as clock
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import delete, select, text
from sqlalchemy.orm import Session

from edt_sdk.schemas.errors import Conflict, NotFound
from edt_sdk.schemas.events import Event
from edt_sdk.schemas.wire.control import ProcessIdentity
from edt_server.store.models import CatalogueModel, EventModel, JobModel, LeaseModel, SnapshotModel
from edt_server.store.rows import CatalogueRow, JobRow, Lease
from edt_server.store.schema import VERSION_TABLE
from edt_server.store.searches import SearchWriter


class Writer:
    """The changes a transaction can make. `Store.write()` creates it, and it is useless after the transaction."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.searches = SearchWriter(session)

    def job(self, job_id: str) -> JobRow | None:
        """Return the job as this transaction sees it, None when there is none."""
        model = self._session.get(JobModel, job_id)
        return None if model is None else model.value(JobRow, without="search")

    def add_job(self, row: JobRow) -> None:
        """Add a job. Conflict when the id is taken."""
        if self._session.get(JobModel, row.id) is not None:
            raise Conflict(f"There is a job {row.id} already.", job=row.id)
        fields = {name: getattr(row, name) for name in row.__slots__}
        self._session.add(JobModel(**fields, search=row.spec.search))
        self._session.flush()

    def update_job(self, job_id: str, **changes: Any) -> JobRow:
        """Change fields of a job and return it as it is then. TypeError for no field of `JobRow`, or for `id`."""
        unknown = [name for name in changes if name not in JobRow.__slots__ or name == "id"]
        if unknown:
            raise TypeError(f"update_job() cannot set {', '.join(unknown)}")
        model = self._model(job_id)
        for name, value in changes.items():
            setattr(model, name, value)
        self._session.flush()
        return model.value(JobRow, without="search")

    def delete_job(self, job_id: str) -> None:
        """Delete a job's row. Its events stay: the timeline and the core's replay need every slot change there was."""
        self._session.delete(self._model(job_id))
        self._session.flush()

    def entry(self, entry_id: str) -> CatalogueRow | None:
        """Return the catalogue entry as this transaction sees it, None when there is none."""
        model = self._session.get(CatalogueModel, entry_id)
        return None if model is None else model.value(CatalogueRow)

    def add_entry(self, row: CatalogueRow) -> None:
        """Add a thing to the catalogue. Conflict when its owner has one of that kind and name, or the id is taken."""
        taken = select(CatalogueModel.id).where(
            CatalogueModel.owner == row.owner, CatalogueModel.kind == row.kind, CatalogueModel.name == row.name
        )
        if self._session.scalar(taken) is not None or self._session.get(CatalogueModel, row.id) is not None:
            raise Conflict(f"There is a {row.kind} {row.name} already.", field="name")
        self._session.add(CatalogueModel(**{name: getattr(row, name) for name in row.__slots__}))
        self._session.flush()

    def update_entry(self, entry_id: str, data: dict[str, Any], changed: float) -> CatalogueRow:
        """Replace the data of a catalogue entry and return the new row."""
        model = self._entry(entry_id)
        model.data, model.changed = data, changed
        self._session.flush()
        return model.value(CatalogueRow)

    def delete_entry(self, entry_id: str) -> None:
        """Remove a thing from the catalogue."""
        self._session.delete(self._entry(entry_id))
        self._session.flush()

    def append(
        self,
        kind: str,
        *,
        job: str | None,
        data: dict[str, Any],
        time: float,
        cause: int | None = None,
        text: str = "",
    ) -> Event:
        """Add an event and return it with its number.

        `data` must be JSON (TypeError otherwise). The returned event carries it as a later read will: tuples are lists,
        NaN is null.
        """
        row = {"kind": kind, "job": job, "data": data, "time": time, "cause": cause, "text": text}
        return self.append_all([row])[0]

    def append_all(self, rows: Sequence[Mapping[str, Any]]) -> list[Event]:
        """Add events in order, each with the arguments of `append`, in one statement: a decision may make many."""
        models = [EventModel(**{**row, "data": _as_read(row["data"])}) for row in rows]
        self._session.add_all(models)
        self._session.flush()
        return [model.value(Event) for model in models]

    def put_snapshot(self, seq: int, version: str, data: bytes) -> None:
        """Keep the core as it is after event `seq`, in place of the snapshot there was."""
        # One snapshot is enough: it only saves replay, and the events stay.
        self._session.execute(delete(SnapshotModel))
        self._session.add(SnapshotModel(seq=seq, version=version, data=data, created=clock.time()))
        self._session.flush()

    def lease(self, name: str) -> Lease | None:
        """Return the lease as this transaction sees it, None when it was never taken."""
        model = self._session.get(LeaseModel, name)
        return None if model is None else model.value(Lease)

    def take_lease(
        self,
        name: str,
        holder: ProcessIdentity,
        *,
        now: float,
        expires: float,
        url: str = "",
        dead: int | None = None,
    ) -> Lease | None:
        """Take a free lease and return it. None when another take still holds, even a take by this very process.

        `renew_lease` is the way to keep a lease that is held. `now` and `expires` are seconds since the epoch. `dead`
        is the fencing token of a lease with a holder that is known to be dead, so that it is free before it expires.
        """
        model = self._session.get(LeaseModel, name)
        if model is None:
            model = LeaseModel(name=name, holder=None, expires=0.0, url="", fencing=0)
            self._session.add(model)
        # The fencing token of the dead holder, not only its death: since that verdict another process may have taken
        # the lease (docs/decisions/034).
        elif not model.value(Lease).free(now) and model.fencing != dead:
            return None
        model.holder, model.expires, model.url, model.fencing = holder, expires, url, model.fencing + 1
        self._session.flush()
        return model.value(Lease)

    def renew_lease(self, name: str, fencing: int, *, expires: float) -> bool:
        """Extend the lease taken with `fencing` until `expires`. False when it is no longer held.

        A lease that expired and was not taken again is still held, because no other process can have acted on it.
        """
        model = self._held(name, fencing)
        if model is None:
            return False
        model.expires = expires
        self._session.flush()
        return True

    def release_lease(self, name: str, fencing: int) -> bool:
        """Release the lease taken with `fencing`. False when it was no longer held."""
        model = self._held(name, fencing)
        if model is None:
            return False
        model.holder, model.expires, model.url = None, 0.0, ""
        self._session.flush()
        return True

    def probe(self) -> None:
        """Write something that changes nothing. The commit then shows whether the store is writable."""
        self._session.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = version_num"))

    def _held(self, name: str, fencing: int) -> LeaseModel | None:
        """Return the lease taken with `fencing`, None when it was taken again or released in the meantime."""
        model = self._session.get(LeaseModel, name)
        return None if model is None or model.fencing != fencing or model.holder is None else model

    def _entry(self, entry_id: str) -> CatalogueModel:
        model = self._session.get(CatalogueModel, entry_id)
        if model is None:
            raise NotFound(f"There is no {entry_id} in the catalogue any more.", hint="Somebody deleted it meanwhile.")
        return model

    def _model(self, job_id: str) -> JobModel:
        model = self._session.get(JobModel, job_id)
        if model is None:
            raise NotFound(
                f"There is no job {job_id}.",
                hint="List the jobs there are: client.jobs(), or at a shell: edt list",
                job=job_id,
            )
        return model


def _as_read(data: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(data))
