"""One transaction: everything written through a `Writer` is committed together, or not at all."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy.orm import Session

from edt_sdk.schemas.errors import Conflict, NotFound
from edt_sdk.schemas.events import Event
from edt_server.store.models import JOB_FIELDS, EventModel, JobModel
from edt_server.store.rows import JobRow


class Writer:
    """What may be done in a transaction; made by `Store.write()` and useless after it."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def job(self, job_id: str) -> JobRow | None:
        """The job as this transaction sees it, None when there is none."""
        model = self._session.get(JobModel, job_id)
        return None if model is None else model.to_row()

    def add_job(self, row: JobRow) -> None:
        """Add a job. Conflict when the id is taken."""
        if self._session.get(JobModel, row.id) is not None:
            raise Conflict(f"There is a job {row.id} already.", job=row.id)
        self._session.add(JobModel(**{name: getattr(row, name) for name in JOB_FIELDS}))
        self._session.flush()

    def update_job(self, job_id: str, **changes: Any) -> JobRow:
        """Change fields of a job and return it as it is then.

        Raises:
            TypeError: a name that is no field of `JobRow`, or `id`, which never changes.
            NotFound: no such job.
        """
        unknown = [name for name in changes if name not in JOB_FIELDS or name == "id"]
        if unknown:
            raise TypeError(f"update_job() cannot set {', '.join(unknown)}")
        model = self._model(job_id)
        for name, value in changes.items():
            setattr(model, name, value)
        self._session.flush()
        return model.to_row()

    def delete_job(self, job_id: str) -> None:
        """Delete a job's row. NotFound when there is none.

        Its events stay, with its id: the timeline and the core's replay need every slot change there was.
        """
        self._session.delete(self._model(job_id))
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

        `data` must be JSON (TypeError otherwise); the event returned carries it as it will be read: tuples are lists,
        NaN is null.
        """
        as_read = msgspec.json.decode(msgspec.json.encode(data))
        model = EventModel(time=time, job=job, kind=kind, data=as_read, cause=cause, text=text)
        self._session.add(model)
        self._session.flush()
        return model.to_event()

    def _model(self, job_id: str) -> JobModel:
        model = self._session.get(JobModel, job_id)
        if model is None:
            raise NotFound(f"There is no job {job_id}.", hint="`edt list` shows the jobs there are.", job=job_id)
        return model
