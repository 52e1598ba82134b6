"""The table of WMLA's routes: `python -m tests.conformance.table` prints what `docs/wmla-routes.md` has to be.

Each row is a route and verb that a client calls; what answers is looked up in the server's own routes, and who calls it
in the suite's calls. No row is written by hand.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

from tornado.web import RequestHandler

from edt_jupyter.http.base import pattern
from edt_jupyter.wmla.routes import FAMILIES, ROUTES, WmlaUnknownHandler, handlers
from tests.conformance.calls import CALLS, WAYS, sdk_calls

VERBS = ("GET", "POST", "PUT", "PATCH", "DELETE")
DONE, LATER, MISSING = "works", "501", "missing"


@dataclass
class Row:
    """One route and verb."""

    path: str
    verb: str
    what: str = DONE
    clients: dict[str, None] = field(default_factory=dict)


def routes() -> list[tuple[str, str]]:
    """Every route and verb that this server has work for."""
    return [
        (path, verb)
        for path, handler in ROUTES
        for verb in VERBS
        if getattr(handler, verb.lower()) is not getattr(RequestHandler, verb.lower())
    ]


def answers(path: str, verb: str) -> tuple[str, str]:
    """What a call meets: the route's template (its own path where there is none), and works, 501 or missing."""
    plain = re.sub(r"\{n\}", "1", path)
    for template, _ in ROUTES:
        if re.fullmatch(pattern(template), plain):
            return template, DONE if (template, verb) in routes() else MISSING
    for known, handler in FAMILIES:
        if re.fullmatch(known, plain):
            return path.rstrip("/"), MISSING if handler is WmlaUnknownHandler else LATER
    return path.rstrip("/"), MISSING


def rows() -> list[Row]:
    """All rows, those that work first, in the order of the server's routes."""
    found: dict[tuple[str, str], Row] = {(path, verb): Row(path, verb) for path, verb in routes()}
    callers = [(call.client, call.verb, call.path) for call in CALLS]
    callers += [(call.client, call.verb, call.path) for call in sdk_calls()]
    for client, verb, path in callers:
        template, what = answers(path, verb)
        found.setdefault((template, verb), Row(template, verb, what)).clients[client] = None
    rank = [DONE, LATER, MISSING]
    order = {path: number for number, (path, _) in enumerate(ROUTES)}
    return sorted(
        found.values(), key=lambda row: (rank.index(row.what), order.get(row.path, len(order)), row.path, row.verb)
    )


def page() -> str:
    """The page."""
    counts: dict[str, int] = defaultdict(int)
    lines: list[str] = []
    titles = {DONE: "Routes that do their work", LATER: "Routes that answer 501", MISSING: "Routes that are missing"}
    previous = ""
    for row in rows():
        counts[row.what] += 1
        if row.what != previous:
            previous = row.what
            ways = "".join(f" {way} |" for way in WAYS) if row.what == DONE else ""
            lines += ["", f"## {titles[row.what]}", "", f"| Route | Verb |{ways} Clients |"]
            lines += [f"|---|---|{'---|' * (len(WAYS) if ways else 0)}---|"]
        marks = " ✓ |" * len(WAYS) if row.what == DONE else ""
        lines.append(f"| `{row.path}` | {row.verb} |{marks} {', '.join(row.clients)} |")
    head = [
        "# WMLA's routes",
        "",
        "Made by `python -m tests.conformance.table > docs/wmla-routes.md`. The conformance suite makes every call,",
        "the working ones in each way to log on, over http and over https, and compares this page. What is meant for",
        "whom is in the [migration guide](wmla.md).",
        "",
        f"{counts[DONE]} routes and verbs do their work; {counts[LATER]} (streams and predictions) say 501;",
        f"{counts[MISSING]} are missing, and answer 404.",
    ]
    return "\n".join([*head, *lines]) + "\n"


if __name__ == "__main__":
    assert handlers()
    print(page(), end="")
