"""The tab of the log: everybody's lines or one worker's, following, with a search."""

from __future__ import annotations

from typing import Any

import msgspec

from edt_sdk.display.log_line import LogLine
from edt_sdk.display.log_lines import LogLines, log_html, log_words
from edt_sdk.http.connection import Params
from edt_sdk.monitor.kernel import toolkit
from edt_sdk.monitor.page import Page
from edt_sdk.schemas.job import JobView

# Lines asked for at first, and in one answer afterwards.
_FIRST = 500
_PAGE = 2000
_PAGES = 5
_STILL = 200


class LogsPage(Page):
    """Lines, newest at the end."""

    title = "Logs"
    pause = 0.0

    def build(self) -> Any:
        """Whose, follow and search above the lines."""
        widgets = toolkit()

        self._log = LogLines()
        self._cursor: str | None = None
        self._earlier = False
        self._asked: tuple[str, int | None] = ("all", None)
        self._whose = widgets.Dropdown(
            options=_choices([]), value=("all", None), description="From", layout=widgets.Layout(width="220px"),
            style={"description_width": "initial"},
        )  # fmt: skip
        self._follow = widgets.Checkbox(
            value=True, description="Follow", indent=False, tooltip="Show new lines as they are written",
            layout=widgets.Layout(width="90px"),
        )  # fmt: skip
        self._search = widgets.Text(
            placeholder="Search these lines", continuous_update=True, layout=widgets.Layout(width="240px")
        )
        self._lines = widgets.HTML("Fetching the log …")
        self._said = widgets.HTML()
        # Upside down, so that a browser keeps it at its end as lines come, and where somebody has scrolled to.
        window = widgets.Box(
            [self._lines],
            layout=widgets.Layout(
                display="flex", flex_flow="column-reverse", height="340px", overflow="auto", border="1px solid #8a8a8a"
            ),
        )
        self._whose.observe(lambda _: self.desk.ask(self.again), "value")
        self._follow.observe(lambda _: self.desk.ask(self.again), "value")
        self._search.observe(lambda _: self.desk.ask(self._show), "value")
        row = [self._whose, self._follow, self._search]
        return widgets.VBox([widgets.HBox(row, layout=widgets.Layout(flex_flow="row wrap")), window, self._said])

    def look(self, view: JobView) -> None:
        """Fetch what is new, unless somebody wants to read what is there."""
        if self._whose.value != self._asked:
            self._asked, self._cursor, self._log = self._whose.value, None, LogLines()
        elif not self._follow.value and self._cursor is not None:
            return
        if self._more() or not len(self._log):
            self._show()

    def still(self, view: JobView) -> str:
        """The last lines of all."""
        log = LogLines(_STILL)
        log.add(self._page(("all", None), None, _STILL)[0])
        return log_html(log.matching(""), shown=_STILL) if len(log) else ""

    def _more(self) -> bool:
        """Take new lines; True when there were any."""
        before = len(self._log), self._log.dropped
        added = 0
        for _ in range(_PAGES):
            first = self._cursor is None
            lines, self._cursor = self._page(self._asked, self._cursor, _FIRST)
            added += self._log.add(lines)
            self._earlier = len(lines) >= _FIRST if first else self._earlier
            if first or len(lines) < _PAGE:
                break
        return added > 0 or before == (0, False)

    def _page(self, whose: tuple[str, int | None], after: str | None, last: int) -> tuple[list[LogLine], str]:
        stream, worker = whose
        params: Params = {"stream": stream, "worker": worker}
        params |= {"tail": last} if after is None else {"after": after, "limit": _PAGE}
        page = self.desk.connection.json("GET", f"{self.desk.path}/logs", params=params)
        return msgspec.convert(page["lines"], list[LogLine]), page["next"]

    def _show(self) -> None:
        search = self._search.value.strip()
        found = self._log.matching(search)
        self._lines.value = log_html(found, search=search) if found else ""
        self._said.value = log_words(self._log, len(found), search, earlier=self._earlier)
        known = {value[1] for _, value in self._whose.options}
        if self._asked == ("all", None) and not known.issuperset(self._log.workers):
            self._whose.options = _choices(sorted(known.union(self._log.workers) - {None}))


def _choices(workers: list[Any]) -> list[tuple[str, tuple[str, int | None]]]:
    named: list[tuple[str, tuple[str, int | None]]] = [
        ("everybody", ("all", None)),
        ("driver", ("driver", None)),
        ("driver's log (ELog)", ("elog", None)),
    ]
    return named + [(f"worker {number}", ("worker", number)) for number in workers]
