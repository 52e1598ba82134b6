"""Carry out what `Dispatch` decides for one target: batches to replicas, answers to callers, counters."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from edt_sdk.schemas.serving.edge_file import Counters, EdgeDeployment, Target
from edt_sdk.schemas.serving.replica_channel import Answers, ReplicaReady, Signature
from edt_server.serving.channel import Channel, ReplicaConnection
from edt_server.serving.dispatch import Dispatch, Give, Pending, Refusal, Reply, RequestEnd

# Upper bounds of the time from a request to its answer, in seconds.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# Seconds after which the connection of a caller is watched. A task for each request would cost more than most answers.
_WATCHED_AFTER = 0.1

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


@dataclass(slots=True, eq=False)
class _Caller:
    receive: Receive
    future: asyncio.Future[Reply | Refusal | None]
    watcher: asyncio.Task[None] | None = None


class LiveTarget:
    """A target with its socket and its replicas.

    Attributes:
        target: as the server wrote it last.
        signature: what a replica expects and returns. `seen` is whether one has connected and reported it.
    """

    def __init__(self, deployment: EdgeDeployment, target: Target) -> None:
        self.target = target
        self.signature: Signature | None = None
        self.seen = False
        self._channel = Channel(target.socket, target.owner, self)
        self._dispatch = Dispatch[ReplicaConnection](time.monotonic())
        self._timer: asyncio.TimerHandle | None = None
        self._retired = False
        self._statuses: Counter[int] = Counter()
        self._latencies = [0] * (len(BUCKETS) + 1)
        self._latency_sum = self._busy = 0.0
        self._rows = self._batches = 0
        self.configure(deployment, target)

    @property
    def number(self) -> str:
        """The number of its version, as in an address of v2."""
        return self.target.version.rpartition("/")[2]

    @property
    def replicas(self) -> int:
        """How many replicas are connected."""
        return len(self._dispatch.replicas)

    def configure(self, deployment: EdgeDeployment, target: Target) -> None:
        """Take the settings that the server has written."""
        self.target = target
        self._dispatch.batch_wait = deployment.batch_wait
        self._dispatch.max_queue = deployment.max_queue
        self._dispatch.patience = deployment.patience
        self._dispatch.reason = target.reason

    async def listen(self) -> None:
        """Let replicas connect, unless they can already."""
        await self._channel.listen()

    async def ask(self, request: Pending, receive: Receive) -> Reply | Refusal | None:
        """Return the end of a request, None when another target has to answer it. `receive` is that of ASGI."""
        now = time.monotonic()
        caller = request.caller = _Caller(receive, asyncio.get_running_loop().create_future())
        self._do(self._dispatch.arrive(request, now), now)
        try:
            return await caller.future
        except asyncio.CancelledError:
            # By uvicorn, when the edge ends and this has waited too long for that.
            self._do(self._dispatch.gone(request), time.monotonic())
            return Refusal(503, "The edge ends.")
        finally:
            if caller.watcher is not None:
                caller.watcher.cancel()

    def tick(self, now: float) -> None:
        """Give up what waits too long, and watch the connections of callers that wait."""
        self._do(self._dispatch.tick(now), now)
        for request in self._dispatch.requests():
            if request.caller.watcher is None and now - request.arrived > _WATCHED_AFTER:
                request.caller.watcher = asyncio.create_task(self._watch(request))

    def retire(self) -> None:
        """Take nothing more. Replicas answer what they have, the waiting requests go to other targets."""
        self._retired = True
        self._channel.close()
        self._do(self._dispatch.retire(), time.monotonic())

    def close(self) -> bool:
        """Close the connections of a retired target once its requests have ended. Return whether they have."""
        if next(self._dispatch.requests(), None) is not None:
            return False
        for connection in self._dispatch.replicas:
            connection.close()
        return True

    def ready(self, connection: ReplicaConnection, ready: ReplicaReady) -> None:
        """A replica has connected."""
        self.signature, self.seen = ready.signature, True
        now = time.monotonic()
        if self._retired:
            connection.close()
        else:
            self._do(self._dispatch.joined(connection, ready.most, now), now)

    def answered(self, connection: ReplicaConnection, answers: Answers, replies: dict[int, Reply]) -> None:
        """A replica has answered a batch."""
        now, since = time.monotonic(), connection.since
        instructions = self._dispatch.answered(connection, replies, answers.leaving, now)
        if replies:
            self._batches += 1
            self._rows += answers.rows
            self._busy += now - since
        self._do(instructions, now)

    def lost(self, connection: ReplicaConnection, *, unread: bool) -> None:
        """A replica is gone."""
        now = time.monotonic()
        self._do(self._dispatch.lost(connection, now, unread=unread), now)

    def counters(self) -> Counters:
        """Return what was counted, and the state now."""
        oldest = self._dispatch.oldest
        return Counters(
            requests=dict(self._statuses),
            rows=self._rows,
            batches=self._batches,
            busy=self._busy,
            latency=dict(zip(BUCKETS, accumulate(self._latencies), strict=False)),
            latency_sum=self._latency_sum,
            queued=self._dispatch.queued,
            waited=0.0 if oldest is None else time.monotonic() - oldest,
            replicas=self.replicas,
            working=self._dispatch.working,
        )

    def _do(self, instructions: Sequence[Give[ReplicaConnection] | RequestEnd], now: float) -> None:
        for each in instructions:
            if isinstance(each, RequestEnd):
                self._end(each.request, each.result, now)
            elif each.replica.closing:
                self.lost(each.replica, unread=True)  # before its connection reports it
            else:
                each.replica.give(each.requests, now)
        if (hold := self._dispatch.hold) is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(hold - now, self._held)

    def _held(self) -> None:
        self._timer, now = None, time.monotonic()
        self._do(self._dispatch.tick(now), now)

    def _end(self, request: Pending, result: Reply | Refusal | None, now: float) -> None:
        if result is not None:
            seconds = now - request.arrived
            self._statuses[result.answer.status if isinstance(result, Reply) else result.status] += 1
            self._latencies[bisect_left(BUCKETS, seconds)] += 1
            self._latency_sum += seconds
        if not request.caller.future.done():  # cancelled when the edge ends
            request.caller.future.set_result(result)

    async def _watch(self, request: Pending) -> None:
        while (await request.caller.receive())["type"] != "http.disconnect":
            pass
        self._do(self._dispatch.gone(request), time.monotonic())
