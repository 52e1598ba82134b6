"""The link: messages between a job's supervisor and its driver and workers.

A message is one line of JSON over a Unix socket in the job's runtime folder (0700). The first message of a process is
its hello. A closed link means that the other side is gone.

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
      │                        │ Generation(2, [w0, w1]) ─────▶ │  to old and new members: switch at the boundary where
      │                        │ ◀──────────────── Joined (each)│  all of generation 1 know it
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
      │                        │  … an epoch ends that is the generation's budget …
      │                        │ ◀──────────────── Held         │  rank 0, its checkpoint written; all wait for a newer
      │                        │                                │  generation: without members, or with more budget
      │                        │ ◀──────────────── Trained      │  rank 0, final files written
      │ ◀──────── TrainingDone │ (the other members wait for rank 0 to have written, then exit 0)

When the supervisor is gone, a worker goes on to the next boundary that all members can reach, writes a checkpoint and
ends. A worker that lost its group as well writes its state and ends. The driver ends at once.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from edt_sdk.schemas.job import JobProgress


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One worker of a generation. Its rank is its place in `Generation.members`.

    `fresh` members were not in the generation before. The supervisor does not know which members have a state and which
    state is the most advanced: the members find that out among themselves when they meet. When no member has a state,
    rank 0 loads the newest checkpoint, or starts from the beginning.
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
    """The driver has made its `training`-th call of `train()` (from 0).

    The payload file is complete when this is sent.

    `shards` is V, the most workers the training can use.
    """

    training: int
    payload: str
    shards: int
    epochs: int


class Scaled(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The driver wants at most `workers` workers, 1 … V, for training `training` from now on."""

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
    """This worker is in the group of `generation` and has received the state. `update` updates are committed."""

    worker: int
    generation: int
    update: int


class Left(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """This worker left before `generation` and exits now. If that generation has no members, its state is on disk."""

    worker: int
    generation: int
    update: int


class Broken(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """This worker has lost a member of `generation`: it dropped the group and waits for the next generation.

    `update` updates are committed here. The worker sends this after it dropped the group, so that no other member waits
    for its sockets.
    """

    worker: int
    generation: int
    update: int


class Progress(JobProgress, frozen=True, kw_only=True, tag=True):
    """Rank 0 reports its progress, at most about twice a second."""

    worker: int
    training: int


# Rank 0 sends the next two only in a generation with a budget: a supervisor of a version without budgets would close
# the link, as it does at any message that it does not know.
class EpochMeasured(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Rank 0 has recorded the validation after `epoch` epochs: means over the test data. The next rank 0 repeats it."""

    worker: int
    training: int
    epoch: int
    loss: float | None
    accuracy: float | None
    metrics: dict[str, float | None]


class Held(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """All members of `generation` wait after `epoch` epochs, which are its budget.

    The checkpoint of the epoch is on disk, unless it could not be written: then members that leave write their state.
    """

    worker: int
    training: int
    generation: int
    epoch: int


class Trained(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Rank 0 has committed every update, and the final files are on disk."""

    worker: int
    training: int
    updates: int


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The user's code (or ours) raised. `worker` is None for the driver. The process exits 1 after sending this.

    With `final` a retry is pointless (input that cannot be, or a loss that is not a number where that stops the job).
    """

    worker: int | None
    message: str
    traceback: str
    # Otherwise a failure after the first committed update leads to a retry, until three in a row made no progress
    # (docs/decisions/010).
    final: bool = False


# --- from the agents of a torchrun job (docs/decisions/023) -----------------------------------------------------------


class Stopped(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The agent has ended all its processes of `round` and waits for the next one. This is the answer to Halt."""

    worker: int
    round: int


class Began(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The agent's processes of `round` run. `pids` are in the order of their local ranks.

    `store_port` is the port of the store that this agent hosts if it becomes the first member of the next round.
    """

    worker: int
    round: int
    pids: tuple[int, ...]
    # A new store for every round: torch distinguishes attempts by a restart count, which stays 0 here
    # (docs/decisions/023).
    store_port: int


class Crashed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A process of this agent failed in `round`.

    Sent when it has ended, once a round, and before that for each process that ends because of an exception: it is
    `leaving`, and nothing follows from it yet. Its peers fail while it ends.

    `failed` is the time on the host's monotonic clock: among several agents' processes, the first to fail is the cause.
    `words` are its last lines, below a line that names their file, "" when it wrote none.
    """

    worker: int
    round: int
    local_rank: int
    pid: int
    # The agent does not judge: when another agent has died, this crash is a consequence and costs no restart. Only the
    # supervisor sees both (docs/decisions/023).
    exit_code: int
    # Named as in the version before: its supervisors still direct agents.
    failed: float = msgspec.field(name="ended")
    leaving: bool = False
    words: str = ""


class Noted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A process of this agent did what `note` says for the first time in `round`, see `torchrun/notes.py`."""

    worker: int
    round: int
    note: str


class Done(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """All processes of this agent ended with exit code 0 in `round`."""

    worker: int
    round: int


# --- from the supervisor ----------------------------------------------------------------------------------------------


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The worker is to prepare for this training and to answer WorkerReady.

    With `rehearse` other workers train in the meantime, so there is time to compute one shard for practice. The
    one-time cost of a process, for kernels and memory, is then spent before any other member waits for it.
    """

    training: int
    payload: str
    rehearse: bool = False


# A level, not an edge: it names all members, so a member that missed a generation joins the newest one
# (docs/decisions/010).
class Generation(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The members of a generation, sent to every member of the current and of this one.

    Survivors come first, in their former order. A planned change is sent when the previous generation is complete:
    every member has Joined, every leaver has Left. After a death the next generation is sent at once, even when the
    previous one never formed. A worker that still waits for an older generation gives it up. A generation without
    members suspends the training.

    After `budget` epochs, unless these are all, the members wait for a newer generation. None is no bound.

    `gone` are the workers that were lost since the generation before, as members or on their way out.
    """

    training: int
    number: int
    members: tuple[Member, ...]
    # A part of the generation, so that all members have the same one at the same step (decision 046).
    budget: int | None = None
    # Where a machine is cut off its peers see nothing, and would wait for it without an end (decision 059).
    gone: tuple[int, ...] = ()


class TrainingDone(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The training is over: `train()` may return in the driver."""

    training: int
    updates: int


class TrainingFailed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The training has failed: `train()` raises with this message in the driver."""

    training: int
    message: str


class Halt(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Every agent of `round` ends its processes (SIGTERM, then SIGKILL) and answers Stopped.

    The next round starts when all have answered: two rounds of a script never run at once.
    """

    # torchrun itself does not wait for all: a checkpoint written at SIGTERM may be incomplete when its next round loads
    # it (docs/decisions/023).
    round: int


class Round(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A new round of a torchrun job, sent to every agent. Agents that are no member end. Members are in rank order.

    The processes meet at the first member's store. `restarts` is the number of earlier rounds that a crash ended.
    """

    number: int
    members: tuple[Member, ...]
    # Counted by the job and not by an agent, because TORCHELASTIC_RESTART_COUNT must be the same in every process. A
    # change of membership does not count (docs/decisions/023).
    restarts: int


class Drain(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A replica of a deployment answers what it has taken, takes nothing more, and exits with 0."""


FromDriver = DriverHello | TrainRequest | Scaled | Failed
FromWorker = WorkerHello | WorkerReady | Joined | Left | Broken | Progress | EpochMeasured | Held | Trained | Failed
FromAgent = WorkerHello | Stopped | Began | Noted | Crashed | Done | Failed
ToDriver = TrainingDone | TrainingFailed
ToWorker = Begin | Generation
ToAgent = Halt | Round
ToReplica = Drain

Upward = FromDriver | FromWorker | FromAgent
Downward = ToDriver | ToWorker | ToAgent | ToReplica

# Both raise msgspec.ValidationError for a malformed message.
decode_upward: Callable[[bytes], Upward] = msgspec.json.Decoder(Upward).decode
decode_downward: Callable[[bytes], Downward] = msgspec.json.Decoder(Downward).decode


def encode(message: Upward | Downward) -> bytes:
    """Return a message as one line, newline included."""
    # JSON has no bare line break, so a line is a message.
    return msgspec.json.encode(message) + b"\n"
