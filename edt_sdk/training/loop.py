"""The steps of a training one after another, in one member, from generation to generation until the end.

Every exchange tells the smallest generation number that all members have heard of. Once it exceeds the current one,
everybody switches right behind that step. A member that loses the others drops the group and waits for a newer
generation. Either way the members of the next one meet, tell each other how far they are, and whoever is behind
receives the state of one who is not (`membership.handover`). No member ever asks another whether to switch.

A step is atomic: position, totals and model change together, when everything of it has arrived. Rank 0 alone writes:
commit log and metrics, checkpoints, progress. See docs/decisions/010.
"""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from edt_sdk.schemas.link import Broken, Generation, Joined, Left, Trained
from edt_sdk.training import custom_test, lines, payload, state
from edt_sdk.training.agenda import Agenda
from edt_sdk.training.group import Group
from edt_sdk.training.header import ShardStats
from edt_sdk.training.heartbeat import Heartbeat
from edt_sdk.training.hooks import Hooks
from edt_sdk.training.lines import LastUpdate
from edt_sdk.training.link import SUPERVISOR_GONE, Link
from edt_sdk.training.loader import ShardLoader
from edt_sdk.training.logging_hooks import WorkerLoggers
from edt_sdk.training.lost import PeerLost, Superseded, is_lost_peer
from edt_sdk.training.lr_schedule import LearningRate
from edt_sdk.training.membership import NO_STATE, Membership, Place, handover, is_member
from edt_sdk.training.order import Order, TestOrder, TestStep, TrainStep
from edt_sdk.training.payload import Training
from edt_sdk.training.progress import ProgressReporter
from edt_sdk.training.recorder import Recorder, TestLine
from edt_sdk.training.rolling import Keeper
from edt_sdk.training.schedule import Cursor, EpochBegin, EpochEnd, Final, Schedule, Step, TrainBegin, TrainEnd
from edt_sdk.training.shard import ModelFacade
from edt_sdk.training.totals import Totals, accuracy
from edt_sdk.training.update import Committed, UpdateEngine
from edt_sdk.training.warm_start import load_weights

log = logging.getLogger(__name__)

_NOTHING = Totals()


@dataclass(frozen=True, slots=True)
class Data:
    """Samples and their order; the test order has no steps when there is nothing to validate with."""

    order: Order
    test_order: TestOrder
    loader: ShardLoader


@dataclass(frozen=True, slots=True)
class Outside:
    """What the loop reads from and writes to.

    Attributes:
        number: of the training within the job.
        payload: the file of the training, should its initial state be needed once more.
        warm_start: `.pth` file with the weights to begin with, None for the payload's.
    """

    number: int
    link: Link
    recorder: Recorder
    keeper: Keeper
    loggers: WorkerLoggers
    payload: Path
    warm_start: Path | None


@dataclass(frozen=True, slots=True)
class Where:
    """Where a member is: all that a joiner needs, and a checkpoint, beside model and optimizer.

    Attributes:
        position: in the schedule.
        train: of the last update.
        epoch: of the epoch under way.
        validation: of the validation under way.
        test: of the last complete one.
        last, last_test: what rank 0 wrote last, or should have.
        callbacks: the objects as bytes, None as they came with the payload.
        learning_rate: state of the scheduler.
    """

    position: int = 0
    train: Totals = _NOTHING
    epoch: Totals = _NOTHING
    validation: Totals = _NOTHING
    test: Totals = _NOTHING
    last: LastUpdate | None = None
    last_test: TestLine | None = None
    callbacks: bytes | None = None
    learning_rate: dict[str, Any] | None = None


class Loop:
    """One worker's part in one training.

    Args:
        training: from the payload; its model and optimizer are those of the engine.
        seed: the job's.
        data: what is trained on.
        engine: computes and commits.
        place: of this worker.
        outside: what it reads from and writes to.
        heartbeat: around the loader of `data`.
    """

    def __init__(
        self,
        training: Training,
        seed: int,
        data: Data,
        engine: UpdateEngine,
        place: Place,
        outside: Outside,
        heartbeat: Heartbeat,
    ) -> None:
        options = training.options
        self._training = training
        self._model: nn.Module = training.model
        self._seed = seed
        self._data = data
        self._engine = engine
        self._place = place
        self._outside = outside
        self._heartbeat = heartbeat
        self._shards = len(options.shards)
        own_test = training.fn_test is not None
        self._agenda = Agenda(data.order, data.test_order, alone=own_test)
        self._schedule = Schedule(
            epochs=options.epochs,
            updates_per_epoch=data.order.updates_per_epoch,
            # With a test function of the user's, a validation is one step that rank 0 does alone.
            validation_steps=min(1, data.test_order.steps) if own_test else data.test_order.steps,
            validation_freq=options.validation_freq,
            checkpoint_freq=options.checkpoint_freq,
        )
        self._cursor = Cursor(self._schedule)
        self._train = self._epoch = self._validation = self._test = Totals()
        self._last: LastUpdate | None = None
        self._last_test: TestLine | None = None
        self._hooks = Hooks(training.callbacks, self._model, training.optimizer, options.epochs, seed)
        self._learning_rate = LearningRate(training.lr_scheduler, options.lr_step)
        self._progress = ProgressReporter(outside.link, place.worker, outside.number)
        self._member: Membership | None = None
        self._former: Membership | None = None  # kept until the next group is built
        self._has_state = False
        self._dirty = False  # a part of somebody's state is in the model
        self._writing = False  # as rank 0, without a gap: the logs are as they should be
        self._begun = False
        self._code = 0

    def run(self, first: Generation) -> int:
        """Train from the generation this worker first belongs to, until the end or until it is no member any more.

        Returns:
            The exit code: 0, or 1 when the supervisor is gone.

        Raises:
            Exception: what the user's code raised.
        """
        self._outside.link.become_member()
        generation: Generation | None = first
        while generation is not None:
            generation = self._live(generation)
        self._drop_groups()
        self._outside.recorder.close()
        self._outside.keeper.close()
        if self._begun:
            self._outside.loggers.end()
        return self._code

    # --- from generation to generation --------------------------------------------------------------------------------

    def _live(self, generation: Generation) -> Generation | None:
        """Be a member of a generation; the next one, None when there is none for this worker."""
        lost = ""
        try:
            return self._through(generation)
        except Superseded:
            pass
        except (RuntimeError, PeerLost) as error:
            if not is_lost_peer(error):
                raise
            lost = str(error) or "a member is gone"
        # Not before the end of the except block: until then the traceback keeps the broken group alive.
        self._drop_groups()
        self._writing = False
        if lost:
            log.info("generation %d is broken (%s)", generation.number, lost)
            self._outside.link.send(
                Broken(worker=self._place.worker, generation=generation.number, update=self._cursor.updates)
            )
        self._heartbeat.waiting()
        newer = self._outside.link.wait_newer(generation.number)
        if newer is not None and is_member(newer, self._place.worker):
            return newer
        if newer is None or not newer.members:
            self._save()
        self._part(newer)
        return None

    def _through(self, generation: Generation) -> Generation | None:
        self._enter(generation)
        while not isinstance(self._cursor.step, Final):
            pending = self._do(self._cursor.step)
            if pending > self._now.number:
                return self._switch(pending)
        self._finish()
        return None

    def _enter(self, generation: Generation) -> None:
        """Become a member: build the group, move the state, plan what to load, say so."""
        link = self._outside.link

        def waiting() -> None:
            if link.pending > generation.number:
                raise Superseded

        self._heartbeat.waiting()
        waiting()
        self._member = Membership(generation, self._place, self._shards, waiting)
        self._member.group.watch = self._heartbeat
        former, self._former = self._former, None
        self._move_state()
        self._heartbeat.updates = self._cursor.updates
        self._data.loader.plan(self._agenda.keys(self._cursor, self._now.block, self._now.rank))
        link.send(Joined(worker=self._place.worker, generation=generation.number, update=self._cursor.updates))
        self._take_the_pen()
        if not self._begun:
            self._begun = True
            self._outside.loggers.begin()
        if former is not None:
            former.close()

    def _switch(self, number: int) -> Generation | None:
        """Behind the step just done all know of generation `number`; None when this worker is not part of it."""
        after = None if number == SUPERVISOR_GONE else self._outside.link.generation(number)
        if number != SUPERVISOR_GONE and after is None:
            # Announced to others only, before the supervisor died: they will not come to any meeting of this group.
            self._drop_groups()
            self._save()
        elif after is None or not after.members:
            self._save_together()
        elif is_member(after, self._place.worker):
            self._former, self._member = self._member, None
            if after.members[0].worker != self._place.worker:
                self._writing = False
            return after
        self._part(after)
        return None

    def _part(self, after: Generation | None) -> None:
        """Be no member any more, since `after` is without this worker; None: the supervisor is gone."""
        self._drop_groups()
        self._outside.recorder.close()
        self._outside.keeper.close()
        if after is None:
            self._code = 1
            return
        self._outside.link.finish()
        self._outside.link.send(Left(worker=self._place.worker, generation=after.number, update=self._cursor.updates))

    def _save_together(self) -> None:
        """Rank 0 writes a checkpoint, the others wait for it; without rank 0 each of them writes it."""
        group, rank = self._now.group, self._now.rank
        if rank == 0:
            self._save()
        self._heartbeat.waiting()
        if not _met(group) and rank != 0:
            self._drop_groups()
            self._save()

    def _save(self) -> None:
        if self._has_state:
            self._outside.keeper.save(self._capture, self._cursor.position, self._cursor.updates)

    def _take_the_pen(self) -> None:
        """Rank 0 goes on in the logs where the last one stopped."""
        if self._now.rank != 0:
            self._writing = False
            self._outside.recorder.close()
            return
        if not self._writing:
            outside = self._outside
            lines.mend(outside.recorder, self._cursor.updates, self._last, self._last_test)
            self._pay()
            self._writing = True
        self._progress.report(self._cursor, self._train, self._test)

    def _pay(self) -> None:
        """Write the files of epochs that the last rank 0 died over.

        It has put the state in memory, unless it died before; then it has given no update either, and the state is
        what the survivors hold.
        """
        keeper = self._outside.keeper
        keeper.pay(self._cursor.position, self._fresh)
        ended = lines.epoch_ended(self._cursor, hooks=bool(self._training.callbacks))
        if ended is not None and ended.checkpoint and not keeper.has_epoch(ended.epoch + 1):
            self._write_epoch(ended)

    def _fresh(self) -> tuple[nn.Module, Optimizer]:
        training = payload.read(self._outside.payload)
        return training.model, training.optimizer

    def _drop_groups(self) -> None:
        memberships = self._member, self._former
        self._member = self._former = None
        for membership in memberships:
            if membership is not None:
                membership.close()

    @property
    def _now(self) -> Membership:
        if self._member is None:
            raise AssertionError("no step is done between two generations")
        return self._member

    # --- state --------------------------------------------------------------------------------------------------------

    def _move_state(self) -> None:
        now = self._now
        who = handover(now.positions(self._cursor.position if self._has_state else NO_STATE))
        source = who.takes.get(now.rank)
        if source is not None:
            # From the first byte on: a part of a state is none.
            self._dirty = not self._has_state
            self._restore(state.receive(now.group, source, self._model, self._place.device, staged=self._has_state))
            return
        if who.nobody:
            self._begin()
        takers = who.gives.get(now.rank, ())
        if takers:
            state.send(now.group, takers, self._capture())

    def _begin(self) -> None:
        """Nobody has a state: the newest checkpoint's, else the payload's."""
        saved = self._outside.keeper.newest()
        if saved is not None:
            log.info("going on behind update %d, from %s", saved.updates, saved.name)
            self._restore(saved.state)
            return
        if self._dirty:
            fresh = payload.read(self._outside.payload)
            schedule = LearningRate(fresh.lr_scheduler, fresh.options.lr_step).state()
            self._restore(state.capture(fresh.model, fresh.optimizer, Where(learning_rate=schedule)))
        if self._outside.warm_start is not None:
            load_weights(self._outside.warm_start, self._model)
        self._has_state = True

    def _capture(self) -> state.State:
        where = Where(
            position=self._cursor.position,
            train=self._train,
            epoch=self._epoch,
            validation=self._validation,
            test=self._test,
            last=self._last,
            last_test=self._last_test,
            callbacks=self._hooks.frozen,
            learning_rate=self._learning_rate.state(),
        )
        return state.capture(self._model, self._training.optimizer, where)

    def _restore(self, received: state.State) -> None:
        where: Where = state.restore(received, self._model, self._training.optimizer)
        self._cursor = Cursor(self._schedule, where.position)
        self._train, self._epoch = where.train, where.epoch
        self._validation, self._test = where.validation, where.test
        self._last, self._last_test = where.last, where.last_test
        self._hooks.adopt(where.callbacks)
        self._learning_rate.restore(where.learning_rate)
        self._has_state, self._dirty, self._writing = True, False, False

    # --- steps --------------------------------------------------------------------------------------------------------

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
            case TrainEnd():
                self._hook("on_train_end")
            case Final():
                raise AssertionError("the last step is no step of the loop")
        return 0

    def _advance(self) -> None:
        self._cursor = self._cursor.next
        self._heartbeat.updates = self._cursor.updates

    def _hook(self, name: str, *arguments: int) -> None:
        now, step = self._now, self._cursor.step
        self._hooks.tell(loss=_loss(self._train), test_loss=_loss(self._test))
        if now.rank == 0:
            self._heartbeat.computing()
        else:
            self._heartbeat.waiting()

        def done() -> None:
            if isinstance(step, EpochEnd):
                self._end_epoch(step)
            else:
                self._advance()
            self._heartbeat.waiting()

        self._hooks.run(now.group, self._cursor.position, name, *arguments, done=done)

    def _end_epoch(self, step: EpochEnd) -> None:
        self._learning_rate.ended_epoch(_loss(self._epoch), _loss(self._test))
        self._epoch = Totals()
        self._advance()
        if step.checkpoint and self._now.rank == 0:
            self._write_epoch(step)

    def _write_epoch(self, step: EpochEnd) -> None:
        self._outside.keeper.epoch(
            step.epoch + 1,
            self._capture,
            self._cursor.position,
            self._cursor.updates,
            self._model,
            self._training.optimizer,
        )

    def _update(self, step: TrainStep) -> int:
        now, outside = self._now, self._outside
        self._engine.compute(step, now.block, self._heartbeat, now.group)
        committed = self._engine.commit(now.group, pending=outside.link.pending)
        self._train = Totals().add(committed.stats)
        self._epoch = self._epoch.add(committed.stats)
        self._learning_rate.updated(self._train.loss, _loss(self._test))
        self._last = LastUpdate(
            step, committed, now.generation, self._shards, self._schedule.updates_per_epoch, time.time()
        )
        self._advance()
        if now.rank == 0:
            outside.recorder.commit(self._last.commit_line())
            outside.recorder.metric(self._last.train_line())
            self._progress.committed(self._cursor, self._train, self._test)
            outside.keeper.committed(self._capture, self._cursor.position, self._cursor.updates)
        for shard in self._own(committed):
            outside.loggers.train(step.epoch, now.world, shard.loss, accuracy(shard), shard.samples, shard.metrics)
        return committed.pending

    def _validate(self, step: TestStep) -> int:
        now, link = self._now, self._outside.link
        committed = self._engine.evaluate(step, now.block, self._heartbeat, now.group, pending=link.pending)
        self._validation = self._validation.add(committed.stats)
        self._end_test(step, self._validation if self._schedule.closes_validation(step) else None)
        for shard in self._own(committed):
            self._outside.loggers.test(step.epoch, shard.loss, accuracy(shard), shard.metrics)
        return committed.pending

    def _custom_test(self, step: TestStep) -> int:
        now, training = self._now, self._training
        if now.rank != 0 or training.fn_test is None:
            self._heartbeat.waiting()
            self._end_test(step, _single(pickle.loads(now.group.broadcast_bytes(None, 0))))
            return 0
        self._heartbeat.computing()
        facade = ModelFacade(self._model, training.optimizer, training.loss_function)
        batches = custom_test.TestBatches(self._heartbeat, list(self._agenda.whole_test(step)))
        loss = custom_test.run(training.fn_test, facade, self._model, batches, self._seed)
        # Done, for this member, before the others are told: it never runs twice here.
        self._end_test(step, _single(loss))
        self._heartbeat.waiting()
        now.group.broadcast_bytes(pickle.dumps(loss), 0)
        return 0

    def _end_test(self, step: TestStep, complete: Totals | None) -> None:
        """A step of a validation is done; `complete` are the totals if it was the last one."""
        if complete is not None:
            self._test, self._validation = complete, Totals()
            self._last_test = lines.test_line(step.epoch, self._cursor.updates, complete, self._now.world)
        self._advance()
        if self._now.rank == 0 and complete is not None and self._last_test is not None:
            self._outside.recorder.metric(self._last_test)
            self._progress.report(self._cursor, self._train, self._test)

    def _finish(self) -> None:
        """Rank 0 writes the final files; until it has said so, the others still have the state."""
        now, outside = self._now, self._outside
        if now.rank == 0:
            self._heartbeat.waiting()
            outside.keeper.final(self._model, self._training.optimizer)
            self._progress.report(self._cursor, self._train, self._test)
            if outside.link.pending == SUPERVISOR_GONE:
                self._save()
            outside.recorder.close()
            outside.link.send(Trained(worker=self._place.worker, training=outside.number, updates=self._cursor.updates))
        self._heartbeat.waiting()
        if not _met(now.group) and now.rank != 0:
            # Perhaps before it said so. If it has, the supervisor needs no state any more, and ends this process.
            raise PeerLost(f"generation {now.number} broke before its end was known")
        outside.link.finish()

    def _own(self, committed: Committed) -> Iterator[ShardStats]:
        return (shard for shard in committed.stats if shard.worker == self._place.worker)


def _met(group: Group) -> bool:
    """Wait for all members, who meet for the last time; False when one of them is gone before."""
    meetings = 0
    try:
        while meetings < 2:
            group.barrier()
            # The second one is for those who are still on their way out of the first: sockets stay open until then.
            meetings += 1
    except RuntimeError as error:
        if not is_lost_peer(error):
            raise
    return meetings > 0


def _loss(totals: Totals) -> float | None:
    return totals.loss if totals.samples else None


def _single(loss: float) -> Totals:
    """One number for the whole set: a single sample of that loss."""
    return Totals(samples=1, loss_sum=loss, right=None)
