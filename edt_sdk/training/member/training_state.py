"""Hold the state that changes from step to step in one member, and capture and restore it as a whole.

Besides model and optimizer, the state contains the position in the schedule, the totals, the last update, the callback
objects and the learning-rate schedule. Joiners receive it, and checkpoints contain it. `state.py` handles the tensors.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from torch import nn
from torch.optim import Optimizer

from edt_sdk.schemas.wire.link import Generation
from edt_sdk.training.records.lines import LastUpdate, RecentLines
from edt_sdk.training.records.recorder import TestLine
from edt_sdk.training.sampling.order import TrainStep
from edt_sdk.training.sampling.schedule import Cursor, Schedule
from edt_sdk.training.state import state
from edt_sdk.training.update.totals import Totals
from edt_sdk.training.update.update import Committed
from edt_sdk.training.user.hooks import Hooks
from edt_sdk.training.user.lr_schedule import LearningRate
from edt_sdk.training.user.payload import Training
from edt_sdk.training.validation.tally import Tally

_NOTHING = Totals()
_UNSEEN = Tally()


@dataclass(frozen=True, slots=True)
class StateRecord:
    """Holds what a joiner and a checkpoint need in addition to model and optimizer.

    Attributes:
        position: in the schedule.
        train: totals of the last update.
        epoch: totals of the running epoch.
        validation: totals of the running validation.
        test: totals of the last complete validation.
        last, last_test: the update and the validation that rank 0 wrote last, or would have written.
        callbacks: the objects as bytes, None while they are as in the payload.
        learning_rate: state of the scheduler, in a script those of all its other objects.
        tally: counts of a validation job so far.
        ended: totals of the newest epoch that ended.
        recent, recent_tests: updates and validations before the last ones, which only a lost host may have logged.
        place: of a script, encoded.

    Fields are added at the end: pickles of version 0.1 hold the fields by their order, and end before `ended`, the
    oldest before `tally`.
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
    tally: Tally = _UNSEEN
    ended: Totals = _NOTHING
    recent: tuple[LastUpdate, ...] = ()
    recent_tests: tuple[TestLine, ...] = ()
    place: bytes = b""

    def encoded(self) -> tuple[bytes, dict[str, Any] | None]:
        """Return the record as plain data, so that no path of a module becomes part of a file."""
        # The state of a scheduler may hold any object of the user's, so it travels next to the encoded record.
        return _encoder.encode(replace(self, learning_rate=None)), self.learning_rate


def decoded(data: Any) -> StateRecord:
    """Return the record that `StateRecord.encoded` gave. Version 0.1 pickled the `StateRecord` itself."""
    if isinstance(data, StateRecord):
        return data
    encoded, learning_rate = data
    return replace(_decoder.decode(encoded), learning_rate=learning_rate)


def _array(value: Any) -> tuple[tuple[int, ...], bytes]:
    # msgspec encodes no numpy arrays: indices of shards and counts of a tally travel as shape and bytes.
    if isinstance(value, np.ndarray) and value.dtype == np.int64:
        return value.shape, value.tobytes()
    raise NotImplementedError


def _restored_array(_kind: type, value: Any) -> npt.NDArray[np.int64]:
    shape, data = value
    return np.frombuffer(data, np.int64).reshape(shape)


_encoder = msgspec.msgpack.Encoder(enc_hook=_array)
_decoder = msgspec.msgpack.Decoder(StateRecord, dec_hook=_restored_array)


@dataclass(frozen=True, slots=True)
class Reached:
    """Tells people how far a training is. A validation has no epochs. 0 stands for a total that is not known."""

    update: int
    total_updates: int
    epoch: int
    epochs: int


class MemberState(ABC):
    """Holds what the state of any training in a member consists of. Attributes that `StateRecord` has mean the same."""

    def __init__(self, model: nn.Module, optimizer: Optimizer) -> None:
        self.model = model
        self.optimizer = optimizer
        self.train = self.epoch = self.ended = self.validation = self.test = _NOTHING
        self.tally = _UNSEEN
        self.last: LastUpdate | None = None
        self.last_test: TestLine | None = None
        self.recent = RecentLines()

    @property
    @abstractmethod
    def position(self) -> int:
        """Return how far the training is. Members of the same position have the same state."""

    @property
    @abstractmethod
    def updates(self) -> int:
        """Return the number of committed updates."""

    @property
    @abstractmethod
    def reached(self) -> Reached:
        """Return how far the training is, for people."""

    @abstractmethod
    def restore(self, captured: state.State) -> None:
        """Take over a state of another member or of a checkpoint. `captured` must not be used afterwards."""

    @abstractmethod
    def _record(self, common: StateRecord) -> StateRecord:
        """Return the record with what only this kind of training has."""

    def has_committed(
        self, step: TrainStep, committed: Committed, generation: Generation, shards: int, updates_per_epoch: int
    ) -> None:
        """Take note of an update, of which the log has a line or may need one from this member."""
        self.train = Totals().add(committed.stats)
        self.epoch = self.epoch.add(committed.stats)
        self.last = LastUpdate(step, committed, generation, shards, updates_per_epoch, time.time())
        self.recent.add(self.last)

    def capture(self, *, recent: bool = False) -> state.State:
        """Return the current state, with the recent lines of the logs if they may be lost elsewhere.

        Its memory is shared with the model, so use it before the next step.
        """
        record = StateRecord(
            position=self.position,
            train=self.train,
            epoch=self.epoch,
            validation=self.validation,
            test=self.test,
            last=self.last,
            last_test=self.last_test,
            tally=self.tally,
            ended=self.ended,
            recent=tuple(self.recent.updates) if recent else (),
            recent_tests=tuple(self.recent.tests) if recent else (),
        )
        return state.capture(self.model, self.optimizer, self._record(record).encoded())

    def _restored(self, captured: state.State) -> StateRecord:
        """Take over what all trainings have, and return the record."""
        record = decoded(state.restore(captured, self.model, self.optimizer))
        self.train, self.epoch = record.train, record.epoch
        self.validation, self.test = record.validation, record.test
        # Records of version 0.1 have no `ended`, and the oldest no tally.
        self.tally = getattr(record, "tally", _UNSEEN)
        self.ended = getattr(record, "ended", _NOTHING)
        self.last, self.last_test = record.last, record.last_test
        self.recent.replace((*getattr(record, "recent", ()), *getattr(record, "recent_tests", ())))
        return record


class TrainingState(MemberState):
    """Holds the state of a member: the initial state until another one is restored. `cursor` is at the next step."""

    def __init__(self, training: Training, schedule: Schedule, seed: int) -> None:
        super().__init__(training.model, training.optimizer)
        self.cursor = Cursor(schedule)
        self.hooks = Hooks(training.callbacks, self.model, self.optimizer, training.options.epochs, seed)
        self.learning_rate = LearningRate(training.lr_scheduler, training.options.lr_step)

    @property
    def position(self) -> int:
        """Return the position in the schedule."""
        return self.cursor.position

    @property
    def updates(self) -> int:
        """Return the number of committed updates."""
        return self.cursor.updates

    @property
    def reached(self) -> Reached:
        """Return how far the training is, for people."""
        schedule, (done, total) = self.cursor.schedule, self.cursor.done
        # A validation job has no updates, so its updates per epoch are 0.
        epoch = min(self.cursor.updates // max(1, schedule.updates_per_epoch), schedule.epochs - 1)
        return Reached(done, total, epoch, schedule.epochs if schedule.updates_per_epoch else 0)

    def _record(self, common: StateRecord) -> StateRecord:
        return replace(common, callbacks=self.hooks.frozen, learning_rate=self.learning_rate.state())

    def restore(self, captured: state.State) -> None:
        """Take over a state of another member or of a checkpoint. `captured` must not be used afterwards."""
        self.learning_rate.restore(self._taken(captured).learning_rate)

    def branch(self, captured: state.State, epoch: int) -> None:
        """Go on from the state of another training after its first `epoch` epochs. `captured` as in `restore`.

        The model's and the optimizer's state are those of the other training. Settings of the optimizer are those of
        this training's own script: learning rate, weight decay and so on. A rate that a scheduler has moved keeps its
        ratio to the initial one.
        """
        own = state.group_scalars(self.optimizer)
        self.learning_rate.branch(self._taken(captured).learning_rate)
        for group, settings in zip(self.optimizer.param_groups, own, strict=True):
            if settings.get("initial_lr") and group.get("initial_lr"):
                settings["lr"] = settings["initial_lr"] * (group["lr"] / group["initial_lr"])
            group.update(settings)
        # The batch may have another size, and so the epoch another number of updates.
        self.cursor = Cursor(self.cursor.schedule, self.cursor.schedule.epoch_start(epoch))
        # The logs of this training begin here.
        self.last = self.last_test = None

    def _taken(self, captured: state.State) -> StateRecord:
        """Take over a state but for the learning rate, and return its record."""
        record = self._restored(captured)
        self.cursor = Cursor(self.cursor.schedule, record.position)
        self.hooks.adopt(record.callbacks)
        return record


def beginning(training: Training) -> state.State:
    """Return the state of a training that was just read from its payload."""
    schedule = LearningRate(training.lr_scheduler, training.options.lr_step).state()
    return state.capture(training.model, training.optimizer, StateRecord(learning_rate=schedule).encoded())
