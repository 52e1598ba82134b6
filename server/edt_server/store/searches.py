"""Keep searches: their trials, what these reported, and the log of decisions. Reached by `store.searches`.

A report or another event of a search, and everything that its core decided on it, is one transaction (`take`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from msgspec.structs import asdict
from sqlalchemy import delete, insert, select, tuple_, update
from sqlalchemy.orm import Session

from edt_sdk.schemas.errors import Conflict, NotFound
from edt_sdk.schemas.search.views import Decision, SearchState, TrialReport, TrialState
from edt_server.store.models import Base, SearchDecisionModel, SearchModel, TrialModel, TrialReportModel
from edt_server.store.search_rows import SearchRow, TrialRow, named

_CHANGES = frozenset(SearchRow.__struct_fields__) - {"id", "owner", "created"}


class SearchReader:
    """What can be read of searches. Each call sees what is committed."""

    def __init__(self, reading: Callable[[], AbstractContextManager[Session]]) -> None:
        self._reading = reading

    def search(self, search_id: str) -> SearchRow | None:
        """Return the search with this id, None when there is none."""
        with self._reading() as session:
            return SearchWriter(session).search(search_id)

    def names(self) -> dict[str, str]:
        """Return how a sentence names every search, by id."""
        with self._reading() as session:
            rows = session.execute(select(SearchModel.id, SearchModel.name))
            return {row[0]: named(row[1]) for row in rows}

    def searches(
        self,
        *,
        owner: str | None = None,
        name: str | None = None,
        states: Iterable[SearchState] | None = None,
        before: tuple[float, str] | None = None,
        since: float | None = None,
        limit: int | None = None,
    ) -> list[SearchRow]:
        """Return at most `limit` searches, newest first. The arguments, where given, restrict them as in `jobs`.

        `since` leaves out those that had ended by then.
        """
        query = select(SearchModel).order_by(SearchModel.created.desc(), SearchModel.id.desc()).limit(limit)
        if owner is not None:
            query = query.where(SearchModel.owner == owner)
        if name is not None:
            query = query.where(SearchModel.name == name)
        if states is not None:
            query = query.where(SearchModel.state.in_(list(states)))
        if before is not None:
            query = query.where(tuple_(SearchModel.created, SearchModel.id) < before)
        if since is not None:
            query = query.where(SearchModel.ended.is_(None) | (SearchModel.ended > since))
        with self._reading() as session:
            return [model.value(SearchRow) for model in session.scalars(query)]

    def trials(
        self,
        search_id: str,
        *,
        after: int = -1,
        states: Iterable[TrialState] | None = None,
        limit: int | None = None,
    ) -> list[TrialRow]:
        """Return at most `limit` trials with a number above `after`, by number, optionally only in some states."""
        model = TrialModel
        query = select(model).where(model.search == search_id, model.number > after).order_by(model.number).limit(limit)
        if states is not None:
            query = query.where(model.state.in_(list(states)))
        with self._reading() as session:
            return [Base.value(row, TrialRow) for row in session.scalars(query)]

    def reports(self, search_id: str, *, since: int = 0, limit: int | None = None) -> list[TrialReport]:
        """Return reports that arrived after number `since`, in the order of their arrival."""
        model = TrialReportModel
        query = select(model).where(model.search == search_id, model.seq > since).order_by(model.seq).limit(limit)
        with self._reading() as session:
            return [row.value(TrialReport, without="search") for row in session.scalars(query)]

    def decisions(self, search_id: str, *, after: int = 0, limit: int | None = None) -> list[Decision]:
        """Return entries of the log with an index above `after`, in order."""
        model = SearchDecisionModel
        query = select(model).where(model.search == search_id, model.index > after).order_by(model.index).limit(limit)
        with self._reading() as session:
            return [row.value(Decision, without="search") for row in session.scalars(query)]


class SearchWriter:
    """The changes of searches in one transaction. It belongs to a `Writer`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def search(self, search_id: str) -> SearchRow | None:
        """Return the search as this transaction sees it, None when there is none."""
        model = self._session.get(SearchModel, search_id)
        return None if model is None else model.value(SearchRow)

    def add_search(self, row: SearchRow) -> None:
        """Add a search. Conflict when its owner has one of that name, or the id is taken."""
        taken = select(SearchModel.id).where(SearchModel.owner == row.owner, SearchModel.name == row.name)
        if self._session.scalar(taken) is not None or self._session.get(SearchModel, row.id) is not None:
            raise Conflict(f"There is a search {row.name} already.", hint="Give it another name.", field="name")
        self._session.add(SearchModel(**asdict(row)))
        self._session.flush()

    def update_search(self, search_id: str, **changes: Any) -> SearchRow:
        """Change fields of a search and return it as it is then. TypeError for a field that cannot change."""
        if unknown := sorted(changes.keys() - _CHANGES):
            raise TypeError(f"update_search() cannot set {', '.join(unknown)}")
        model = self._model(search_id)
        for name, value in changes.items():
            setattr(model, name, value)
        self._session.flush()
        return model.value(SearchRow)

    def delete_search(self, search_id: str) -> None:
        """Delete a search with its trials, reports and log. Their jobs stay."""
        self._session.delete(self._model(search_id))
        for model in (TrialModel, TrialReportModel, SearchDecisionModel):
            self._session.execute(delete(model).where(model.search == search_id))
        self._session.flush()

    def take(
        self,
        search_id: str,
        *,
        reports: Sequence[TrialReport] = (),
        decisions: Sequence[Decision] = (),
        trials: Sequence[TrialRow] = (),
    ) -> None:
        """Write what events of a search led to: its reports, the entries of the log, trials that are new or changed.

        Of two reports of a trial after equally many epochs the first counts, and the second is dropped.
        """
        for report in reports:
            key = (search_id, report.trial, report.budget)
            if self._session.get(TrialReportModel, key) is None:
                self._session.add(TrialReportModel(search=search_id, **asdict(report)))
        if decisions:
            rows = [{"search": search_id, **asdict(each)} for each in decisions]
            self._session.execute(insert(SearchDecisionModel), rows)
        if trials:
            numbers = [row.number for row in trials]
            query = select(TrialModel.number).where(TrialModel.search == search_id, TrialModel.number.in_(numbers))
            known = set(self._session.scalars(query))
            # One statement each: a comparison may change thousands of trials.
            for statement, old in ((insert(TrialModel), False), (update(TrialModel), True)):
                if found := [asdict(row) for row in trials if (row.number in known) is old]:
                    self._session.execute(statement, found)
        self._session.flush()

    def _model(self, search_id: str) -> SearchModel:
        model = self._session.get(SearchModel, search_id)
        if model is None:
            raise NotFound(f"There is no search {search_id}.", hint="client.searches() lists them.", search=search_id)
        return model
