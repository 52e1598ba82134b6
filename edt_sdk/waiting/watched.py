"""Declare the parts of `Job` and `Client` that a monitor uses.

They are protocols because `Job.monitor()` creates monitors, so this room must not import those classes.
"""

from __future__ import annotations

from typing import Protocol, Self

from edt_sdk.display.readings import Checkpoints
from edt_sdk.http.connection import Connection
from edt_sdk.schemas.job import JobView


class Watched(Protocol):
    """Declares what a monitor uses of a job."""

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
    def checkpoints(self) -> Checkpoints: ...  # noqa: D102


class Listing(Protocol):
    """Declares what a monitor uses of a server."""

    @property
    def url(self) -> str: ...  # noqa: D102
    @property
    def connection(self) -> Connection: ...  # noqa: D102
