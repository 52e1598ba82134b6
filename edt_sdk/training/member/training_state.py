"""Where a training stands in one member: all that changes from step to step, captured and restored as one.

Beside model and optimizer that is the place in the schedule, the totals, what was done last, the callback objects and
the learning rate's schedule. A joiner is given it, a checkpoint is made of it; see `state.py` for the bits.
"""

from __future__ import annotations

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
        tally: what a job that only tests has counted so far. The last field: checkpoints that were written before there
            was one hold the others in their order.
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

    def encoded(self) -> tuple[bytes, dict[str, Any] | None]:
        """Return it as plain data, so that no path of a module becomes part of a file."""
        return _encoder.encode(replace(self, learning_rate=None)), self.learning_rate


def decoded(data: Any) -> Where:
    """Return what `Where.encoded` gave; version 0.1 pickled a `Where` itself."""
    if isinstance(data, Where):
        return data
    encoded, learning_rate = data
    return replace(_decoder.decode(encoded), learning_rate=learning_rate)


def _array(value: Any) -> tuple[tuple[int, ...], bytes]:
    if isinstance(value, np.ndarray) and value.dtype == np.int64:
        return value.shape, value.tobytes()
    raise NotImplementedError


def _restored_array(_kind: type, value: Any) -> npt.NDArray[np.int64]:
    shape, data = value
    return np.frombuffer(data, np.int64).reshape(shape)


_encoder = msgspec.msgpack.Encoder(enc_hook=_array)
_decoder = msgspec.msgpack.Decoder(Where, dec_hook=_restored_array)


class Standing:
    """One member's; at the beginning until it is restored.

    Args:
        training: its model and optimizer are what is captured and restored.
        schedule: of the training.
        seed: the job's.

    Attributes:
        cursor: the next step.
        train, epoch, validation, test, tally, last, last_test: as in `Where`.
        hooks: the callbacks.
        learning_rate: the user's schedule of it.
    """

    def __init__(self, training: Training, schedule: Schedule, seed: int) -> None:
        self.model: nn.Module = training.model
        self.optimizer: Optimizer = training.optimizer
        self.cursor = Cursor(schedule)
        self.train = self.epoch = self.validation = self.test = _NOTHING
        self.tally = _UNSEEN
        self.last: LastUpdate | None = None
        self.last_test: TestLine | None = None
        self.hooks = Hooks(training.callbacks, self.model, self.optimizer, training.options.epochs, seed)
        self.learning_rate = LearningRate(training.lr_scheduler, training.options.lr_step)

    @property
    def position(self) -> int:
        """In the schedule."""
        return self.cursor.position

    @property
    def updates(self) -> int:
        """How many are committed."""
        return self.cursor.updates

    def capture(self) -> state.State:
        """This very moment; memory is shared, so use it before the next step."""
        where = Where(
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
        )
        return state.capture(self.model, self.optimizer, where.encoded())

    def restore(self, captured: state.State) -> None:
        """Be where another member was, or this training once; `captured` must not be used any more."""
        where = decoded(state.restore(captured, self.model, self.optimizer))
        self.cursor = Cursor(self.cursor.schedule, where.position)
        self.train, self.epoch = where.train, where.epoch
        self.validation, self.test = where.validation, where.test
        self.tally = getattr(where, "tally", _UNSEEN)
        self.last, self.last_test = where.last, where.last_test
        self.hooks.adopt(where.callbacks)
        self.learning_rate.restore(where.learning_rate)


def beginning(training: Training) -> state.State:
    """The state of a training that has just come out of its payload."""
    schedule = LearningRate(training.lr_scheduler, training.options.lr_step).state()
    return state.capture(training.model, training.optimizer, Where(learning_rate=schedule).encoded())
