"""Hold the state that changes from step to step in one member, and capture and restore it as a whole.

Besides model and optimizer, the state contains the position in the schedule, the totals, the last update, the callback
objects and the learning-rate schedule. Joiners receive it, and checkpoints contain it. `state.py` handles the tensors.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from torch import nn
from torch.optim import Optimizer

from edt_sdk.training.records.lines import LastUpdate
from edt_sdk.training.records.recorder import TestLine
from edt_sdk.training.sampling.schedule import Cursor, Schedule
from edt_sdk.training.state import state
from edt_sdk.training.update.totals import Totals
from edt_sdk.training.user.hooks import Hooks
from edt_sdk.training.user.lr_schedule import LearningRate
from edt_sdk.training.user.payload import Training
from edt_sdk.training.validation.tally import Tally

_NOTHING = Totals()
_UNSEEN = Tally()
# What a host sends to the server within some seconds, and more.
_RECENT_BYTES = 4 << 20
_RECENT_TESTS = 64


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
        learning_rate: state of the scheduler.
        tally: counts of a validation job so far.
        ended: totals of the newest epoch that ended.
        recent, recent_tests: updates and validations before the last ones, which only a lost host may have logged.

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


class TrainingState:
    """Holds the state of a member: the initial state until another one is restored.

    The attributes that `StateRecord` has too mean the same. `cursor` is at the next step.
    """

    def __init__(self, training: Training, schedule: Schedule, seed: int) -> None:
        self.model: nn.Module = training.model
        self.optimizer: Optimizer = training.optimizer
        self.cursor = Cursor(schedule)
        self.train = self.epoch = self.ended = self.validation = self.test = _NOTHING
        self.tally = _UNSEEN
        self.last: LastUpdate | None = None
        self.last_test: TestLine | None = None
        self.recent: deque[LastUpdate] = deque()
        self.recent_tests: deque[TestLine] = deque(maxlen=_RECENT_TESTS)
        self._recent_bytes = 0
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

    def remember(self, line: LastUpdate | TestLine) -> None:
        """Keep a line of the logs for a while, because the host that writes them may be lost with them."""
        if isinstance(line, TestLine):
            self.recent_tests.append(line)
            return
        self.recent.append(line)
        self._recent_bytes += line.size
        while self._recent_bytes > _RECENT_BYTES:
            self._recent_bytes -= self.recent.popleft().size

    def capture(self, *, recent: bool = False) -> state.State:
        """Return the current state, with the recent lines of the logs if they may be lost elsewhere.

        Its memory is shared with the model, so use it before the next step.
        """
        record = StateRecord(
            position=self.cursor.position,
            train=self.train,
            epoch=self.epoch,
            validation=self.validation,
            test=self.test,
            last=self.last,
            last_test=self.last_test,
            callbacks=self.hooks.frozen,
            learning_rate=self.learning_rate.state(),
            tally=self.tally,
            ended=self.ended,
            recent=tuple(self.recent) if recent else (),
            recent_tests=tuple(self.recent_tests) if recent else (),
        )
        return state.capture(self.model, self.optimizer, record.encoded())

    def restore(self, captured: state.State) -> None:
        """Take over a state of another member or of a checkpoint. `captured` must not be used afterwards."""
        self.learning_rate.restore(self._restored(captured).learning_rate)

    def branch(self, captured: state.State, epoch: int) -> None:
        """Go on from the state of another training after its first `epoch` epochs. `captured` as in `restore`.

        The model's and the optimizer's state are those of the other training. Settings of the optimizer are those of
        this training's own script: learning rate, weight decay and so on. A rate that a scheduler has moved keeps its
        ratio to the initial one.
        """
        own = state.group_scalars(self.optimizer)
        self.learning_rate.branch(self._restored(captured).learning_rate)
        for group, settings in zip(self.optimizer.param_groups, own, strict=True):
            if settings.get("initial_lr") and group.get("initial_lr"):
                settings["lr"] = settings["initial_lr"] * (group["lr"] / group["initial_lr"])
            group.update(settings)
        # The batch may have another size, and so the epoch another number of updates.
        self.cursor = Cursor(self.cursor.schedule, self.cursor.schedule.epoch_start(epoch))
        # The logs of this training begin here.
        self.last = self.last_test = None

    def _restored(self, captured: state.State) -> StateRecord:
        """Take over a state but for the learning rate, and return its record."""
        record = decoded(state.restore(captured, self.model, self.optimizer))
        self.cursor = Cursor(self.cursor.schedule, record.position)
        self.train, self.epoch = record.train, record.epoch
        self.validation, self.test = record.validation, record.test
        # Records of version 0.1 have no `ended`, and the oldest no tally.
        self.tally = getattr(record, "tally", _UNSEEN)
        self.ended = getattr(record, "ended", _NOTHING)
        self.last, self.last_test = record.last, record.last_test
        self.recent.clear()
        self.recent_tests.clear()
        self._recent_bytes = 0
        for line in (*getattr(record, "recent", ()), *getattr(record, "recent_tests", ())):
            self.remember(line)
        self.hooks.adopt(record.callbacks)
        return record


def beginning(training: Training) -> state.State:
    """Return the state of a training that was just read from its payload."""
    schedule = LearningRate(training.lr_scheduler, training.options.lr_step).state()
    return state.capture(training.model, training.optimizer, StateRecord(learning_rate=schedule).encoded())
