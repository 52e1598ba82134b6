"""The linear list of steps of one training, and the cursor in it.

Everything a training does between `train()` and the final files is one `Step` of this list: hooks, updates, validation
steps, checkpoints. Members of a job agree on a position in it and on nothing else, so a joiner continues
where the others are by being told one number. Pure: no clock, no torch, no I/O; positions are computed, the list is
never held in memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from edt_sdk.training.sampling.order import TestStep, TrainStep


@dataclass(frozen=True, slots=True)
class TrainBegin:
    """Callbacks' `on_train_begin`."""


@dataclass(frozen=True, slots=True)
class EpochBegin:
    """Callbacks' `on_epoch_begin`."""

    epoch: int


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """Callbacks' `on_epoch_end`, then the epoch's checkpoint when it has one."""

    epoch: int
    checkpoint: bool


@dataclass(frozen=True, slots=True)
class TrainEnd:
    """Callbacks' `on_train_end`."""


@dataclass(frozen=True, slots=True)
class Final:
    """The final files."""


Step = TrainBegin | EpochBegin | TrainStep | TestStep | EpochEnd | TrainEnd | Final


@dataclass(frozen=True, slots=True)
class Schedule:
    """The list itself.

    Args:
        epochs: ≥ 1.
        updates_per_epoch: ≥ 1; 0 in a validation, which is one epoch of nothing but the test steps.
        validation_steps: parts of one validation; 0 when there is nothing to validate with.
        validation_freq: epochs between validations, the first after that many; 0 for none.
        checkpoint_freq: epochs between checkpoints, the first after that many; 0 for none.
    """

    epochs: int
    updates_per_epoch: int
    validation_steps: int = 0
    validation_freq: int = 1
    checkpoint_freq: int = 1

    def __len__(self) -> int:
        return self._epoch_start(self.epochs) + 2

    def __iter__(self) -> Iterator[Step]:
        return (self[position] for position in range(len(self)))

    def __getitem__(self, position: int) -> Step:
        """The step at a position in [0, len); IndexError outside."""
        if not 0 <= position < len(self):
            raise IndexError(f"position {position} of {len(self)} steps")
        if position == 0:
            return TrainBegin()
        if position == len(self) - 1:
            return Final()
        if position == len(self) - 2:
            return TrainEnd()
        epoch = bisect_right(range(self.epochs), position, key=self._epoch_start) - 1
        within = position - self._epoch_start(epoch)
        if within == 0:
            return EpochBegin(epoch)
        within -= 1
        if within < self.updates_per_epoch:
            return TrainStep(epoch, within, epoch * self.updates_per_epoch + within)
        within -= self.updates_per_epoch
        if self._validates(epoch) and within < self.validation_steps:
            return TestStep(epoch, within)
        return EpochEnd(epoch, checkpoint=self.checkpoint_freq > 0 and (epoch + 1) % self.checkpoint_freq == 0)

    def closes_validation(self, step: TestStep) -> bool:
        """Whether a validation is complete after this step."""
        return step.index == self.validation_steps - 1

    @property
    def total_updates(self) -> int:
        """Optimizer steps of the whole training."""
        return self.epochs * self.updates_per_epoch

    def _validates(self, epoch: int) -> bool:
        return self.validation_freq > 0 and (epoch + 1) % self.validation_freq == 0

    def _epoch_start(self, epoch: int) -> int:
        """Position of an epoch's first step: one TrainBegin, whole epochs, and the validations among them."""
        validations = epoch // self.validation_freq if self.validation_freq > 0 else 0
        return 1 + epoch * (self.updates_per_epoch + 2) + validations * self.validation_steps


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in a schedule: `step` is the next thing to do."""

    schedule: Schedule
    position: int = 0

    @property
    def step(self) -> Step:
        """What comes next."""
        return self.schedule[self.position]

    @property
    def updates(self) -> int:
        """How many updates are committed here."""
        step = self.step
        match step:
            case TrainBegin():
                return 0
            case TrainStep():
                return step.update
            case EpochBegin():
                return step.epoch * self.schedule.updates_per_epoch
            case TestStep() | EpochEnd():
                return (step.epoch + 1) * self.schedule.updates_per_epoch
            case TrainEnd() | Final():
                return self.schedule.total_updates

    @property
    def done(self) -> tuple[int, int]:
        """How much is done here, and how much there is to do: updates, or test steps where nothing is trained."""
        if self.schedule.updates_per_epoch:
            return self.updates, self.schedule.total_updates
        steps = self.schedule.validation_steps
        return min(max(0, self.position - 2), steps), steps

    @property
    def next(self) -> Cursor:
        """The place after this one."""
        return Cursor(self.schedule, self.position + 1)
