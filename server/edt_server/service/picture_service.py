"""Draw the service's pictures: data are read and drawn in threads. Owns the cache of curves, decides nothing.

Results from events are cached until there is a new event, and equal data are drawn once (`drawings`), so that ten
viewers of a picture cost little more than one.

A user gets no picture of a job that the user may not see. The slots of other users' jobs are shown as in the timeline,
which is public.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edt_sdk.pictures.allocation import MOST_CELLS, draw_allocation
from edt_sdk.pictures.comparison import Comparison, draw_comparison
from edt_sdk.pictures.efficiency import draw_efficiency
from edt_sdk.pictures.history import draw_history
from edt_sdk.pictures.losses import NO_UPDATE, Losses, draw_losses
from edt_sdk.pictures.parallel import draw_parallel
from edt_sdk.pictures.parts.look import Look
from edt_sdk.pictures.parts.marks import Mark
from edt_sdk.pictures.rungs import draw_rungs
from edt_sdk.pictures.shares import draw_shares
from edt_sdk.pictures.slots_map import draw_slots
from edt_sdk.pictures.spark import draw_spark
from edt_sdk.schemas.job import JobState
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.history import Drawings, picture_data, present
from edt_server.outputs import results
from edt_server.outputs.training_curve import CurveShelf
from edt_server.service import search_pictures
from edt_server.service.latest import LatestEvents
from edt_server.service.validations import read_result
from edt_server.service.views import validated
from edt_server.store import JobRow

if TYPE_CHECKING:
    from edt_server.service.service import Service

_COLUMNS = 240
_POINTS = 300
_SPARK_POINTS = 80
_MOST_EVENTS = 20_000


class Picturing:
    """Draws for one service.

    Args:
        service: its verbs, which also check the user's access.
        events: what is known of jobs' events.
    """

    def __init__(self, service: Service, events: LatestEvents) -> None:
        self._service = service
        self._events = events
        self._curves = CurveShelf()
        self._drawings = Drawings()

    def speeds(self, paths: JobPaths) -> list[dict[str, float]]:
        """Return samples and seconds for each number of workers, the smallest number first. Blocks."""
        speeds = self._curves.read(paths).speeds
        return [{"workers": workers, "samples": n, "seconds": s} for workers, (n, s) in sorted(speeds.items())]

    # --- of a job -----------------------------------------------------------------------------------------------------

    async def allocation(
        self, user: str, job: str, look: Look, *, start: float | None = None, end: float | None = None
    ) -> str:
        """Draw the jobs that held the slots while the job lived, with the job emphasised."""
        row = await self._service.mine(user, job)
        return await self._timeline(user, look, row, start, end, of_life=True)

    async def loss(
        self,
        user: str,
        job: str,
        look: Look,
        *,
        axis: str,
        smooth: float,
        log: bool,
        start: float | None = None,
        end: float | None = None,
    ) -> str:
        """Draw the loss over samples, updates or time, or its part from `start` to `end` of that axis."""
        row = await self._service.mine(user, job)

        def draw() -> str:
            if start is None and end is None:
                losses = self._losses(row, axis, _POINTS)
            else:
                losses = self._losses(row, axis).between(start, end)
            # The data itself is the key of the cache, so that an entry is never stale and equal data are drawn once
            # (028).
            return self._drawings.drawn(draw_losses, losses, look, smooth=smooth, log=log)

        return await asyncio.to_thread(draw)

    async def curve(self, user: str, job: str, *, axis: str) -> dict[str, Any]:
        """Return the points of the loss picture, all that are kept, as columns of numbers."""
        row = await self._service.mine(user, job)
        return await asyncio.to_thread(lambda: picture_data.columns_of(self._losses(row, axis), job))

    def _losses(self, row: JobRow, axis: str, most: int | None = None) -> Losses:
        """Read losses and marks, at most `most` points of each kind.

        Blocks: the first reading of a million updates takes seconds (028).
        """
        paths = self._service.paths(row)
        curve = self._curves.read(paths)
        return picture_data.losses_of(
            curve if most is None else curve.few(most),
            row.spec.name,
            axis=axis,
            marks=self._marks(row.id, picture_data.FAILURES),
            checkpoints=results.checkpoints(paths),
            empty=_no_loss(row),
        )

    async def efficiency(self, user: str, job: str, look: Look) -> str:
        """Draw the throughput at each number of workers."""
        row = await self._service.mine(user, job)
        paths = self._service.paths(row)

        def draw() -> str:
            efficiency = picture_data.efficiency_of(self._curves.read(paths), row.spec.name)
            return self._drawings.drawn(draw_efficiency, efficiency, look)

        return await asyncio.to_thread(draw)

    async def spark(self, user: str, job: str, look: Look) -> str:
        """Draw loss, progress and slots as a small picture."""
        view = await self._service.job(user, job)
        paths = self._service.paths(await self._service.mine(user, job))

        def draw() -> str:
            found = read_result(paths) if view.validates else None
            result = found.words if found is not None else "" if view.validates else None
            spark = picture_data.spark_of(view, self._curves.read(paths).few(_SPARK_POINTS), result)
            return self._drawings.drawn(draw_spark, spark, look)

        return await asyncio.to_thread(draw)

    # --- of a search --------------------------------------------------------------------------------------------------

    async def history(self, user: str, search: str, look: Look, *, axis: str) -> str:
        """Draw the values of a search's trials by number, or by the time of their end."""
        core, trials = await self._service.searches.known(user, search)
        data = search_pictures.history(core, trials, axis)
        return await asyncio.to_thread(self._drawings.drawn, draw_history, data, look)

    async def parallel(self, user: str, search: str, look: Look) -> str:
        """Draw the hyper-parameters and the value of each trial as a line."""
        data = search_pictures.parallel(*await self._service.searches.known(user, search))
        return await asyncio.to_thread(self._drawings.drawn, draw_parallel, data, look)

    async def rungs(self, user: str, search: str, look: Look) -> str:
        """Draw the comparisons of a search."""
        data = search_pictures.rung_chart(*await self._service.searches.known(user, search))
        return await asyncio.to_thread(self._drawings.drawn, draw_rungs, data, look)

    async def trial_slots(self, user: str, search: str, look: Look) -> str:
        """Draw the slots that each trial of a search held, from the search's beginning to its end or now."""
        # The trials first: they keep the core, which the view then needs not build again.
        _, trials = await self._service.searches.known(user, search)
        view = await self._service.searches.search(user, search)
        jobs = {row.job for row in trials.values() if row.job}
        return await self._timeline(user, look, None, view.created, view.ended, of_life=False, only=jobs)

    # --- of the machine -----------------------------------------------------------------------------------------------

    async def timeline(
        self,
        user: str,
        look: Look,
        *,
        job: str = "",
        start: float | None = None,
        end: float | None = None,
        brief: bool = False,
    ) -> str:
        """Draw all jobs over time. One of the user's own may be emphasised. `brief` is for a small picture."""
        row = await self._service.mine(user, job) if job else None
        return await self._timeline(user, look, row, start, end, of_life=False, brief=brief)

    async def slots(self, user: str, look: Look, *, job: str = "") -> str:
        """Draw each slot and the job in it."""
        await self._check(user, job)
        cluster = await self._service.standing()
        # Needed to draw a configured host that has no slots now: it is lost, and the cluster no longer lists it.
        named = self._service.settings.local_hosts

        def draw() -> str:
            return self._drawings.drawn(draw_slots, picture_data.slots_of(cluster, named, mine=job), look)

        return await asyncio.to_thread(draw)

    async def shares(self, user: str, look: Look) -> str:
        """Draw what instance groups are entitled to, hold, borrow and lend."""
        cluster = await self._service.standing()
        return await asyncio.to_thread(lambda: self._drawings.drawn(draw_shares, picture_data.shares_of(cluster), look))

    async def comparison(
        self, user: str, jobs: Sequence[str], look: Look, *, axis: str, smooth: float, log: bool
    ) -> str:
        """Draw the losses of several jobs of the user."""
        # All access checks come first: a single job of another user refuses the whole picture before any file is read.
        rows = [await self._service.mine(user, job) for job in jobs]

        def draw() -> str:
            curves = [self._curves.read(self._service.paths(row)).few(_POINTS) for row in rows]
            compared = tuple(
                picture_data.compared(row.id, curve, row.spec.name, axis)
                for row, curve in zip(rows, curves, strict=True)
            )
            return self._drawings.drawn(draw_comparison, Comparison(compared, axis), look, smooth=smooth, log=log)

        return await asyncio.to_thread(draw)

    async def _check(self, user: str, job: str) -> None:
        if job:
            await self._service.mine(user, job)

    async def _timeline(
        self,
        user: str,
        look: Look,
        row: JobRow | None,
        start: float | None,
        end: float | None,
        *,
        of_life: bool,
        brief: bool = False,
        only: Collection[str] | None = None,
    ) -> str:
        life = row.id if row is not None and of_life else None
        found = await self._service.timeline(user, life, start=start, end=end, points=_COLUMNS)
        # The number of bands limits the number of columns. Jobs that hold little share one band.
        columns = MOST_CELLS // (2 + min(len(found["names"]), picture_data.MOST_BANDS))
        if len(found["rows"]) > columns:
            found = await self._service.timeline(user, life, start=start, end=end, points=columns)
        rows = found["rows"]
        # The last row is in force, also when its time is later than the clock of this request.
        clock = self._service.now()
        now = max(present(clock, rows[0]["time"]), rows[-1]["time"]) if rows else clock
        until = min(end or now, now)
        if row is not None and of_life and row.ended is not None:
            until = min(until, row.ended)

        def draw() -> str:
            held = picture_data.allocation_of(
                rows if only is None else [picture_data.held_by(only, each) for each in rows],
                found["names"],
                until=until,
                start=start,
                mine="" if row is None else row.id,
                marks=[] if row is None else self._marks(row.id, picture_data.MARKED),
                total=found["total"],
                brief=brief,
            )
            if not held.columns and (start is not None or end is not None):
                held = replace(held, empty="Nothing is known of that time: choose another start or end.")
            elif row is not None and of_life and not held.columns:
                held = replace(held, empty=_no_slot(row))
            return self._drawings.drawn(draw_allocation, held, look)

        return await asyncio.to_thread(draw)

    def _marks(self, job: str, which: frozenset[str]) -> list[Mark]:
        return self._events.of(job, which, picture_data.marks_of, most=_MOST_EVENTS)


def _no_loss(row: JobRow) -> str:
    if validated(row.spec):
        return "It trains nothing; job.validation() has its result."
    if row.state.final:
        return "It ended before its first update: its logs say why."
    return NO_UPDATE


def _no_slot(row: JobRow) -> str:
    name = row.spec.name
    if row.state.final:
        return f"{name} has ended without ever holding a slot."
    if row.state is JobState.PENDING:
        return f"{name} waits for its first slot: the picture begins when it has one."
    return f"{name} has not held a slot yet: the picture begins when it has one."
