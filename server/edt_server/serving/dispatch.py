"""Decide which replica of a revision answers which request, and when a request is given up. Pure.

Each event is a method that takes the time, in seconds of a monotonic clock, and returns instructions. Every request
that arrives gets exactly one `RequestEnd`, and at most two replicas see it. Requests are given away in their order,
but a retry after the death of a replica comes first, and alone: one request of the batch may be the cause.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain
from typing import Any, Generic, TypeVar

from edt_sdk.schemas.serving.replica_channel import LARGEST_FRAME, Answer

R = TypeVar("R", bound=Hashable)
# Seconds for which a body that has killed two replicas is refused.
POISON_SECONDS = 600.0
MOST_DEATHS = 2
# How often a request may go to another replica because one has closed its connection without reading it, as one does
# that is just about to leave. After that it counts as a death: the size of a body alone may be what kills.
MOST_UNREAD = 4
# Bytes of bodies after which a batch is full. One more request fits into a frame then.
LARGEST_BATCH = LARGEST_FRAME // 4
CLIENT_GONE = 499
_KILLED = "This request killed two replicas. The same body is refused for 10 minutes after that."


class Refusal(Exception):
    """The end of a request without an answer of a replica: a status of HTTP, a sentence, and headers of the reply."""

    def __init__(self, status: int, error: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(error)
        self.status = status
        self.error = error
        self.headers = headers or {}


@dataclass(frozen=True, slots=True)
class Reply:
    """What replica `worker` answered. `seconds` are those that the model took for the whole batch."""

    answer: Answer
    body: memoryview
    worker: int
    seconds: float


@dataclass(eq=False, slots=True)
class Pending:
    """A request from its arrival to its end.

    Attributes:
        form, content_type, header_length: as in `replica_channel.ScoringRequest`.
        arrived, deadline: times, the second of which it does not outlive.
        caller: opaque here, for the part that waits for the end.
        number: on the channel, given by `Dispatch`.
        deaths: replicas that died with it. `unread` counts those that had not read it.
        taken: when a replica took it first.
    """

    body: bytes
    form: str
    content_type: str
    header_length: int | None
    arrived: float
    deadline: float
    caller: Any = None
    number: int = 0
    deaths: int = 0
    unread: int = 0
    taken: float | None = None
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Give(Generic[R]):
    """Hand these requests to a free replica as one batch."""

    replica: R
    requests: tuple[Pending, ...]


@dataclass(frozen=True, slots=True)
class RequestEnd:
    """The end of a request. None: another target of its deployment has to answer it."""

    request: Pending
    result: Reply | Refusal | None


@dataclass(slots=True)
class _Replica:
    most: int
    batch: dict[int, Pending] = field(default_factory=dict)


class Dispatch(Generic[R]):
    """The waiting requests and the replicas of one target.

    Attributes:
        batch_wait, max_queue, patience, reason: as in `edge_file`. They may change at any time.
        hold: until when a free replica waits for more requests, None when no replica does. `tick` is due then.
    """

    def __init__(self, now: float) -> None:
        self.batch_wait = 0.0
        self.max_queue = 0
        self.patience = 0.0
        self.reason = ""
        self.hold: float | None = None
        self._queue: deque[Pending] = deque()
        self._replicas: dict[R, _Replica] = {}
        self._free: dict[R, None] = {}  # the longest free first
        self._recent: deque[float] = deque()  # arrivals within the last `batch_wait`
        self._poison: dict[bytes, float] = {}
        self._without_since = now
        self._retired = False
        self._numbers = 0

    @property
    def queued(self) -> int:
        """How many requests wait."""
        return len(self._queue)

    @property
    def oldest(self) -> float | None:
        """When the waiting request that came first arrived, None when none waits."""
        return min((each.arrived for each in self._queue), default=None)

    @property
    def replicas(self) -> tuple[R, ...]:
        """The replicas that are connected and do not leave."""
        return tuple(self._replicas)

    @property
    def working(self) -> int:
        """How many of them have a batch."""
        return len(self._replicas) - len(self._free)

    def requests(self) -> Iterator[Pending]:
        """Return the requests that have not ended."""
        held = chain.from_iterable(each.batch.values() for each in self._replicas.values())
        return (each for each in chain(self._queue, held) if not each.ended)

    def arrive(self, request: Pending, now: float) -> list[Give[R] | RequestEnd]:
        """Take a request."""
        if self._retired:
            return [_end(request, None)]
        if self._poison and self._poison.get(sha256(request.body).digest(), now) > now:
            return [_end(request, Refusal(500, _KILLED))]
        if len(self._queue) >= self.max_queue:
            full = f"{len(self._queue):,} requests wait already. Try again in a second."
            return [_end(request, Refusal(429, full, {"Retry-After": "1"}))]
        request.ended = False  # another target may have ended it with None
        self._numbers += 1
        request.number = self._numbers
        self._queue.append(request)
        self._forget_arrivals(now)
        self._recent.append(now)
        return self._give(now)

    def gone(self, request: Pending) -> list[Give[R] | RequestEnd]:
        """Drop a request that no caller waits for. A replica that has it computes it all the same."""
        if request.ended:
            return []
        if request in self._queue:
            self._queue.remove(request)
        return [_end(request, Refusal(CLIENT_GONE, "The caller has closed the connection."))]

    def joined(self, replica: R, most: int, now: float) -> list[Give[R] | RequestEnd]:
        """Take a free replica that answers up to `most` requests at once."""
        self._replicas[replica] = _Replica(most)
        self._free[replica] = None
        return self._give(now)

    def answered(
        self, replica: R, replies: Mapping[int, Reply], leaving: bool, now: float
    ) -> list[Give[R] | RequestEnd]:
        """Take the answers of a replica by the numbers of its requests. ValueError when they are not those it has."""
        state = self._replicas.get(replica)
        if state is None or not state.batch or replies.keys() != state.batch.keys():
            raise ValueError("answers to other requests than those of the batch")
        ends = [_end(each, replies[number]) for number, each in state.batch.items() if not each.ended]
        state.batch = {}
        self._free[replica] = None
        if leaving:
            self._forget(replica, now)
        return [*ends, *self._give(now)]

    def lost(self, replica: R, now: float, *, unread: bool = False) -> list[Give[R] | RequestEnd]:
        """Note that a replica is gone. Its requests go to another one, once, or more often when it left them unread."""
        state = self._forget(replica, now)
        if state is None:
            return []
        ends: list[Give[R] | RequestEnd] = []
        back = [request for request in state.batch.values() if not request.ended]
        for request in back:
            if unread and request.unread < MOST_UNREAD:
                request.unread += 1
            else:
                request.deaths += 1
            if request.deaths >= MOST_DEATHS:
                self._poison[sha256(request.body).digest()] = now + POISON_SECONDS
                ends.append(_end(request, Refusal(500, _KILLED)))
            elif self._retired:
                ends.append(_end(request, None))
        self._queue.extendleft(request for request in reversed(back) if not request.ended)
        return [*ends, *self._give(now)]

    def retire(self) -> list[Give[R] | RequestEnd]:
        """Take no request from now on. The waiting ones go elsewhere, replicas answer what they have."""
        self._retired = True
        moved, self._queue = self._queue, deque()
        return [_end(request, None) for request in moved]

    def tick(self, now: float) -> list[Give[R] | RequestEnd]:
        """Give up what has waited too long. Call it several times a second, and at `hold`."""
        if self._poison:
            self._poison = {body: until for body, until in self._poison.items() if until > now}
        ends: list[Give[R] | RequestEnd] = []
        for request in list(self.requests()):
            if (refusal := self._too_late(request, now)) is not None:
                ends.append(_end(request, refusal))
        if ends:
            self._queue = deque(each for each in self._queue if not each.ended)
        return [*ends, *self._give(now)]

    def _too_late(self, request: Pending, now: float) -> Refusal | None:
        if not self._replicas:
            # A request that waits while its last replica is replaced has the whole patience for the next one.
            patient_until = max(request.arrived, self._without_since) + self.patience
            if now >= min(request.deadline, patient_until):
                return Refusal(503, self.reason or "No replica was ready in time. Try again.")
        elif now >= request.deadline:
            return Refusal(504, f"No answer within {request.deadline - request.arrived:g} s.")
        return None

    def _give(self, now: float) -> list[Give[R] | RequestEnd]:
        given: list[Give[R] | RequestEnd] = []
        while self._queue and self._free:
            replica = next(iter(self._free))
            state = self._replicas[replica]
            if len(self._queue) < state.most and not self._queue[0].deaths and self._more_come(state.most, now):
                break
            self.hold = None
            del self._free[replica]
            batch = self._next_batch(state.most, now)
            state.batch = {request.number: request for request in batch}
            given.append(Give(replica, batch))
        else:
            self.hold = None
        return given

    def _next_batch(self, most: int, now: float) -> tuple[Pending, ...]:
        batch = [self._queue.popleft()]
        size = len(batch[0].body)
        while (
            self._queue
            and len(batch) < most
            and size < LARGEST_BATCH
            and not (batch[0].deaths or self._queue[0].deaths)
        ):
            batch.append(self._queue.popleft())
            size += len(batch[-1].body)
        for request in batch:
            if request.taken is None:
                request.taken = now
        return tuple(batch)

    def _more_come(self, most: int, now: float) -> bool:
        """Return whether the batch is likely to be fuller soon. An idle service never waits."""
        if self.hold is None:
            self._forget_arrivals(now)
            if len(self._recent) <= most:
                return False
            self.hold = now + self.batch_wait
        return now < self.hold

    def _forget_arrivals(self, now: float) -> None:
        while self._recent and self._recent[0] <= now - self.batch_wait:
            self._recent.popleft()

    def _forget(self, replica: R, now: float) -> _Replica | None:
        self._free.pop(replica, None)
        state = self._replicas.pop(replica, None)
        if state is not None and not self._replicas:
            self._without_since = now
        return state


def _end(request: Pending, result: Reply | Refusal | None) -> RequestEnd:
    request.ended = True
    return RequestEnd(request, result)
