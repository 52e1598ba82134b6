"""Define the linear list of steps of a training, and a cursor into it.

Everything a training does between `train()` and the final files is one `Step` of this list: hooks, updates, validation
steps, checkpoints. The members of a job agree on a position in the list and on nothing else, so a joiner needs one
number to continue where the others are. Pure: no clock, no torch, no I/O. Positions are computed, the list is never
held in memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from edt_sdk.training.sampling.order import TestStep, TrainStep


@dataclass(frozen=True, slots=True)
class TrainBegin:
    """Calls `on_train_begin` of the callbacks."""


@dataclass(frozen=True, slots=True)
class EpochBegin:
    """Calls `on_epoch_begin` of the callbacks."""

    epoch: int


@dataclass(frozen=True, slots=True)
class UpdateEnd:
    """Calls `on_update_end` of the callbacks. `update` counts from 0 over the whole training."""

    epoch: int
    update: int


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """Calls `on_epoch_end` of the callbacks, then writes the checkpoint of the epoch if there is one."""

    epoch: int
    checkpoint: bool


@dataclass(frozen=True, slots=True)
class TrainEnd:
    """Calls `on_train_end` of the callbacks."""


@dataclass(frozen=True, slots=True)
class Final:
    """Writes the final files."""


Step = TrainBegin | EpochBegin | TrainStep | UpdateEnd | TestStep | EpochEnd | TrainEnd | Final


@dataclass(frozen=True, slots=True)
class Schedule:
    """Computes the step at each position of the list.

    Args:
        epochs: ≥ 1.
        updates_per_epoch: ≥ 1 in a training. 0 in a validation job, which is one epoch of test steps only.
        validation_steps: parts of a validation. 0 when there is no validation data.
        validation_freq: epochs between validations, the first after that many. 0 for none.
        checkpoint_freq: epochs between checkpoints, the first after that many. 0 for none.
        update_hooks: whether a hook follows each update. Most callbacks have none, and their positions stay as they
            were in checkpoints of versions without this step.
    """

    epochs: int
    updates_per_epoch: int
    validation_steps: int = 0
    validation_freq: int = 1
    checkpoint_freq: int = 1
    update_hooks: bool = False

    def __len__(self) -> int:
        return self.epoch_start(self.epochs) + 2

    def __iter__(self) -> Iterator[Step]:
        return (self[position] for position in range(len(self)))

    def __getitem__(self, position: int) -> Step:
        """Return the step at a position in [0, len). IndexError outside."""
        if not 0 <= position < len(self):
            raise IndexError(f"position {position} of {len(self)} steps")
        if position == 0:
            return TrainBegin()
        if position == len(self) - 1:
            return Final()
        if position == len(self) - 2:
            return TrainEnd()
        # Binary search over computed starts: a training may have millions of steps, and none is stored.
        epoch = bisect_right(range(self.epochs), position, key=self.epoch_start) - 1
        within = position - self.epoch_start(epoch)
        if within == 0:
            return EpochBegin(epoch)
        within -= 1
        if within < self._update_steps:
            within, hook = divmod(within, 2) if self.update_hooks else (within, 0)
            update = epoch * self.updates_per_epoch + within
            return UpdateEnd(epoch, update) if hook else TrainStep(epoch, within, update)
        within -= self._update_steps
        if self._validates(epoch) and within < self.validation_steps:
            return TestStep(epoch, within)
        return EpochEnd(epoch, checkpoint=self.checkpoint_freq > 0 and (epoch + 1) % self.checkpoint_freq == 0)

    def closes_validation(self, step: TestStep) -> bool:
        """Return whether a validation is complete after this step."""
        return step.index == self.validation_steps - 1

    def epoch_start(self, epoch: int) -> int:
        """Return the position of an epoch's first step, after one TrainBegin and the epochs before it."""
        validations = epoch // self.validation_freq if self.validation_freq > 0 else 0
        return 1 + epoch * (self._update_steps + 2) + validations * self.validation_steps

    @property
    def total_updates(self) -> int:
        """Return the number of optimizer steps in the whole training."""
        return self.epochs * self.updates_per_epoch

    @property
    def _update_steps(self) -> int:
        """Return the steps of an epoch's updates, with their hooks."""
        return self.updates_per_epoch * (2 if self.update_hooks else 1)

    def _validates(self, epoch: int) -> bool:
        return self.validation_freq > 0 and (epoch + 1) % self.validation_freq == 0


@dataclass(frozen=True, slots=True)
class Cursor:
    """Marks a position in a schedule. `step` is the next step to run."""

    schedule: Schedule
    position: int = 0

    @property
    def step(self) -> Step:
        """Return the next step."""
        return self.schedule[self.position]

    @property
    def updates(self) -> int:
        """Return how many updates are committed at this position."""
        step = self.step
        match step:
            case TrainBegin():
                return 0
            case TrainStep():
                return step.update
            case UpdateEnd():
                return step.update + 1
            case EpochBegin():
                return step.epoch * self.schedule.updates_per_epoch
            case TestStep() | EpochEnd():
                return (step.epoch + 1) * self.schedule.updates_per_epoch
            case TrainEnd() | Final():
                return self.schedule.total_updates

    @property
    def done(self) -> tuple[int, int]:
        """Return (done, total) in updates, or in test steps where nothing is trained."""
        if self.schedule.updates_per_epoch:
            return self.updates, self.schedule.total_updates
        steps = self.schedule.validation_steps
        return min(max(0, self.position - 2), steps), steps

    @property
    def next(self) -> Cursor:
        """Return the position after this one."""
        return Cursor(self.schedule, self.position + 1)
