"""What follows from a committed change: supervisors start or get their slots, subscribers wake, clocks are set."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from edt_sdk.schemas.job import JobState
from edt_server.channel import Supervision
from edt_server.ledger import ChangeOutcome
from edt_server.service.clock import Clock
from edt_server.service.forecast_rates import ForecastRates
from edt_server.service.hub import Hub
from edt_server.service.speeds import SpeedMeter
from edt_server.store import JobRow

log = logging.getLogger(__name__)
StateListener = Callable[[JobRow, JobState | None], None]


@dataclass(frozen=True, slots=True)
class Effects:
    """The parts of a service that act on a change.

    Attributes:
        living: ids of the jobs that have not ended.
    """

    supervision: Supervision
    clock: Clock
    hub: Hub
    rates: ForecastRates
    speeds: SpeedMeter
    on_state: StateListener | None
    living: set[str] = field(default_factory=set)

    def act(self, outcome: ChangeOutcome) -> None:
        """Do what a committed change asks for."""
        for row, before in outcome.states:
            (self.living.discard if row.state.final else self.living.add)(row.id)
            if row.state is not JobState.RUNNING:
                self.rates.forget(row.id)
            if row.state.final:
                self.speeds.forget(row.id)
            log.info("job %s is %s, before=%s", row.id, row.state, before)
            if self.on_state is not None:
                self.on_state(row, before)
        for job, allocation in outcome.allocations.items():
            self.supervision.allocate(job, allocation)
            self.speeds.moved(job, time.time())
        for job in outcome.launches:
            self.supervision.begin(job)
        for job in {*outcome.jobs, *outcome.allocations}:
            self.hub.ring(job)
        # Any change may move the time of the core's next own event.
        self.clock.look()
