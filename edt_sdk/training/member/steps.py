"""Do one step of a training in one member: an update, a step of a validation or a hook.

A step is atomic: position, totals and model change together, once all data of the step have arrived. Rank 0 alone
writes commit log, metrics, checkpoints and progress. `loop.py` decides which step comes next, and among which members.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator

from edt_sdk.schemas.wire.link import EpochMeasured
from edt_sdk.training.exchange.header import ShardStats
from edt_sdk.training.member.membership import GroupMembership
from edt_sdk.training.member.parts import Data, TrainingParts
from edt_sdk.training.member.progress import ProgressReporter
from edt_sdk.training.member.training_state import TrainingState
from edt_sdk.training.records import lines
from edt_sdk.training.sampling.order import BatchKey, TestStep, TrainStep
from edt_sdk.training.sampling.schedule import (
    EpochBegin,
    EpochEnd,
    Final,
    Schedule,
    Step,
    TrainBegin,
    TrainEnd,
    UpdateEnd,
)
from edt_sdk.training.state import previous_version as former
from edt_sdk.training.update.totals import Totals, accuracy
from edt_sdk.training.update.update import Committed
from edt_sdk.training.update.user_functions import ModelFacade
from edt_sdk.training.user import custom_test
from edt_sdk.training.user.hooks import follows_updates
from edt_sdk.training.user.payload import Training
from edt_sdk.training.validation.tally import portable, received

# From this many bytes on, gradients take tens of ms to exchange, and an all-gather of a number less than 1 ms (decision
# 035).
_MUCH = 16 << 20


class Steps:
    """Does the steps of a training in one worker. `current` is the state of the training."""

    def __init__(self, parts: TrainingParts) -> None:
        training = parts.training
        self._training = training
        self._data = parts.data
        self._worker = parts.endpoint.worker
        self._parts = parts
        self._heartbeat = parts.heartbeat
        self._validation_pass = parts.validation_pass
        self._shards = len(training.options.shards)
        self._schedule = schedule_of(training, parts.data, only_tests=parts.validation_pass is not None)
        self.current = TrainingState(training, self._schedule, parts.seed)
        self.progress = ProgressReporter(parts.link, self._worker, parts.number)

    def do(self, step: Step, now: GroupMembership) -> int:
        """Do the next step with the members of `now`.

        Return the smallest generation number that all members have heard of, 0 where nothing was exchanged. An
        exception is a lost member (see `peer_errors.is_lost_peer`), or comes from the user's code.
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
            case UpdateEnd():
                self._hook(now, "on_update_end", step.update)
            case EpochEnd():
                self._hook(now, "on_epoch_end", step.epoch)
            case TrainEnd():
                self._hook(now, "on_train_end")
            case Final():
                raise AssertionError("the last step is no step of the loop")
        return 0

    def keys(self, now: GroupMembership) -> Iterator[BatchKey]:
        """Yield the keys of the micro-batches that this member takes from now to the end, if nothing changes."""
        cursor = self.current.cursor
        for position in range(cursor.position, len(cursor.schedule)):
            step = cursor.schedule[position]
            if isinstance(step, TrainStep):
                yield from self._data.order.keys(step, now.block)
            elif isinstance(step, TestStep):
                if self._training.fn_test is None:
                    yield from self._data.test_order.keys(step, now.block)
                elif now.rank == 0:
                    yield from self._whole_test(step)

    def _whole_test(self, step: TestStep) -> Iterator[BatchKey]:
        for index in range(self._data.test_order.steps):
            yield from self._data.test_order.keys(TestStep(step.epoch, index), range(self._shards))

    def _advance(self) -> None:
        self.current.cursor = self.current.cursor.next
        self._heartbeat.updates = self.current.updates

    def _hook(self, now: GroupMembership, name: str, *arguments: int) -> None:
        step = self.current.cursor.step
        self.current.hooks.tell(loss=_loss(self.current.train), test_loss=_loss(self.current.test))
        # Only rank 0 runs the hook. If it hangs, the heartbeats must show that rank 0 computes and the others wait.
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

        self.current.hooks.run(now.group, self.current.position, name, *arguments, done=done)

    def _end_epoch(self, step: EpochEnd, now: GroupMembership) -> None:
        self.current.learning_rate.step("epoch", _loss(self.current.epoch), _loss(self.current.test))
        self.current.ended, self.current.epoch = self.current.epoch, Totals()
        self._advance()
        if step.checkpoint and now.rank == 0:
            self.write_epoch(step)

    def write_epoch(self, step: EpochEnd) -> None:
        """Write the files of the epoch that ends with `step`. The current state must be that of the epoch's end."""
        self._parts.keeper.epoch(
            step.epoch + 1,
            self.current.capture,
            self.current.position,
            self.current.updates,
            self.current.model,
            self.current.optimizer,
        )

    def _update(self, step: TrainStep, now: GroupMembership) -> int:
        parts = self._parts
        parts.engine.compute(step, now.block, self._heartbeat, now.group)
        committed = parts.engine.commit(now.group, pending=parts.link.pending)
        self.current.has_committed(step, committed, now.generation, self._shards, self._schedule.updates_per_epoch)
        self.current.learning_rate.step("update", self.current.train.loss, _loss(self.current.test))
        # Position first, then the logs: if rank 0 dies in between, the next rank 0 writes the missing lines from its
        # own `last` (`records/lines.py`).
        self._advance()
        if now.rank == 0 and self.current.last is not None:
            if parts.engine.inexact and not self.progress.inexact:
                self.progress.inexact = parts.engine.inexact
                self.progress.report(self.current)
            parts.recorder.commit(self.current.last.commit_line())
            parts.recorder.metric(self.current.last.train_line())
            self.progress.advanced(self.current, self.current.train.samples)
            parts.keeper.committed(self.current.capture, self.current.position, self.current.updates)
        for shard in self._own(committed):
            parts.loggers.train(step.epoch, now.world, shard.loss, accuracy(shard), shard.samples, shard.metrics)
        return self._heard_by_all(committed.pending, now)

    def _heard_by_all(self, told: int, now: GroupMembership) -> int:
        """Return the newest generation that all members know of after an update.

        `told` was exchanged before the gradients were, and before the optimizer's step. Where these take long, members
        exchange the number once more, so that a generation announced in the meantime need not wait for another update
        (decision 035). The update stays committed even if this exchange fails.
        """
        if told > now.number or (now.world > 1 and self._parts.engine.gradient_bytes < _MUCH):
            return told
        pending = self._parts.link.pending
        return pending if now.world == 1 else min(now.gathered(pending))

    def _validate(self, step: TestStep, now: GroupMembership) -> int:
        link, validation_pass = self._parts.link, self._validation_pass
        if validation_pass is None:
            committed = self._parts.engine.evaluate(step, now.block, self._heartbeat, now.group, pending=link.pending)
        else:
            validation_pass.begin()
            committed = self._parts.engine.evaluate(
                step, now.block, self._heartbeat, now.group, pending=link.pending, observe=validation_pass.observe
            )
            self._heartbeat.waiting()
            self.current.tally = self.current.tally + validation_pass.together(now.group)
        self.current.validation = self.current.validation.add(committed.stats)
        self._end_test(step, now, self.current.validation if self._schedule.closes_validation(step) else None)
        if validation_pass is not None and now.rank == 0:
            self.progress.advanced(self.current, sum(shard.samples for shard in committed.stats))
        for shard in self._own(committed):
            self._parts.loggers.test(step.epoch, shard.loss, accuracy(shard), shard.metrics)
        return committed.pending

    def _custom_test(self, step: TestStep, now: GroupMembership) -> int:
        training = self._training
        if now.rank != 0 or training.fn_test is None:
            self._heartbeat.waiting()
            loss, counts = former.loads(now.group.broadcast_bytes(None, 0))
            self.current.tally = received(counts)
            self._end_test(step, now, _single(loss))
            return 0
        self._heartbeat.computing()
        facade = ModelFacade(self.current.model, training.optimizer, training.loss_function)
        batches = custom_test.TestBatches(self._heartbeat, list(self._whole_test(step)))
        loss = custom_test.run(training.fn_test, facade, self.current.model, batches, self._parts.seed)
        if self._validation_pass is not None:
            self._validation_pass.begin()
            custom_test.run(self._validation_pass.over, facade, self.current.model, batches, self._parts.seed)
            self.current.tally = self._validation_pass.seen
        # The step ends here before the broadcast: if that fails, the user's function must not run twice in this member.
        self._end_test(step, now, _single(loss))
        self._heartbeat.waiting()
        now.group.broadcast_bytes(pickle.dumps((loss, portable(self.current.tally))), 0)
        return 0

    def _end_test(self, step: TestStep, now: GroupMembership, complete: Totals | None) -> None:
        """Finish a step of a validation. `complete` holds the totals if it was the last step."""
        if complete is not None:
            if self._validation_pass is not None:
                complete = self._validation_pass.totals(complete, self.current.tally)
            self.current.test, self.current.validation = complete, Totals()
            self.current.last_test = lines.test_line(step.epoch, self.current.updates, complete, now.world)
            self.current.recent.add(self.current.last_test)
        self._advance()
        if now.rank == 0 and complete is not None and self.current.last_test is not None:
            self._parts.recorder.metric(self.current.last_test)
            self.report_validation(now)
            self.progress.report(self.current)

    def report_validation(self, now: GroupMembership) -> None:
        """Send the newest validation as rank 0 of a job with a budget. The supervisor reports each epoch's once."""
        line = self.current.last_test
        if line is not None and now.generation.budget is not None:
            self._parts.link.send(
                EpochMeasured(
                    worker=self._worker,
                    training=self._parts.number,
                    epoch=line.epoch + 1,
                    loss=line.loss,
                    accuracy=line.accuracy,
                    metrics=line.metrics,
                )
            )

    def conclude(self) -> None:
        """Write the result of a validation as rank 0, in case the last rank 0 died before it could."""
        if self._validation_pass is not None and self.current.last_test is not None:
            self._parts.recorder.metric(self.current.last_test)
            self._validation_pass.write(self.current.test, self.current.tally)

    def _own(self, committed: Committed) -> Iterator[ShardStats]:
        return (shard for shard in committed.stats if shard.worker == self._worker)


def schedule_of(training: Training, data: Data, *, only_tests: bool = False) -> Schedule:
    """Return the steps of a training, or of a validation, which has no updates."""
    options = training.options
    # With the user's own test function, a validation is one step that rank 0 does alone.
    own_test = training.fn_test is not None
    return Schedule(
        epochs=options.epochs,
        updates_per_epoch=0 if only_tests else data.order.updates_per_epoch,
        validation_steps=min(1, data.test_order.steps) if own_test else data.test_order.steps,
        validation_freq=options.validation_freq,
        checkpoint_freq=options.checkpoint_freq,
        update_hooks=any(follows_updates(callback) for callback in training.callbacks),
    )


def _loss(totals: Totals) -> float | None:
    return totals.loss if totals.samples else None


def _single(loss: float) -> Totals:
    """Return the totals of a single sample with this loss: the user's function returns one number for the whole set."""
    return Totals(samples=1, loss_sum=loss, right=None)
