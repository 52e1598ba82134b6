"""Metrics of a job: the curves so far, or a stream that ends with the job."""

from __future__ import annotations

import asyncio

from edt_jupyter.http.sse import Record, Step, StreamHandler
from edt_server.outputs.metrics import DEFAULT_POINTS, MetricsReader, thin

_LOOK_AGAIN = 0.5


class MetricsHandler(StreamHandler):
    """`/jobs/{id}/metrics`."""

    auth_resource = "edt:logs"

    async def get(self, job: str) -> None:
        """Points after a cursor; the training curve thinned to `points`, validations whole."""
        row = await self.service.mine(self.user, job)
        if self.flag("follow"):
            reader = MetricsReader(self.service.paths(row), after=self.resume_after())
            await self.stream(job, lambda: self._step(job, reader))
            return
        points = self.number("points", DEFAULT_POINTS, low=4, high=1_000_000)
        reader = MetricsReader(self.service.paths(row), after=self.get_query_argument("after", ""))
        batch = await asyncio.to_thread(reader.read_all, final=row.state.final)
        train = await asyncio.to_thread(thin, batch.of_kind("train"), points)
        speeds = await asyncio.to_thread(self.service.pictures.speeds, self.service.paths(row))
        test = batch.of_kind("test")
        self.reply({"train": train, "test": test, "speeds": speeds, "next": batch.next, "done": batch.done})

    async def _step(self, job: str, reader: MetricsReader) -> Step:
        final = self.service.ended(job)
        batch = await asyncio.to_thread(reader.read, final=final)
        records = [Record("metric", point, cursor) for point, cursor in zip(batch.points, batch.cursors, strict=True)]
        return Step(records, batch.done, _LOOK_AGAIN)
