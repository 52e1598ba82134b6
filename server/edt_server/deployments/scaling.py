"""Decide how many replicas a deployment needs, from what the edge has counted. Pure.

The work that is offered is the time that the model takes for the requests of a second, those included that still wait.
So many replicas are needed that each is busy for `TARGET` of its time. More are asked for at once, fewer only when none
of the last `release_after` seconds needed more, and the last is given up after `idle_after` seconds without a request.
While requests wait for a deployment that has no slot at all, others that may do without give theirs up after a second.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from edt_sdk.schemas.serving.deployments import DeploymentSettings
from edt_sdk.schemas.serving.edge_file import Counters

TARGET = 0.7
# Shorter spans than this say little about a rate.
_SPAN = 1.0
# A request that waits longer than this waits for a replica and not for a batch.
_WAITS = 0.25
# Seconds without a request after which a deployment that may have no replica lets another one have its slot.
_YIELDS = 1.0


@dataclass(slots=True)
class Load:
    """The load of a deployment.

    Attributes:
        wanted: the replicas it needs now.
    """

    wanted: int
    _samples: deque[tuple[float, Counters]] = field(default_factory=deque)
    _needs: deque[tuple[float, int]] = field(default_factory=deque)
    _called: float | None = None

    def hear(self, counters: Counters, settings: DeploymentSettings, now: float, *, others_wait: bool = False) -> int:
        """Return the replicas that are needed, from all that was counted up to `now` (seconds of any steady clock).

        `others_wait` says that requests wait for a deployment without a replica.
        """
        if self._called is None or counters.queued or counters.working or self._answered(counters):
            self._called = now
        self._samples.append((now, counters))
        while len(self._samples) > 2 and self._samples[1][0] <= now - _SPAN:
            self._samples.popleft()
        need = self._need(counters)
        self._needs.append((now, need))
        while self._needs[0][0] < now - settings.release_after:
            self._needs.popleft()
        least, most = settings.replicas
        lasting = max(each for _, each in self._needs)
        if need > self.wanted:
            self.wanted = need
        elif lasting < self.wanted and self._needs[-1][0] - self._needs[0][0] >= 0.9 * settings.release_after:
            self.wanted = lasting
        idle = now - self._called
        if others_wait and least == 0 and idle >= _YIELDS:
            self.wanted = 0
            self._needs.clear()
            return 0
        # With a request every now and then nothing is needed most of the time, and the last replica stays.
        floor = 0 if idle >= settings.idle_after else 1
        self.wanted = min(most, max(least, floor, self.wanted))
        return self.wanted

    def _answered(self, counters: Counters) -> bool:
        return bool(self._samples) and sum(counters.requests.values()) > sum(self._samples[-1][1].requests.values())

    def _need(self, counters: Counters) -> int:
        """Return the replicas for the work of the last seconds."""
        since, first = self._samples[0]
        seconds = self._samples[-1][0] - since
        busy, rows = counters.busy - first.busy, counters.rows - first.rows
        if seconds < _SPAN / 2 or busy < 0:  # the edge began anew
            return 1 if counters.queued else 0
        offered = busy / seconds
        if counters.queued:
            # What waits is work of these seconds too. Without a row computed yet, one more replica is tried.
            offered += counters.queued * busy / rows / seconds if rows else 0.0
            if counters.waited > _WAITS:
                offered = max(offered, TARGET * (counters.replicas + 1))
        return math.ceil(offered / TARGET - 1e-9)
