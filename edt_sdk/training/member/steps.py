"""One step of a training in one member: update, validation or hook, and what follows from it.

A step is atomic: position, totals and model change together, when everything of it has arrived. Rank 0 alone writes:
commit log and metrics, checkpoints, progress. Which step comes next, and among which members, is `loop.py`'s.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator

from edt_sdk.training.exchange.header import ShardStats
from edt_sdk.training.member.agenda import Agenda
from edt_sdk.training.member.environment import Data, Given
from edt_sdk.training.member.membership import Membership
from edt_sdk.training.member.progress import ProgressReporter
from edt_sdk.training.member.training_state import Standing
from edt_sdk.training.records import lines
from edt_sdk.training.records.lines import LastUpdate
from edt_sdk.training.sampling.order import TestStep, TrainStep
from edt_sdk.training.sampling.schedule import EpochBegin, EpochEnd, Final, Schedule, Step, TrainBegin, TrainEnd
from edt_sdk.training.state import former
from edt_sdk.training.update.model_facade import ModelFacade
from edt_sdk.training.update.totals import Totals, accuracy
from edt_sdk.training.update.update import Committed
from edt_sdk.training.user import custom_test
from edt_sdk.training.user.payload import Training
from edt_sdk.training.validation.tally import portable, received

# Bytes of gradients whose exchange takes some tens of ms; telling each other one number takes less than one.
_MUCH = 16 << 20


class Steps:
    """Does the steps of one training in one worker.

    Args:
        given: what the training is made of.

    Attributes:
        standing: where the training is.
        agenda: what is loaded for which step.
        progress: told by rank 0.
    """

    def __init__(self, given: Given) -> None:
        training, data = given.training, given.data
        self._training = training
        self._seed = given.seed
        self._engine = given.engine
        self._worker = given.place.worker
        self._outside = given.outside
        self._heartbeat = given.heartbeat
        self._examination = given.examination
        self._shards = len(training.options.shards)
        self._schedule = schedule_of(training, data, only_tests=given.examination is not None)
        self.standing = Standing(training, self._schedule, given.seed)
        self.agenda = Agenda(data.order, data.test_order, alone=training.fn_test is not None)
        self.progress = ProgressReporter(given.outside.link, self._worker, given.outside.number)

    def do(self, step: Step, now: Membership) -> int:
        """Do the next step with the members of `now`.

        Returns:
            The smallest generation number all members have heard of, 0 where nothing was exchanged.

        Raises:
            Exception: a member is gone (see `lost.is_lost_peer`), or what the user's code raised.
        """
        match step:
            case TrainStep():
                return self._update(step, now)
            case TestStep():
                return self._validate(step, now) if self._training.fn_test is None else self._custom_test(step, now)
            case TrainBegin():
                self._hook(now, "on_train_begin")
            case EpochBegin():
                self._hook(now, "on_epoch_begin", step.epoch)
            case EpochEnd():
                self._hook(now, "on_epoch_end", step.epoch)
            case TrainEnd():
                self._hook(now, "on_train_end")
            case Final():
                raise AssertionError("the last step is no step of the loop")
        return 0

    def _advance(self) -> None:
        self.standing.cursor = self.standing.cursor.next
        self._heartbeat.updates = self.standing.updates

    def _hook(self, now: Membership, name: str, *arguments: int) -> None:
        step = self.standing.cursor.step
        self.standing.hooks.tell(loss=_loss(self.standing.train), test_loss=_loss(self.standing.test))
        if now.rank == 0:
            self._heartbeat.computing()
        else:
            self._heartbeat.waiting()

        def done() -> None:
            if isinstance(step, EpochEnd):
                self._end_epoch(step, now)
            else:
                self._advance()
            self._heartbeat.waiting()

        self.standing.hooks.run(now.group, self.standing.position, name, *arguments, done=done)

    def _end_epoch(self, step: EpochEnd, now: Membership) -> None:
        self.standing.learning_rate.ended_epoch(_loss(self.standing.epoch), _loss(self.standing.test))
        self.standing.epoch = Totals()
        self._advance()
        if step.checkpoint and now.rank == 0:
            self.write_epoch(step)

    def write_epoch(self, step: EpochEnd) -> None:
        """The files of the epoch that ends with `step`, from the state right behind it, which must be that of now."""
        self._outside.keeper.epoch(
            step.epoch + 1,
            self.standing.capture,
            self.standing.position,
            self.standing.updates,
            self.standing.model,
            self.standing.optimizer,
        )

    def _update(self, step: TrainStep, now: Membership) -> int:
        outside = self._outside
        self._engine.compute(step, now.block, self._heartbeat, now.group)
        committed = self._engine.commit(now.group, pending=outside.link.pending)
        self.standing.train = Totals().add(committed.stats)
        self.standing.epoch = self.standing.epoch.add(committed.stats)
        self.standing.learning_rate.updated(self.standing.train.loss, _loss(self.standing.test))
        self.standing.last = LastUpdate(
            step, committed, now.generation, self._shards, self._schedule.updates_per_epoch, time.time()
        )
        self._advance()
        if now.rank == 0:
            outside.recorder.commit(self.standing.last.commit_line())
            outside.recorder.metric(self.standing.last.train_line())
            self.progress.committed(self.standing.cursor, self.standing.train, self.standing.test)
            outside.keeper.committed(self.standing.capture, self.standing.position, self.standing.updates)
        for shard in self._own(committed):
            outside.loggers.train(step.epoch, now.world, shard.loss, accuracy(shard), shard.samples, shard.metrics)
        return self._heard_by_all(committed.pending, now)

    def _heard_by_all(self, told: int, now: Membership) -> int:
        """The newest generation that all members know of, behind an update.

        What was `told` with the update was so before gradients were exchanged and the optimizer stepped. Where that
        takes long, who is announced meanwhile need not wait for another update: members tell each other once more. The
        update is done, whatever becomes of that.
        """
        if told > now.number or (now.world > 1 and self._engine.gradient_bytes < _MUCH):
            return told
        return now.lowest(self._outside.link.pending)

    def _validate(self, step: TestStep, now: Membership) -> int:
        link, examination = self._outside.link, self._examination
        if examination is None:
            committed = self._engine.evaluate(step, now.block, self._heartbeat, now.group, pending=link.pending)
        else:
            examination.begin()
            committed = self._engine.evaluate(
                step, now.block, self._heartbeat, now.group, pending=link.pending, observe=examination.observe
            )
            self._heartbeat.waiting()
            self.standing.tally = self.standing.tally + examination.together(now.group)
        self.standing.validation = self.standing.validation.add(committed.stats)
        self._end_test(step, now, self.standing.validation if self._schedule.closes_validation(step) else None)
        if examination is not None and now.rank == 0:
            self.progress.tested(self.standing.cursor, Totals().add(committed.stats), self.standing.test)
        for shard in self._own(committed):
            self._outside.loggers.test(step.epoch, shard.loss, accuracy(shard), shard.metrics)
        return committed.pending

    def _custom_test(self, step: TestStep, now: Membership) -> int:
        training = self._training
        if now.rank != 0 or training.fn_test is None:
            self._heartbeat.waiting()
            loss, counts = former.loads(now.group.broadcast_bytes(None, 0))
            self.standing.tally = received(counts)
            self._end_test(step, now, _single(loss))
            return 0
        self._heartbeat.computing()
        facade = ModelFacade(self.standing.model, training.optimizer, training.loss_function)
        batches = custom_test.TestBatches(self._heartbeat, list(self.agenda.whole_test(step)))
        loss = custom_test.run(training.fn_test, facade, self.standing.model, batches, self._seed)
        if self._examination is not None:
            self._examination.begin()
            custom_test.run(self._examination.over, facade, self.standing.model, batches, self._seed)
            self.standing.tally = self._examination.seen
        # Done, for this member, before the others are told: it never runs twice here.
        self._end_test(step, now, _single(loss))
        self._heartbeat.waiting()
        now.group.broadcast_bytes(pickle.dumps((loss, portable(self.standing.tally))), 0)
        return 0

    def _end_test(self, step: TestStep, now: Membership, complete: Totals | None) -> None:
        """A step of a validation is done; `complete` are the totals if it was the last one."""
        if complete is not None:
            if self._examination is not None:
                complete = self._examination.totals(complete, self.standing.tally)
            self.standing.test, self.standing.validation = complete, Totals()
            self.standing.last_test = lines.test_line(step.epoch, self.standing.updates, complete, now.world)
        self._advance()
        if now.rank == 0 and complete is not None and self.standing.last_test is not None:
            self._outside.recorder.metric(self.standing.last_test)
            self.progress.report(self.standing.cursor, self.standing.train, self.standing.test)

    def conclude(self) -> None:
        """Rank 0's last act in a validation: what came out is written, should the last rank 0 not have lived to."""
        if self._examination is not None and self.standing.last_test is not None:
            self._outside.recorder.metric(self.standing.last_test)
            self._examination.write(self.standing.test, self.standing.tally)

    def _own(self, committed: Committed) -> Iterator[ShardStats]:
        return (shard for shard in committed.stats if shard.worker == self._worker)


def schedule_of(training: Training, data: Data, *, only_tests: bool = False) -> Schedule:
    """The steps of a training, or of a validation, which has no updates."""
    options = training.options
    # With a test function of the user's, a validation is one step that rank 0 does alone.
    own_test = training.fn_test is not None
    return Schedule(
        epochs=options.epochs,
        updates_per_epoch=0 if only_tests else data.order.updates_per_epoch,
        validation_steps=min(1, data.test_order.steps) if own_test else data.test_order.steps,
        validation_freq=options.validation_freq,
        checkpoint_freq=options.checkpoint_freq,
    )


def _loss(totals: Totals) -> float | None:
    return totals.loss if totals.samples else None


def _single(loss: float) -> Totals:
    """One number for the whole set: a single sample of that loss."""
    return Totals(samples=1, loss_sum=loss, right=None)
