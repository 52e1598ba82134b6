"""Searches for hyper-parameters: start, list, show, change, pause, resume, stop and delete; their trials and logs."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TypeVar

from edt_jupyter.api.jobs import AskingHandler
from edt_jupyter.http.base import EdtHandler
from edt_jupyter.http.receiving import ReceivingHandler
from edt_jupyter.http.upload import Upload
from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.job import parse_change
from edt_sdk.schemas.search.spec import NewPoints, OnceMore, SearchPatch, parse_search
from edt_sdk.schemas.search.views import SearchState, TrialState

_PAGE, _MOST = 100, 1000  # searches
_ROWS, _MOST_ROWS = 500, 10_000  # trials, reports, entries of a log
State = TypeVar("State", bound=StrEnum)


class _Handler(EdtHandler):
    def chosen(self, states: type[State]) -> list[State] | None:
        """Return the `state` of the query, None where none is given. InvalidRequest for one that does not exist."""
        state = self.get_query_argument("state", "").upper()
        if state and state not in states.__members__:
            raise InvalidRequest(f"{state} is no state.", hint=f"The states are {', '.join(states)}.", field="state")
        return [states(state)] if state else None

    def page(self) -> int:
        """Return the `limit` of the query."""
        return self.number("limit", _ROWS, low=1, high=_MOST_ROWS)


class _SearchesHandler(ReceivingHandler[Upload], _Handler, path="/searches", resource="edt:searches"):
    open_sink = Upload

    async def received(self, sink: Upload) -> None:
        """Start a search."""
        spec, package = await asyncio.to_thread(sink.finish)
        view = await self.service.searches.start(self.user, parse_search(spec), package)
        self.set_header("Location", f"{self.request.path.rstrip('/')}/{view.id}")
        self.reply(view, 201)

    async def get(self) -> None:
        """List the user's searches, newest first, or the one with a name."""
        found = await self.service.searches.searches(
            self.user,
            states=self.chosen(SearchState),
            name=self.get_query_argument("name", None),
            since=self.real("since"),
            limit=self.number("limit", _PAGE, low=1, high=_MOST),
        )
        self.reply({"searches": found})


class _PreviewHandler(EdtHandler, path="/searches/preview", resource="edt:searches"):
    # A preview changes nothing, so the right to read is enough for this POST.
    auth_actions = {"POST": "read"}

    async def post(self) -> None:
        """Return how much the search would train, and when it would begin. Nothing is started."""
        self.reply(await self.service.searches.preview(self.user, parse_search(self.request.body)))


class _SearchHandler(EdtHandler, path="/searches/{id}", resource="edt:searches"):
    async def get(self, search: str) -> None:
        """Return the search as it is now, without its trials."""
        self.reply(await self.service.searches.search(self.user, search))

    async def patch(self, search: str) -> None:
        """Change settings of the search."""
        patch = parse_change(self.request.body, SearchPatch).check()
        self.reply(await self.service.searches.change_settings(self.user, search, patch))

    async def delete(self, search: str) -> None:
        """Delete an ended search. Its jobs stay, but for `jobs=1`."""
        await self.service.searches.delete(self.user, search, jobs=self.flag("jobs"))
        self.set_status(204)
        self.finish()


class _PauseHandler(EdtHandler, path="/searches/{id}/pause", resource="edt:searches"):
    async def post(self, search: str) -> None:
        """Start nothing new."""
        self.reply(await self.service.searches.pause(self.user, search), 202)


class _ResumeHandler(EdtHandler, path="/searches/{id}/resume", resource="edt:searches"):
    async def post(self, search: str) -> None:
        """Go on with a search that is paused or stopped."""
        self.reply(await self.service.searches.resume(self.user, search), 202)


class _AgainHandler(EdtHandler, path="/searches/{id}/again", resource="edt:searches"):
    async def post(self, search: str) -> None:
        """Start the search once more, under another name."""
        wanted = parse_change(self.request.body or b"{}", OnceMore)
        view = await self.service.searches.again(self.user, search, name=wanted.name, seed=wanted.seed)
        self.reply(view, 201)


class _ReplayHandler(EdtHandler, path="/searches/{id}/replay", resource="edt:searches"):
    async def get(self, search: str) -> None:
        """Decide everything again from the reports, and return the first difference to the log."""
        self.reply({"difference": await self.service.searches.replay(self.user, search)})


class _WhatIfHandler(AskingHandler, path="/searches/{id}/what-if", resource="edt:searches"):
    async def get(self, search: str) -> None:
        """Return the slots that each job would hold with other settings of the search's jobs. Nothing is changed."""
        self.reply(await self.service.searches.what_if(self.user, search, self.asked()))


class _StopHandler(EdtHandler, path="/searches/{id}/stop", resource="edt:searches"):
    async def post(self, search: str) -> None:
        """Stop the search and the trials that train."""
        self.reply(await self.service.searches.stop_search(self.user, search), 202)


class _TrialsHandler(_Handler, path="/searches/{id}/trials", resource="edt:searches"):
    async def get(self, search: str) -> None:
        """Return trials by number, those above `after`, or with `sort=value` the best first, without `skip` of them."""
        searches, states, limit = self.service.searches, self.chosen(TrialState), self.page()
        sort = self.get_query_argument("sort", "number")
        if sort == "value":
            skip = self.number("skip", 0, low=0)
            numbers = self._numbers()
            trials = await searches.ranked(self.user, search, skip=skip, states=states, numbers=numbers, limit=limit)
        elif sort == "number":
            after = self.number("after", -1, low=-1)
            trials = await searches.trials(self.user, search, after=after, states=states, limit=limit)
        else:
            raise InvalidRequest(f"sort is number or value, not {sort!r:.60}.", field="sort")
        self.reply({"trials": trials})

    def _numbers(self) -> set[int] | None:
        text = self.get_query_argument("numbers", "")
        try:
            return {int(number) for number in text.split(",")} if text else None
        except ValueError:
            raise InvalidRequest(f"numbers is such as 3,17,4, not {text!r:.60}.", field="numbers") from None

    async def post(self, search: str) -> None:
        """Try these values next."""
        new = parse_change(self.request.body, NewPoints)
        self.reply(await self.service.searches.add(self.user, search, new.points), 202)


class _ReportsHandler(_Handler, path="/searches/{id}/reports", resource="edt:searches"):
    async def get(self, search: str) -> None:
        """Return reports in the order of their arrival, those after number `since`."""
        found = await self.service.searches.reports(self.user, search, since=self.number("since", 0), limit=self.page())
        self.reply({"reports": found})


class _DecisionsHandler(_Handler, path="/searches/{id}/decisions", resource="edt:searches"):
    async def get(self, search: str) -> None:
        """Return the log of the search, the entries with an index above `after`."""
        found = await self.service.searches.decisions(
            self.user, search, after=self.number("after", 0), limit=self.page()
        )
        self.reply({"decisions": found})
