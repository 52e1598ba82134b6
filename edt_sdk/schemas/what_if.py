"""What would be if a job's settings were others: the answer to a question, nothing changed."""

from __future__ import annotations

import msgspec

from edt_sdk.schemas.job import Reason


class WhatIfShare(msgspec.Struct, frozen=True, kw_only=True):
    """One job's slots: those it holds `now`, and those it would hold `then`, when everybody who has to has left."""

    job: str
    name: str
    now: int
    then: int


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """Who would hold how many slots, and when the job would end.

    Attributes:
        job: whose settings would be others.
        priority, max_workers, instance_group: as they would be.
        shares: of every job that has not ended, in order of arrival.
        ends_now: forecast of the end of its training as things are, seconds since the epoch; None where its progress is
            not known yet. It assumes that nobody else arrives, and that jobs of unknown progress stay.
        ends_then: the same as things would be.
        reason: why it would not hold what it asks for; None when it would.
    """

    job: str
    priority: int
    max_workers: int
    instance_group: str
    shares: tuple[WhatIfShare, ...]
    ends_now: float | None = None
    ends_then: float | None = None
    reason: Reason | None = None
