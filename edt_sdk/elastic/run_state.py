"""Hold the state of a script in one member: what it gave to `elastic()`, and its place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edt_sdk.elastic import place as places
from edt_sdk.elastic.place import Place
from edt_sdk.elastic.things import Things
from edt_sdk.training.member.training_state import MemberState, Reached, StateRecord, decoded
from edt_sdk.training.records.recorder import TestLine
from edt_sdk.training.state import state
from edt_sdk.training.update.totals import Totals

if TYPE_CHECKING:
    from edt_sdk.elastic.divided_model import DividedModel


class RunState(MemberState):
    """Holds the state of a script.

    Attributes:
        place: where it is. Its own place while it goes to that of the others, and has no state.
        epochs: of the running `run.epochs()`, 0 for none.
        per_epoch: updates of an epoch, as far as they are known.
    """

    def __init__(self, things: Things, divided: DividedModel | None = None) -> None:
        super().__init__(things.model, things.optimizer)
        self._things = things
        self._divided = divided
        self.place = Place()
        self.epochs = 0
        self.per_epoch = 0

    @property
    def position(self) -> int:
        """Return the number of calls that are done."""
        return self.place.calls

    @property
    def updates(self) -> int:
        """Return the number of committed updates."""
        return self.place.updates

    @property
    def reached(self) -> Reached:
        """Return how far the script is, for people."""
        total = max(1, self.epochs) * self.per_epoch
        return Reached(self.updates, max(total, self.updates), max(0, self.place.epoch), max(1, self.epochs))

    def begin_epoch(self, epoch: int, start: int) -> None:
        """Go on to another epoch."""
        if self.epoch.samples:
            self.ended, self.epoch = self.epoch, Totals()
        self.place.begin_epoch(epoch, start)

    def has_tested(self, line: TestLine) -> None:
        """Take note of an evaluation."""
        self.last_test = line
        self.recent.add(line)
        if line.drawn:
            self.test = Totals() if line.loss is None else Totals(1, line.loss, line.accuracy)

    def place_in(self, captured: state.State) -> Place:
        """Return the place at which a state was captured."""
        return places.decode(decoded(state.extra_of(captured, self.model, self.optimizer)).place)

    def capture(self, *, recent: bool = False) -> state.State:
        """Return the current state as `MemberState` does, of a sharded model what all members have of it."""
        if self._divided is None:
            return super().capture(recent=recent)
        with self._divided.set_aside():
            captured = super().capture(recent=recent)
        divided = {name for name, _ in self.model.named_parameters()}
        return replace(captured, own={name: t for name, t in captured.own.items() if name not in divided})

    def restore(self, captured: state.State) -> None:
        """Take over a state of another member or of a checkpoint. `captured` must not be used afterwards."""
        record = self._restored(captured)
        self.place = places.decode(record.place)
        self._things.restore(record.learning_rate or {})

    def _record(self, common: StateRecord) -> StateRecord:
        return replace(common, place=places.encode(self.place), learning_rate=self._things.states())
