"""The parts of `Job` and `Client` that a monitor uses.

They are protocols because `Job.monitor()` creates monitors, so this room must not import those classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from edt_sdk.display.answers import WhatIfAnswer
from edt_sdk.display.readings import Metrics
from edt_sdk.http.connection import Connection
from edt_sdk.schemas.job import JobView


class Watched(Protocol):
    """One job."""

    @property
    def id(self) -> str: ...  # noqa: D102
    @property
    def connection(self) -> Connection: ...  # noqa: D102
    @property
    def view(self) -> JobView: ...  # noqa: D102
    @property
    def taken(self) -> float: ...  # noqa: D102
    def through(self, connection: Connection) -> Self: ...  # noqa: D102
    def saw(self, view: JobView) -> None: ...  # noqa: D102
    def refresh(self) -> Self: ...  # noqa: D102
    def metrics(self, *, points: int | None = None) -> Metrics: ...  # noqa: D102
    def workers(self) -> Sequence[dict[str, Any]]: ...  # noqa: D102
    def checkpoints(self) -> Sequence[dict[str, Any]]: ...  # noqa: D102
    def update(self, *, priority: int | None = None, max_workers: int | None = None) -> Self: ...  # noqa: D102
    def what_if(self, *, priority: int | None = None, max_workers: int | None = None) -> WhatIfAnswer: ...  # noqa: D102
    def stop(self) -> Self: ...  # noqa: D102
    def suspend(self) -> Self: ...  # noqa: D102
    def resume(self, checkpoint: str | None = None) -> Self: ...  # noqa: D102
    def download(  # noqa: D102
        self, directory: str = ".", part: str = "all", *, told: Callable[[int, int | None], None] = ...
    ) -> Path: ...


class Listing(Protocol):
    """A server."""

    @property
    def url(self) -> str: ...  # noqa: D102
    @property
    def connection(self) -> Connection: ...  # noqa: D102
