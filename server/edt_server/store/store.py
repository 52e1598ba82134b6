"""Open the store, write in transactions, read jobs and events.

All calls block. The service makes them in one thread. Several threads are safe, and writers wait for each other. Reads
see committed data. The store never decides anything, and leaves a database it cannot interpret exactly as it is.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from sqlalchemy import JSON, ColumnElement, Connection, Engine, Select, func, or_, select, tuple_, type_coerce
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from edt_sdk.schemas.events import Event
from edt_sdk.schemas.job import JobState
from edt_server.store import schema
from edt_server.store.engine import make_engine
from edt_server.store.errors import damaged, explain, passing
from edt_server.store.models import CatalogueModel, EventModel, JobModel, SnapshotModel
from edt_server.store.postgres import WRITING, check_encoding
from edt_server.store.room import StoreRoom
from edt_server.store.rows import CatalogueRow, JobRow, Lease, Snapshot, Use
from edt_server.store.searches import SearchReader
from edt_server.store.writer import Writer

_LEAST_WINDOW = 4096
# Columns in place of entities, whose bookkeeping took half of the time of a list of jobs.
_JOB = [JobModel.__table__.columns[field.name] for field in fields(JobRow)]


class _Turn:
    """The lock that all users of an open store share for writing, and the thread that holds it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.thread: int | None = None


class Store:
    """An open job store. `Store.open` makes it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._writing = engine.execution_options(**{WRITING: True})
        self._turn = _Turn()
        self._check: Callable[[Writer], None] | None = None
        self._room = StoreRoom(engine) if engine.dialect.name == "sqlite" else None
        self.searches = SearchReader(self._reading)
        self._keep_room()

    @classmethod
    def open(cls, url: str, *, backups: Path | None = None) -> Store:
        """Open the store at a SQLAlchemy URL, creating it or migrating it to the newest revision.

        Before a migration an SQLite file is copied next to itself. A PostgreSQL database is dumped into the folder
        `backups` where one is given and pg_dump is installed. After a StoreError the store is as it was.
        """
        engine = make_engine(url)
        try:
            with engine.connect() as connection:
                # Reads a whole SQLite file: other servers must be able to write meanwhile.
                _check(connection)
            with engine.execution_options(**{WRITING: True}).begin() as connection:
                schema.migrate(connection, backups)
        except BaseException as wrong:
            engine.dispose()
            if isinstance(wrong, SQLAlchemyError) and passing(wrong):
                raise explain(engine, wrong) from wrong
            raise
        return cls(engine)

    @contextmanager
    def write(self) -> Iterator[Writer]:
        """Run one transaction: committed at the end of the block, rolled back when the block raises.

        Raises:
            StoreUnavailable: the database cannot be used now. If the error came during the commit, the transaction may
                have been committed: look for one of its events before a retry.
            StoreError: it is damaged. RuntimeError: inside another `write()` of the same thread. Reads there would not
                see what it wrote either.
        """
        me = threading.get_ident()
        # The lock is not reentrant, so this thread would wait for itself.
        if self._turn.thread == me:
            raise RuntimeError("Store.write() inside Store.write(): use the writer of the outer block")
        with self._turn.lock:
            self._turn.thread = me
            try:
                with self._told(), Session(self._writing, expire_on_commit=False) as session, session.begin():
                    writer = Writer(session)
                    if self._check is not None:
                        # Inside the transaction: the lease could change hands between a check before it and the commit
                        # (fencing).
                        self._check(writer)
                    yield writer
                self._keep_room()
            finally:
                self._turn.thread = None

    def guarded(self, check: Callable[[Writer], None]) -> Store:
        """Return the same store, where each transaction starts with `check` and is rolled back when `check` raises."""
        made = copy.copy(self)
        made._check = check
        return made

    def job(self, job_id: str) -> JobRow | None:
        """Return the job with this id, None when there is none."""
        with self._reading() as session:
            return Writer(session).job(job_id)

    def jobs(
        self,
        *,
        owner: str | None = None,
        states: Iterable[JobState] | None = None,
        tag: str | None = None,
        project: str | None = None,
        experiment: str | None = None,
        search: str | None = None,
        before: tuple[float, str] | None = None,
        limit: int | None = None,
    ) -> list[JobRow]:
        """Return at most `limit` jobs, newest first.

        Optionally only jobs of an owner, in some states, with a tag, or in a project or an experiment of that name.
        With a `search` only its trials, with "" only jobs that are no trials. `before` is (time of creation, id) of a
        job, for paging: only jobs after it in this order.
        """
        query = select(*_JOB).order_by(JobModel.created.desc(), JobModel.id.desc()).limit(limit)
        if before is not None:
            # By key, not by offset: a page is the same when jobs were added or removed in the meantime.
            query = query.where(tuple_(JobModel.created, JobModel.id) < before)
        if owner is not None:
            query = query.where(JobModel.owner == owner)
        if search is not None:
            query = query.where(JobModel.search == search)
        if states is not None:
            query = query.where(JobModel.state.in_(list(states)))
        for label, wanted in (("project", project), ("experiment", experiment)):
            if wanted is not None:
                query = query.where(_setting(label) == wanted)
        if tag is not None:
            tags = type_coerce(JobModel.settings, JSON)["tags"]
            each = func.json_each if self._engine.dialect.name == "sqlite" else func.json_array_elements_text
            values = each(tags).table_valued("value")
            query = query.where(select(values.c.value).where(values.c.value == tag).exists())
        with self._reading() as session:
            return [JobRow(*row) for row in session.execute(query)]

    def labels(self, owner: str) -> list[tuple[str, str, int, float]]:
        """Return the projects and experiments of an owner's jobs, by name, without reading whole rows.

        Each with the number of its jobs, and when one of these last changed its state.
        """
        named = (
            select(
                _setting("project").label("project"), _setting("experiment").label("experiment"), JobModel.state_since
            )
            .where(JobModel.owner == owner, _setting("project") != "")
            .subquery()
        )
        # From a subquery, because the same expression twice has two parameters, and PostgreSQL would take it for two.
        columns = (named.c.project, named.c.experiment, func.count(), func.max(named.c.state_since))
        query = select(*columns).group_by(named.c.project, named.c.experiment)
        with self._reading() as session:
            return sorted((row[0], row[1], row[2], row[3]) for row in session.execute(query))

    def submitted(self, owner: str, search: str) -> dict[str, float]:
        """Return when each job of an owner's search was submitted, by its id, without reading whole rows."""
        query = select(JobModel.id, JobModel.created).where(JobModel.owner == owner, JobModel.search == search)
        with self._reading() as session:
            return {row[0]: row[1] for row in session.execute(query)}

    def names(self) -> dict[str, str]:
        """Return the name of every job by its id, and "the search" with its name, without reading whole rows."""
        with self._reading() as session:
            # The column of the specification is JSON with a type of ours around it.
            name = type_coerce(JobModel.spec, JSON)["name"].as_string()
            names = {row[0]: row[1] for row in session.execute(select(JobModel.id, name))}
        return names | self.searches.names()

    def entries(self, owner: str | None, kind: str | None = None) -> list[CatalogueRow]:
        """Return the catalogue entries of an owner, or of all, sorted by name, optionally only those of this kind."""
        query = select(CatalogueModel)
        if owner is not None:
            query = query.where(CatalogueModel.owner == owner)
        if kind is not None:
            query = query.where(CatalogueModel.kind == kind)
        with self._reading() as session:
            found = [model.value(CatalogueRow) for model in session.scalars(query)]
        # By code point, as no database's collation is another's.
        return sorted(found, key=lambda row: (row.name, row.kind))

    def uses(self, owner: str) -> list[Use]:
        """Return the owner's jobs that use a catalogue entry, newest first, without reading whole rows."""
        registered = type_coerce(JobModel.spec, JSON)
        model = registered[("registered", "model")].as_string()
        dataset = registered[("registered", "dataset")].as_string()
        validated = registered[("registered", "validates", "training")].as_string()
        query = (
            select(JobModel.id, JobModel.state, model, dataset, validated)
            .where(JobModel.owner == owner, or_(model != "", dataset != ""))
            .order_by(JobModel.created.desc(), JobModel.id.desc())
        )
        with self._reading() as session:
            return [
                Use(job, state.final, model or "", dataset or "", bool(validated))
                for job, state, model, dataset, validated in session.execute(query)
            ]

    def events(
        self,
        *,
        job: str | None = None,
        jobs: Iterable[str] | None = None,
        kinds: Iterable[str] | None = None,
        after: int = 0,
        limit: int | None = None,
    ) -> list[Event]:
        """Return events with seq > `after`, oldest first. The other arguments, where given, restrict them further.

        With `limit` the time grows with the size of the answer only, however many events lie before and after it.
        """
        query = select(EventModel).order_by(EventModel.seq)
        if job is not None:
            query = query.where(EventModel.job == job)
        if jobs is not None:
            query = query.where(EventModel.job.in_(list(jobs)))
        if kinds is not None:
            query = query.where(EventModel.kind.in_(list(kinds)))
        with self._reading() as session:
            if limit is not None and job is None and (kinds is not None or jobs is not None):
                return _page(session, query, after, limit)
            found = session.scalars(query.where(EventModel.seq > after).limit(limit))
            return [model.value(Event) for model in found]

    def newest(self) -> int:
        """Return the number of the newest event, 0 when there is none."""
        with self._reading() as session:
            return session.scalar(select(func.max(EventModel.seq))) or 0

    def snapshot(self) -> Snapshot | None:
        """Return the newest snapshot of the core, None when there is none."""
        with self._reading() as session:
            model = session.scalar(select(SnapshotModel).order_by(SnapshotModel.seq.desc()).limit(1))
            return None if model is None else model.value(Snapshot)

    def lease(self, name: str) -> Lease | None:
        """Return the lease with that name, None when it was never taken. Its `expires` shows whether it still holds."""
        with self._reading() as session:
            return Writer(session).lease(name)

    @contextmanager
    def _reading(self) -> Iterator[Session]:
        with self._told(), Session(self._engine) as session:
            yield session

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Raise errors of the database as StoreErrors, with advice for people."""
        try:
            yield
        except SQLAlchemyError as wrong:
            if not passing(wrong):
                raise
            raise explain(self._engine, wrong) from wrong

    def close(self) -> None:
        """Close all connections. The store must not be used afterwards."""
        self._engine.dispose()

    def _keep_room(self) -> None:
        if self._room is not None:
            self._room.keep()


def _setting(name: str) -> ColumnElement[str]:
    """Return the SQL of a text among the settings of a job, NULL in the row of a release without that setting."""
    found: ColumnElement[str] = type_coerce(JobModel.settings, JSON)[name].as_string()
    return found


def _page(session: Session, query: Select[Any], after: int, limit: int) -> list[Event]:
    """Return the first `limit` events after `after`, read in growing windows of numbers.

    An index by kind has no order over several kinds: in one query a database would sort all events for every page.
    """
    newest = session.scalar(select(func.max(EventModel.seq))) or 0
    width = max(4 * limit, _LEAST_WINDOW)
    found: list[Event] = []
    while after < newest and len(found) < limit:
        window = query.where(EventModel.seq > after, EventModel.seq <= after + width).limit(limit - len(found))
        found += [model.value(Event) for model in session.scalars(window)]
        after, width = after + width, 2 * width
    return found


def _check(connection: Connection) -> None:
    """Refuse a damaged SQLite file (some 100 MB a second), or a database that cannot hold every text."""
    if connection.dialect.name != "sqlite":
        check_encoding(connection)
        return
    found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
    if found != "ok":
        raise damaged(str(connection.engine.url.database), str(found))
