"""The link: messages between a job's supervisor and its driver and workers.

One JSON object a line over a Unix socket in the job's runtime folder (0700). The first message of a process is its
hello. A closed link means the other side is gone; a worker whose supervisor is gone ends itself.

Life of one training::

    driver                 supervisor                     worker (slot granted)
      │ DriverHello ─────────▶ │                                │
      │ TrainRequest ────────▶ │ ◀──────────────── WorkerHello  │  imported torch, store open
      │                        │ Begin ───────────────────────▶ │  load payload, open data set
      │                        │ ◀──────────────── WorkerReady  │
      │                        │ Generation(1, [w0]) ─────────▶ │  group built
      │                        │ ◀──────────────── Joined       │
      │                        │ ◀──────────────── Progress …   │  rank 0, about twice a second
      │  … a second worker becomes ready …                      │
      │                        │ Generation(2, [w0, w1]) ─────▶ │  to members old and new; switch at the boundary that
      │                        │ ◀──────────────── Joined (each)│  all of generation 1 know it at
      │  … a slot is revoked …                                  │
      │                        │ Generation(3, [w0]) ─────────▶ │
      │                        │ ◀──────── Left (w1), exit 0    │
      │                        │  … a member dies …             │
      │                        │ ◀──────────────── Broken       │  each survivor, as soon as it has dropped its group
      │                        │ Generation(4, survivors) ────▶ │  the most advanced member's state wins
      │                        │ ◀──────────────── Joined       │  the update in flight is computed again
      │                        │  … every slot is revoked …     │
      │                        │ Generation(5, []) ───────────▶ │  suspend: checkpoint at the boundary, then all leave
      │                        │ ◀──────── Left (each), exit 0  │
      │                        │  … slots come back, new workers, all fresh: the state is that of the newest checkpoint
      │                        │ ◀──────────────── Trained      │  rank 0, final files written
      │ ◀──────── TrainingDone │ (the other members wait for rank 0 to have written, then exit 0)

A worker whose supervisor is gone goes on to the next boundary that all members can reach, writes a checkpoint and ends;
one that lost its group as well writes what it has and ends. A driver whose supervisor is gone ends at once.
"""

from __future__ import annotations

import msgspec


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One worker of a generation; its rank is its place in `Generation.members`.

    `fresh` members were not in the generation before. Who has a state, and whose is the most advanced, the members tell
    each other when they meet: nobody else can know. When nobody has one, rank 0 takes the newest checkpoint, or begins.
    """

    worker: int
    slot: int
    pid: int
    host: str
    store_port: int
    fresh: bool


# --- from driver and workers to the supervisor ------------------------------------------------------------------------


class DriverHello(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The driver's first message."""

    pid: int


class TrainRequest(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The driver's `training`-th call of `train()` (from 0). The payload file is complete when this is sent.

    `shards` is V, the most workers the training can use.
    """

    training: int
    payload: str
    shards: int
    epochs: int


class Scaled(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The driver: from now on training `training` wants at most `workers` workers, 1 … V."""

    training: int
    workers: int


class WorkerHello(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A worker's first message: torch is imported and its store listens on (host, store_port)."""

    worker: int
    pid: int
    host: str
    store_port: int


class WorkerReady(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The payload is loaded and the data set open."""

    worker: int
    training: int


class Joined(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """This worker is in the group of `generation`, state received; `update` updates are committed."""

    worker: int
    generation: int
    update: int


class Left(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """This worker left before `generation` and exits now; if that one has no members, its state is on disk."""

    worker: int
    generation: int
    update: int


class Broken(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A member of `generation` is gone, as far as this worker can tell: it dropped the group and waits for the next.

    `update` updates are committed here. Sent behind the drop, so that nobody waits for this worker's sockets.
    """

    worker: int
    generation: int
    update: int


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Rank 0's report, at most about twice a second; fields as in `job.JobProgress`."""

    worker: int
    training: int
    update: int
    total_updates: int
    epoch: int
    epochs: int
    loss: float | None = None
    accuracy: float | None = None
    test_loss: float | None = None
    test_accuracy: float | None = None
    samples_per_second: float | None = None
    not_a_number: bool = False


class Trained(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Rank 0: every update is committed and the final files are on disk."""

    worker: int
    training: int
    updates: int


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The user's code (or ours) raised. `worker` is None for the driver. The process exits 1 after sending this.

    `final`: trying again leads nowhere (input that cannot be, or a loss that is not a number where that stops the job).
    """

    worker: int | None
    message: str
    traceback: str
    final: bool = False


# --- from the agents of a torchrun job (docs/decisions/023) -----------------------------------------------------------


class Stopped(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """None of this agent's processes of `round` is left; it waits for the next one. Answer to Halt."""

    worker: int
    round: int


class Began(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """This agent's processes of `round` run; `pids` in the order of their local ranks.

    `store_port` is where the store listens that it will host should it be the first of the next round.
    """

    worker: int
    round: int
    pids: tuple[int, ...]
    store_port: int


class Crashed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """One of this agent's processes of `round` ended where it should not have: the first of them that did.

    `ended` is when, on the host's monotonic clock: of several agents' processes the first to end is the cause. `words`
    are its last lines, under a line that says where they are from; "" when it wrote none.
    """

    worker: int
    round: int
    local_rank: int
    pid: int
    exit_code: int
    ended: float
    words: str = ""


class Done(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """All processes of this agent ended with exit code 0 in `round`."""

    worker: int
    round: int


# --- from the supervisor ----------------------------------------------------------------------------------------------


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """To a worker: prepare for this training and answer WorkerReady.

    `rehearse`: others train meanwhile, so there is time to compute one shard for practice. What a process pays once,
    for kernels and memory, is paid before anybody waits for it.
    """

    training: int
    payload: str
    rehearse: bool = False


class Generation(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """To every member of the current and the next generation. Survivors come first, in their former order.

    A planned change is sent when the one before is complete: every member has Joined, every leaver has Left. After a
    death the next is sent at once, also when the one before never formed; who waits for an older one gives it up.
    Without members it suspends the training.
    """

    training: int
    number: int
    members: tuple[Member, ...]


class TrainingDone(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """To the driver: `train()` may return."""

    training: int
    updates: int


class TrainingFailed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """To the driver: `train()` raises with this message."""

    training: int
    message: str


class Halt(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """To every agent of `round`: end its processes (SIGTERM, then SIGKILL) and answer Stopped.

    The next round begins when all have: two rounds of one script never run at once.
    """

    round: int


class Round(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """To every agent, those that are not in it included: they end. Members are in the order of their ranks.

    The first member's store is where the processes meet. `restarts`: how many of the earlier rounds a crash ended.
    """

    number: int
    members: tuple[Member, ...]
    restarts: int


FromDriver = DriverHello | TrainRequest | Scaled | Failed
FromWorker = WorkerHello | WorkerReady | Joined | Left | Broken | Progress | Trained | Failed
FromAgent = WorkerHello | Stopped | Began | Crashed | Done | Failed
ToDriver = TrainingDone | TrainingFailed
ToWorker = Begin | Generation
ToAgent = Halt | Round

Upward = FromDriver | FromWorker | FromAgent
Downward = ToDriver | ToWorker | ToAgent

_encoder = msgspec.json.Encoder()
_upward: msgspec.json.Decoder[Upward] = msgspec.json.Decoder(Upward)
_downward: msgspec.json.Decoder[Downward] = msgspec.json.Decoder(Downward)


def encode(message: Upward | Downward) -> bytes:
    """One line, newline included."""
    return _encoder.encode(message) + b"\n"


def decode_upward(line: bytes) -> Upward:
    """A message of a driver or worker; msgspec.ValidationError when malformed."""
    return _upward.decode(line)


def decode_downward(line: bytes) -> Downward:
    """A message of the supervisor; msgspec.ValidationError when malformed."""
    return _downward.decode(line)
