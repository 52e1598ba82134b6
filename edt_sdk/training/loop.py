"""The steps of a training one after another, in one member; at a boundary, the change to the next generation.

Every exchange tells the smallest generation number that all members have heard of. Once it exceeds the current one,
everybody switches right behind that step: leavers go, survivors keep process, model, optimizer and loader and only
build another group, joiners receive the state from a survivor. No member ever asks another whether to switch.

Rank 0 alone writes: commit log and metrics, checkpoints, progress. Its callbacks move with it.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from edt_sdk.schemas.link import Generation, Joined, Left, Trained
from edt_sdk.training import checkpoint, custom_test, state
from edt_sdk.training.header import ShardStats
from edt_sdk.training.hooks import Hooks
from edt_sdk.training.link import Link
from edt_sdk.training.loader import ShardLoader
from edt_sdk.training.logging_hooks import WorkerLoggers
from edt_sdk.training.lost import PeerLost, is_lost_peer
from edt_sdk.training.membership import Membership, Place, check_succession, handover, is_member, rank_of
from edt_sdk.training.order import BatchKey, Order, TestOrder, TestStep, TrainStep
from edt_sdk.training.payload import Training
from edt_sdk.training.progress import ProgressReporter
from edt_sdk.training.recorder import CommitLine, Recorder, ShardLine, TestLine, TrainLine
from edt_sdk.training.schedule import Cursor, EpochBegin, EpochEnd, Final, Schedule, Step, TrainBegin
from edt_sdk.training.shard import ModelFacade
from edt_sdk.training.totals import Totals, accuracy
from edt_sdk.training.update import Committed, UpdateEngine


@dataclass(frozen=True, slots=True)
class Data:
    """Samples and their order; the test order has no steps when there is nothing to validate with."""

    order: Order
    test_order: TestOrder
    loader: ShardLoader


@dataclass(frozen=True, slots=True)
class Outside:
    """What the loop writes to.

    Attributes:
        number: of the training within the job.
        train_dir: for `.pth` files.
    """

    number: int
    link: Link
    recorder: Recorder
    loggers: WorkerLoggers
    train_dir: Path


@dataclass(frozen=True, slots=True)
class Where:
    """Where a member is, all that a joiner needs beside model and optimizer.

    Attributes:
        position: in the schedule.
        train: of the last update.
        validation: of the validation under way.
        test: of the last complete one.
    """

    position: int
    train: Totals
    validation: Totals
    test: Totals


class Loop:
    """One worker's part in one training.

    Args:
        training: from the payload; its model and optimizer are those of the engine.
        seed: the job's.
        data: what is trained on.
        engine: computes and commits.
        place: of this worker.
        outside: what it writes to.
    """

    def __init__(
        self, training: Training, seed: int, data: Data, engine: UpdateEngine, place: Place, outside: Outside
    ) -> None:
        options = training.options
        self._training = training
        self._model: nn.Module = training.model
        self._seed = seed
        self._data = data
        self._engine = engine
        self._place = place
        self._outside = outside
        self._shards = len(options.shards)
        # With a test function of the user's, a validation is one step that rank 0 does alone.
        parts = data.test_order.steps if training.fn_test is None else min(1, data.test_order.steps)
        self._schedule = Schedule(
            epochs=options.epochs,
            updates_per_epoch=data.order.updates_per_epoch,
            validation_steps=parts,
            validation_freq=options.validation_freq,
            checkpoint_freq=options.checkpoint_freq,
        )
        self._cursor = Cursor(self._schedule)
        self._train = self._validation = self._test = Totals()
        self._hooks = Hooks(training.callbacks, self._model, training.optimizer, options.epochs, seed)
        self._member: Membership | None = None
        self._progress = ProgressReporter(outside.link, place.worker, outside.number)

    def run(self, first: Generation) -> None:
        """Train from the generation this worker first belongs to, until the end or until it is no member any more.

        Raises:
            PeerLost: another member is gone; the group is dropped already, so that its other members notice too.
            Exception: what the user's code raised.
        """
        try:
            self._run(first)
            return
        except RuntimeError as error:
            if not is_lost_peer(error):
                raise
            why = str(error)
        # Not before the end of the except block: until then the traceback keeps the broken group alive.
        self._drop_group()
        raise PeerLost(why)

    def _run(self, first: Generation) -> None:
        self._enter(first)
        self._outside.loggers.begin()
        while not isinstance(self._cursor.step, Final):
            pending = self._do(self._cursor.step)
            self._cursor = self._cursor.next
            if pending > self._now.number and not self._switch(pending):
                return
        self._finish()

    def _do(self, step: Step) -> int:
        """Do one step; the smallest generation number all members have heard of, 0 where nothing was exchanged."""
        match step:
            case TrainStep():
                return self._update(step)
            case TestStep():
                return self._validate(step) if self._training.fn_test is None else self._custom_test(step)
            case TrainBegin():
                self._hook("on_train_begin")
            case EpochBegin():
                self._hook("on_epoch_begin", step.epoch)
            case EpochEnd():
                self._hook("on_epoch_end", step.epoch)
                if step.checkpoint and self._now.rank == 0:
                    checkpoint.save(self._outside.train_dir, step.epoch + 1, self._model, self._training.optimizer)
            case Final():
                raise AssertionError("the last step is no step of the loop")
        return 0

    def _hook(self, name: str, *arguments: int) -> None:
        self._hooks.run(self._now.group, self._cursor.position, name, *arguments)

    # --- steps --------------------------------------------------------------------------------------------------------

    def _update(self, step: TrainStep) -> int:
        self._engine.compute(step, self._now.block, self._data.loader)
        committed = self._engine.commit(self._now.group, pending=self._outside.link.pending)
        self._train = Totals().add(committed.stats)
        for shard in self._own(committed):
            self._outside.loggers.train(
                step.epoch, self._now.world, shard.loss, accuracy(shard), shard.samples, shard.metrics
            )
        if self._now.rank == 0:
            self._record_update(step, committed)
            self._progress.committed(self._cursor.next, self._train, self._test)
        return committed.pending

    def _validate(self, step: TestStep) -> int:
        committed = self._engine.evaluate(
            step, self._now.block, self._data.loader, self._now.group, pending=self._outside.link.pending
        )
        self._validation = self._validation.add(committed.stats)
        for shard in self._own(committed):
            self._outside.loggers.test(step.epoch, shard.loss, accuracy(shard), shard.metrics)
        if self._schedule.closes_validation(step):
            self._close_validation(step, self._validation)
        return committed.pending

    def _custom_test(self, step: TestStep) -> int:
        training = self._training
        data = None
        if self._now.rank == 0 and training.fn_test is not None:
            facade = ModelFacade(self._model, training.optimizer, training.loss_function)
            batches = custom_test.TestBatches(self._data.loader, list(self._test_keys(step, whole=True)))
            loss = custom_test.run(training.fn_test, facade, self._model, batches, self._seed)
            data = pickle.dumps(loss)
        loss = pickle.loads(self._now.group.broadcast_bytes(data, 0))
        # One number for the whole set: a single sample of that loss.
        self._close_validation(step, Totals(samples=1, loss_sum=loss, right=None))
        return 0

    def _close_validation(self, step: TestStep, totals: Totals) -> None:
        self._test, self._validation = totals, Totals()
        if self._now.rank == 0:
            self._record_validation(step)
            self._progress.report(self._cursor.next, self._train, self._test)

    def _finish(self) -> None:
        self._hook("on_train_end")
        self._outside.loggers.end()
        self._outside.link.finish()
        if self._now.rank == 0:
            checkpoint.save(self._outside.train_dir, checkpoint.FINAL, self._model, self._training.optimizer)
            self._progress.report(self._cursor, self._train, self._test)
            self._outside.recorder.close()
            self._outside.link.send(
                Trained(worker=self._place.worker, training=self._outside.number, updates=self._cursor.updates)
            )
        self._drop_group()

    # --- membership ---------------------------------------------------------------------------------------------------

    def _enter(self, generation: Generation) -> None:
        """Become a member: build the group, move the state, plan what to load, say so."""
        self._member = Membership(generation, self._place, self._shards)
        self._move_state()
        self._data.loader.plan(self._keys_from(self._cursor))
        self._outside.link.send(
            Joined(worker=self._place.worker, generation=generation.number, update=self._cursor.updates)
        )
        if self._now.rank == 0:
            self._progress.report(self._cursor, self._train, self._test)

    def _switch(self, number: int) -> bool:
        """Change to generation `number` behind the step just done; False when this worker is not part of it."""
        before, after = self._now, self._outside.link.generation(number)
        check_succession(before.generation, after)
        stays = is_member(after, self._place.worker)
        if not is_member(after, before.generation.members[0].worker):
            self._hooks.hand_over(before.group, to_me=stays and rank_of(after, self._place.worker) == 0)
        self._outside.recorder.close()
        self._drop_group()
        if stays:
            self._enter(after)
            return True
        self._outside.loggers.end()
        self._outside.link.finish()
        self._outside.link.send(Left(worker=self._place.worker, generation=number, update=self._cursor.updates))
        return False

    def _move_state(self) -> None:
        who, training, group = handover(self._now.generation), self._training, self._now.group
        source = who.takes.get(self._now.rank)
        if source is not None:
            received = state.receive(group, source, self._model, self._place.device)
            where: Where = state.restore(received, self._model, training.optimizer)
            self._cursor = Cursor(self._schedule, where.position)
            self._train, self._validation, self._test = where.train, where.validation, where.test
            return
        joiners = who.gives.get(self._now.rank, ())
        if joiners:
            where = Where(self._cursor.position, self._train, self._validation, self._test)
            captured = state.capture(self._model, training.optimizer, where)
            for joiner in joiners:
                state.send(group, joiner, captured)

    def _drop_group(self) -> None:
        member, self._member = self._member, None
        if member is not None:
            member.close()

    @property
    def _now(self) -> Membership:
        if self._member is None:
            raise AssertionError("no step is done between two generations")
        return self._member

    # --- data and records ---------------------------------------------------------------------------------------------

    def _keys_from(self, cursor: Cursor) -> Iterator[BatchKey]:
        """All micro-batches this member takes from here to the end, if it stays in this generation."""
        block, whole = self._now.block, self._now.rank == 0
        for position in range(cursor.position, len(self._schedule)):
            step = self._schedule[position]
            if isinstance(step, TrainStep):
                yield from self._data.order.keys(step, block)
            elif isinstance(step, TestStep):
                yield from self._test_keys(step, whole=whole, block=block)

    def _test_keys(self, step: TestStep, *, whole: bool, block: range = range(0)) -> Iterator[BatchKey]:
        """Of a step of the validation: a block's; for the user's own validation the whole test set, or nothing."""
        order = self._data.test_order
        if self._training.fn_test is None:
            yield from order.keys(step, block)
        elif whole:
            for index in range(order.steps):
                yield from order.keys(TestStep(step.epoch, index), range(self._shards))

    def _own(self, committed: Committed) -> Iterator[ShardStats]:
        return (shard for shard in committed.stats if shard.worker == self._place.worker)

    def _record_update(self, step: TrainStep, committed: Committed) -> None:
        now, filled = time.time(), {shard.shard: shard for shard in committed.stats}
        owners = [self._now.owner(shard) for shard in range(self._shards)]
        indices = [tuple(filled[n].indices.tolist()) if n in filled else () for n in range(self._shards)]
        self._outside.recorder.commit(
            CommitLine(
                update=step.update,
                epoch=step.epoch,
                generation=self._now.number,
                world=self._now.world,
                time=now,
                shards=tuple(
                    ShardLine(
                        shard=n,
                        # What the worker itself said; an empty shard was nobody's, and is its owner's.
                        pid=filled[n].pid if n in filled else owner.pid,
                        worker=filled[n].worker if n in filled else owner.worker,
                        indices=indices[n],
                    )
                    for n, owner in enumerate(owners)
                ),
            )
        )
        self._outside.recorder.metric(
            TrainLine(
                update=step.update,
                epoch=step.epoch,
                samples=self._train.samples,
                loss=self._train.loss,
                accuracy=self._train.accuracy,
                world=self._now.world,
                time=now,
                shards=tuple(
                    (filled[n].loss, accuracy(filled[n]), filled[n].samples) if n in filled else (None, None, 0)
                    for n in range(self._shards)
                ),
                workers=tuple(owner.worker for owner in owners),
                updates_per_epoch=self._schedule.updates_per_epoch,
                metrics=self._train.metrics,
            )
        )

    def _record_validation(self, step: TestStep) -> None:
        self._outside.recorder.metric(
            TestLine(
                epoch=step.epoch,
                update=self._cursor.updates - 1,
                loss=self._test.loss,
                accuracy=self._test.accuracy,
                time=time.time(),
                world=self._now.world,
                metrics=self._test.metrics,
            )
        )
