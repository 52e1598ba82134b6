"""Show a job as an exec: the flat object that WMLA's clients read, of 1.2.x and of 2.x at once. Pure.

Every value is a scalar, because notebooks make a table with a single row from it, and a list of any other length breaks
that table.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.frameworks import framework_named
from edt_sdk.schemas.job import JobSpec, JobState, JobView
from edt_sdk.schemas.registered import WmlaRequest
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.wmla import ids
from edt_server.wmla.frameworks import app_name
from edt_server.wmla.states import EXEC, named


@dataclass(frozen=True, slots=True)
class Described:
    """A job as it was submitted, and as it is now."""

    spec: JobSpec
    view: JobView
    paths: JobPaths

    @property
    def request(self) -> WmlaRequest:
        """Return the part of the submission for WMLA clients only, empty for a job of another client."""
        return self.spec.wmla or WmlaRequest()

    @property
    def app_name(self) -> str:
        """Return the application's name: the client's, else the framework's, else for a native job its own."""
        if self.spec.wmla is None:
            return self.view.name
        return self.request.app_name or app_name(self.view.framework)


def exec_object(job: Described, *, server: str) -> dict[str, Any]:
    """Return the exec. `server` is this server's address, shown where WMLA has its scheduler's."""
    view = job.view
    return {
        "id": view.id,
        "appId": view.id,
        # 1.2.x's notebooks read `submissionId` and `sigId`, 2.x's read `appId`, and nothing shows which of them asks.
        # So the object has the fields of both generations (docs/decisions/021).
        "submissionId": ids.driver_id(view.id),
        "sigId": ids.sig_id(view.instance_group),
        "sigName": view.instance_group,
        # As in WMLA's recordings: the line as it was submitted, its runs of blanks included, with a blank at the end.
        "args": f"{job.request.args.rstrip(' ')} " if job.request.args else " ".join(view.args),
        "creator": view.owner,
        "userName": view.owner,
        "executionUserName": view.owner,
        "modelFileOwnerName": view.owner,
        "state": EXEC[view.state],
        "appName": job.app_name,
        "framework": view.framework,
        # dlicmd shows the type ELASTIC for a true value, and PARALLEL otherwise.
        "elastic": framework_named(view.framework).elastic,
        "numWorker": view.max_workers // view.slots_per_unit,
        "createTime": utc(view.created),
        "workDir": str(job.paths.code_dir(job.spec.code_dir)),
        "nameSpace": "",
        "schedulerUrl": server,
        "masterURL": server,
        # One sentence: why the job waits, or how it ended.
        "message": view.message or (view.reason.text if view.reason is not None else ""),
    }


def utc(moment: float | None) -> str:
    """Return a time in seconds as WMLA writes it, in UTC, "" for none."""
    return "" if moment is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))


# --- lists ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExecQuery:
    """The part of a list that a client asked for: states (None for all), the order, the start and the count."""

    states: tuple[JobState, ...] | None = None
    key: str = ""
    descending: bool = False
    start: int = 0
    limit: int | None = None


def choice(query: Mapping[str, str], names: Mapping[JobState, str] = EXEC) -> ExecQuery:
    """Parse a query: `state=A,B`, `sort_by=id:desc` or `sort=-id`, `start` or `offset`, `limit` or `length`."""
    state = query.get("state", "")
    words = state.replace("|", ",").split(",")
    # Each request has its own spelling: execs take sort_by=id:desc, dlicmd's applications sort=-submit_time, and the
    # SDK sends sort with order, and length where others send limit.
    order = query.get("sort_by") or query.get("sort", "")
    key, _, direction = order.lstrip("-").partition(":")
    return ExecQuery(
        tuple(named(words, names)) if state.strip() else None,
        key.strip(),
        order.startswith("-") or "desc" in (direction.lower(), query.get("order", "").lower()),
        _number(query, "start", "offset") or 0,
        _number(query, "limit", "length"),
    )


def chosen(items: Sequence[dict[str, Any]], wanted: ExecQuery) -> list[dict[str, Any]]:
    """Return the requested items, which are given with the newest first, in the requested order."""
    found = list(items)
    if wanted.key:
        # A stable sort then keeps the newest of equal items first, or last in a rising order.
        found = found if wanted.descending else found[::-1]
        found.sort(key=lambda item: _comparable(item.get(wanted.key)), reverse=wanted.descending)
    end = None if wanted.limit is None else wanted.start + wanted.limit
    return found[wanted.start : end]


def _comparable(value: Any) -> tuple[int, float, str]:
    # Values of several types are sorted by type first, because Python cannot compare a number with a text.
    if isinstance(value, (int, float)):
        return (1, float(value), "")
    return (0, 0.0, "") if value is None else (2, 0.0, str(value))


def _number(query: Mapping[str, str], *names: str) -> int | None:
    for name in names:
        text = query.get(name, "").strip()
        if text:
            if not text.isdecimal() or len(text) > 9:
                raise InvalidRequest(f"{name} is a whole number from 0, not {text!r}.", field=name)
            return int(text)
    return None
