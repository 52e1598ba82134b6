"""Pictures of a job and of the machine as SVG, drawn here so that every surface shows the same.

`?theme=` auto, light or dark. `?width=` in pixels. `?zone=` is the time zone of its clock times, a name such as
Europe/Berlin or an offset such as +0200. With its ETag a client avoids downloading an unchanged picture again.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from edt_jupyter.http.base import EdtHandler
from edt_sdk.pictures.comparison import MOST_JOBS
from edt_sdk.pictures.curves import AXES
from edt_sdk.pictures.history import AXES as HISTORY_AXES
from edt_sdk.pictures.parts.look import NARROWEST, THEMES, WIDEST, Look
from edt_sdk.schemas.errors import InvalidRequest, NotFound

JOB_PICTURES = ("allocation", "loss", "efficiency", "spark")
SEARCH_PICTURES = ("history", "parallel", "rungs", "slots")
MACHINE_PICTURES = ("timeline", "slots", "compare", "shares")


class PictureHandler(EdtHandler):
    """Base of the handlers for pictures, with the arguments that all of them take."""

    def look(self, width: int = 720) -> Look:
        """Return theme, width and zone. InvalidRequest for an unknown value."""
        theme = self.one_of("theme", THEMES)
        return Look(theme, self.number("width", width, low=NARROWEST, high=WIDEST), self._zone())

    def one_of(self, name: str, choices: tuple[str, ...]) -> str:
        """Return one of these words, the first by default."""
        word = self.get_query_argument(name, "") or choices[0]
        if word not in choices:
            raise InvalidRequest(f"{name} is one of {', '.join(choices)}, not {word!r}.", field=name)
        return word

    def curve(self) -> dict[str, Any]:
        """Return how losses are drawn: over which axis, how smooth, on which scale."""
        log = self.one_of("y", ("linear", "log")) == "log"
        return {"axis": self.one_of("x", AXES), "smooth": self.real("smooth", 0.0, 1.0) or 0.0, "log": log}

    def show(self, svg: str) -> None:
        """Answer with a picture, or with 304 where the client has it."""
        # Not JSON: APIHandler would set that type, and a browser would not show the picture.
        # The browser may cache the picture, and asks with its ETag whether it is still the same.
        self.set_header("Cache-Control", "no-cache")
        self.finish(svg, set_content_type="image/svg+xml; charset=utf-8")

    def _zone(self) -> tzinfo:
        text = self.get_query_argument("zone", "")
        if not text:
            return datetime.now().astimezone().tzinfo or UTC
        try:
            if text[:1] in "+-" and len(text.replace(":", "")) == 5:
                digits = text.replace(":", "")
                ahead = timedelta(hours=int(digits[1:3]), minutes=int(digits[3:]))
                return timezone(-ahead if text.startswith("-") else ahead)
            return ZoneInfo(text)
        # `ZoneInfo` raises OSError for a folder of zones, such as Europe alone.
        except (ValueError, ZoneInfoNotFoundError, OSError):
            raise InvalidRequest(
                f"{text!r} is no time zone.", hint="Such as Europe/Berlin, UTC or +0200.", field="zone"
            ) from None

    def stretch(self) -> tuple[float | None, float | None]:
        """Return the range of the x axis, None for an open end."""
        start, end = self.real("start"), self.real("end")
        if start is not None and end is not None and start >= end:
            raise InvalidRequest(
                f"A stretch of the loss ends behind its start, {start:g}, not at {end:g}.",
                hint="Both are in what the x axis shows.",
                field="end",
            )
        return start, end


def no_picture(name: str, known: tuple[str, ...]) -> NotFound:
    """Return the error for an unknown picture."""
    return NotFound(f"There is no picture {name!r}.", hint=f"There are {', '.join(known)}.")


class _JobPictureHandler(PictureHandler, path="/jobs/{id}/pictures/{picture}", resource="edt:jobs"):
    async def get(self, job: str, picture: str) -> None:
        """Draw a picture of a job."""
        user, pictures = self.user, self.service.pictures
        if picture == "allocation":
            start, end = self.real("start"), self.real("end")
            self.show(await pictures.allocation(user, job, self.look(), start=start, end=end))
        elif picture == "loss":
            start, end = self.stretch()
            self.show(await pictures.loss(user, job, self.look(), **self.curve(), start=start, end=end))
        elif picture == "efficiency":
            self.show(await pictures.efficiency(user, job, self.look()))
        elif picture == "spark":
            self.show(await pictures.spark(user, job, self.look(width=260)))
        else:
            # First the job: a user without access must not learn anything from the error.
            await self.service.mine(user, job)
            raise no_picture(picture, JOB_PICTURES)


class _SearchPictureHandler(PictureHandler, path="/searches/{id}/pictures/{picture}", resource="edt:searches"):
    async def get(self, search: str, picture: str) -> None:
        """Draw a picture of a search."""
        user, pictures = self.user, self.service.pictures
        if picture == "history":
            axis = self.one_of("x", HISTORY_AXES)
            self.show(await pictures.history(user, search, self.look(), axis=axis))
        elif picture == "parallel":
            self.show(await pictures.parallel(user, search, self.look()))
        elif picture == "rungs":
            self.show(await pictures.rungs(user, search, self.look()))
        elif picture == "slots":
            self.show(await pictures.trial_slots(user, search, self.look()))
        else:
            await self.service.searches.known(user, search)
            raise no_picture(picture, SEARCH_PICTURES)


class _CurveHandler(PictureHandler, path="/jobs/{id}/curve", resource="edt:jobs"):
    async def get(self, job: str) -> None:
        """Return the points of the loss picture as columns, or 304 where the client has them."""
        self.set_header("Cache-Control", "no-cache")
        self.reply(await self.service.pictures.curve(self.user, job, axis=self.one_of("x", AXES)))


class _PicturesHandler(PictureHandler, path="/pictures/{picture}", resource="edt:cluster"):
    async def get(self, picture: str) -> None:
        """Draw a picture of the machine."""
        user, pictures = self.user, self.service.pictures
        if picture == "timeline":
            start, end = self.real("start"), self.real("end")
            job, brief = self.get_query_argument("job", ""), self.one_of("legend", ("all", "now")) == "now"
            self.show(await pictures.timeline(user, self.look(), job=job, start=start, end=end, brief=brief))
        elif picture == "slots":
            self.show(await pictures.slots(user, self.look(), job=self.get_query_argument("job", "")))
        elif picture == "shares":
            self.show(await pictures.shares(user, self.look()))
        elif picture == "compare":
            self.show(await pictures.comparison(user, self._jobs(), self.look(), **self.curve()))
        else:
            raise no_picture(picture, MACHINE_PICTURES)

    def _jobs(self) -> list[str]:
        named = [each.strip() for each in self.get_query_argument("jobs", "").split(",") if each.strip()]
        jobs = list(dict.fromkeys(named))
        if not 1 <= len(jobs) <= MOST_JOBS:
            raise InvalidRequest(
                f"jobs names {len(jobs)} jobs; from 1 to {MOST_JOBS} can be compared.",
                hint="Such as jobs=ID,ID; GET /edt/api/jobs lists them.",
                field="jobs",
            )
        return jobs
