"""Make the log lines of an update and of a validation, and repair both logs when another member becomes rank 0.

Every member keeps its last update and validation, because rank 0 may die after a commit and before it logs the update.
The next rank 0 then writes the missing lines, or sets aside the lines of updates that no survivor has. Where rank 0
died at an epoch's end before its state was stored anywhere, the survivors' own state is still that of the epoch's end.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from edt_sdk.schemas.wire.link import Generation, Member
from edt_sdk.training.exchange.blocks import blocks
from edt_sdk.training.records.recorder import CommitLine, Recorder, ShardLine, TestLine, TrainLine
from edt_sdk.training.sampling.order import TrainStep
from edt_sdk.training.sampling.schedule import Cursor, EpochBegin, EpochEnd, TrainEnd
from edt_sdk.training.update.totals import Totals, accuracy
from edt_sdk.training.update.update import Committed

log = logging.getLogger(__name__)

# What a host sends to the server within some seconds, and more.
_RECENT_BYTES = 4 << 20
_RECENT_TESTS = 64


@dataclass(frozen=True, slots=True)
class LastUpdate:
    """Holds a committed update, as all members know it.

    Attributes:
        time: of the commit, seconds since the epoch (UTC).
        generation: the generation that computed it.
        updates_per_epoch: of the schedule.
    """

    step: TrainStep
    committed: Committed
    generation: Generation
    shards: int
    updates_per_epoch: int
    time: float

    @property
    def size(self) -> int:
        """Return about how many bytes it takes."""
        return 256 + sum(256 + shard.indices.nbytes for shard in self.committed.stats)

    def commit_line(self) -> CommitLine:
        """Return the line of the commit log, with the samples that each worker computed."""
        filled = {shard.shard: shard for shard in self.committed.stats}
        return CommitLine(
            update=self.step.update,
            epoch=self.step.epoch,
            generation=self.generation.number,
            world=len(self.generation.members),
            time=self.time,
            shards=tuple(
                ShardLine(
                    shard=n,
                    # The worker's own report. An empty shard has none, and is listed with its owner.
                    pid=filled[n].pid if n in filled else owner.pid,
                    worker=filled[n].worker if n in filled else owner.worker,
                    indices=tuple(filled[n].indices.tolist()) if n in filled else (),
                )
                for n, owner in enumerate(self._owners())
            ),
        )

    def train_line(self) -> TrainLine:
        """Return the line of the metrics."""
        filled = {shard.shard: shard for shard in self.committed.stats}
        totals = Totals().add(self.committed.stats)
        return TrainLine(
            update=self.step.update,
            epoch=self.step.epoch,
            samples=totals.samples,
            loss=totals.loss,
            accuracy=totals.accuracy,
            world=len(self.generation.members),
            time=self.time,
            shards=tuple(
                (filled[n].loss, accuracy(filled[n]), filled[n].samples) if n in filled else (None, None, 0)
                for n in range(self.shards)
            ),
            workers=tuple(owner.worker for owner in self._owners()),
            updates_per_epoch=self.updates_per_epoch,
            metrics=totals.metrics,
        )

    def _owners(self) -> Iterator[Member]:
        for member, block in zip(
            self.generation.members, blocks(self.shards, len(self.generation.members)), strict=True
        ):
            for _ in block:
                yield member


class RecentLines:
    """Keeps the newest lines of the logs for a while, because the host that writes them may be lost with them."""

    def __init__(self) -> None:
        self.updates: deque[LastUpdate] = deque()
        self.tests: deque[TestLine] = deque(maxlen=_RECENT_TESTS)
        self._bytes = 0

    def __iter__(self) -> Iterator[LastUpdate | TestLine]:
        yield from self.updates
        yield from self.tests

    def add(self, line: LastUpdate | TestLine) -> None:
        """Keep one more line."""
        if isinstance(line, TestLine):
            self.tests.append(line)
            return
        self.updates.append(line)
        self._bytes += line.size
        while self._bytes > _RECENT_BYTES:
            self._bytes -= self.updates.popleft().size

    def replace(self, lines: Iterable[LastUpdate | TestLine]) -> None:
        """Keep these lines instead."""
        self.updates.clear()
        self.tests.clear()
        self._bytes = 0
        for line in lines:
            self.add(line)


def test_line(epoch: int, updates: int, totals: Totals, world: int) -> TestLine:
    """Return the metrics line of a validation after `updates` updates."""
    return TestLine(
        epoch=epoch,
        update=updates - 1,
        loss=totals.loss,
        accuracy=totals.accuracy,
        time=time.time(),
        world=world,
        metrics=totals.metrics,
    )


test_line.__test__ = False  # type: ignore[attr-defined]  # not a test of pytest's


def repair(
    recorder: Recorder,
    updates: int,
    last: LastUpdate | None,
    test: TestLine | None,
    recent: Iterable[LastUpdate | TestLine] = (),
) -> None:
    """Bring both logs up to `updates` committed updates. Metrics that are already there are not recorded twice.

    `last` and `test` are the newest update and validation, as far as they are known, and `recent` those before them.
    """
    written = recorder.next_update()
    # The last rank 0 has written updates that no survivor has. They are recomputed (decision 010).
    if written > updates:
        recorder.rewind(updates)
    if last is None or last.step.update != updates - 1:
        return
    if written < updates - 1:
        _write_lost(recorder, written, updates - 1, recent)
    # At most one more line is missing: rank 0 writes it before it takes part in the next update.
    if written < updates:
        recorder.commit(last.commit_line())
    recorder.metric(last.train_line())
    for line in (*recent, test):
        if isinstance(line, TestLine) and line.update == updates - 1:
            recorder.metric(line)


def _write_lost(recorder: Recorder, written: int, updates: int, recent: Iterable[LastUpdate | TestLine]) -> None:
    """Write the lines of updates `written` to `updates` - 1, which were lost with the host that had written them."""
    missing = set(range(written, updates))

    def place(line: LastUpdate | TestLine) -> tuple[int, bool]:
        return (line.update, True) if isinstance(line, TestLine) else (line.step.update, False)

    for line in sorted(recent, key=place):
        if place(line)[0] not in range(written, updates):
            continue
        if isinstance(line, TestLine):
            recorder.metric(line)
        else:
            recorder.commit(line.commit_line())
            recorder.metric(line.train_line())
            missing.discard(line.step.update)
    if missing:
        log.warning("the log has no line for %d updates, which were lost with a host", len(missing))


def epoch_ended(cursor: Cursor, *, hooks: bool) -> EpochEnd | None:
    """Return the epoch's end at which a member's state still is, bit for bit, None when it has done more since.

    Callbacks may have `hooks` that change the state. Without them these steps do nothing.
    """
    before = cursor.position - 1
    if not hooks and before >= 0 and isinstance(cursor.schedule[before], EpochBegin | TrainEnd):
        before -= 1
    step = cursor.schedule[before] if before >= 0 else None
    return step if isinstance(step, EpochEnd) else None
